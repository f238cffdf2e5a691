"""Do two installations of posenc compute the same? ``python benchmarks/referee.py OLD_PYTHON NEW_PYTHON``.

Each of the two interpreters has some posenc installed; both run the calls that this checkout's `tests.fuzz` draws, each
in processes of its own, and what comes out is compared:

- results and gradients of random calls, and of layers that read in pieces with a cache. What is not equal bit for bit
  is held against the definition, as `tests.fuzz.oracle` does it: two results that rounding explains are no difference;
- runs of caches (`tests.fuzz.test_caches`): reads, crops, copies, failures;
- the state dicts of every encoding of the catalogue, of random options, and of every layer: names, shapes, dtypes, and
  what they start with;
- public names with their signatures (`tests.public_api`);
- what ``posenc explain --json`` and ``posenc doctor --json`` say of each folder in CONFIGS, with their exit codes.

    python benchmarks/referee.py OLD NEW --calls 2000 --configs CONFIGS        about ten minutes of a core
    python benchmarks/referee.py OLD NEW --configs CONFIGS                     20,000 calls: about two hours of a core
    python benchmarks/referee.py OLD NEW --only names states configs           what takes no calls
    python benchmarks/referee.py OLD NEW --only calls --first 4711 --calls 1   one call again, as a line names it

Run it from the checkout by NEW, whose posenc draws the parameters that the definition is given. Both interpreters need
pytest, hypothesis and numpy. OLD may be a virtual environment with the wheel of the last release. It prints what
differs, grouped, with the seeds of the first of each group, and exits with 1 if anything does.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("calls", "caches", "states", "names", "configs")
CHUNK = 200  # calls, or runs of caches, in one file
SHOWN = 4  # seeds of a group
DRAWS = 6  # random options of each encoding whose state dicts are compared
SHARES = {
    "plain": 26.0, "backward": 30.0, "every_backend": 8.0, "decoded": 14.0, "packed": 5.0, "padded": 5.0,
    "layer_states": 3.0, "equivalent_values": 2.0, "refused": 4.0, "function_gradient": 1.2, "forward_derivative": 0.8,
    "mapped": 0.6, "compiled": 0.4,
}  # fmt: skip
Recorded = dict[str, Any]


# What runs in either installation ------------------------------------------------------------------------------------


@contextmanager
def judged_by(judge: Callable[..., float]) -> Iterator[None]:
    """Another judge of a call's results than the definition."""
    from tests.fuzz import layers, modes, refusals

    modules = (modes, layers, refusals)
    before = [module.judge for module in modules]
    for module in modules:
        module.judge = judge  # type: ignore[assignment]
    try:
        yield
    finally:
        for module, judge_before in zip(modules, before, strict=True):
            module.judge = judge_before


def play(seed: int, judge: Callable[..., float]) -> str:
    """Make the call of a seed; what it came to: its mode, and agreed, refused or failed."""
    from tests.fuzz.draw import Draw
    from tests.fuzz.oracle import DisagreementError
    from tests.fuzz.test_attention import try_call

    mode = Draw(seed + 17).weighted(SHARES)
    with judged_by(judge):
        try:
            return try_call(seed, mode=mode)
        except DisagreementError as error:
            return f"{mode} failed: {str(error).splitlines()[-1].strip()}"


class Numbered:
    """Names of results in the order in which a call judges them; a name that comes again is numbered."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def __call__(self, name: str) -> str:
        self._seen[name] += 1
        return name if self._seen[name] == 1 else f"{name}, again {self._seen[name] - 1}"


def recorded_call(seed: int) -> Recorded:
    """What a call came to, and its results."""
    import torch

    results, name_of = dict[str, torch.Tensor](), Numbered()

    def keep(got: Mapping[str, torch.Tensor], define: object, dtype: torch.dtype) -> float:
        results.update({name_of(name): tensor.detach().clone() for name, tensor in got.items()})
        return 0.0

    return {"outcome": play(seed, keep), "results": results}


def recorded_run(seed: int) -> Recorded:
    """What a run of caches came to, and the results of its real tokens."""
    from tests.fuzz.test_caches import Run

    run = Run(seed)
    try:
        run.play()
    except Exception as error:
        outcome = f"{run.name} failed: {type(error).__name__}"
    else:
        outcome = f"{run.name} agreed"
    return {"outcome": outcome, "results": {f"read {at}": tensor for at, tensor in enumerate(run.results)}}


def recorded_states() -> dict[str, list[str]]:
    """State dicts by name of an encoding or a layer: keys, shapes, dtypes, and what they start with under one seed."""
    import torch
    from tests.fuzz.draw import Draw, Sizes, Spec, make
    from tests.fuzz.encodings import KINDS

    import posenc
    from posenc import layers
    from posenc.testing import Case

    def lines(make_module: Callable[[], Any]) -> list[str]:
        torch.manual_seed(0)
        try:
            module = make_module()
        except Exception as error:
            return [f"{type(error).__name__}"]
        values = module.state_dict().items()
        return [f"{name} {tuple(t.shape)} {t.dtype}, sum {t.double().sum():.12g}" for name, t in values]

    states = {}
    for name in posenc.list_encodings():
        states[f"catalogue: {name}"] = lines(lambda n=name: torch.nn.ModuleList(Case.from_catalogue(n).make()))
    for kind in KINDS:
        for seed in range(DRAWS):
            draw, axes = Draw(seed), 1 + seed % 3
            try:
                spec = Spec(kind, KINDS[kind](draw, Sizes(4, 2, 24, 24, 8), axes))
            except (ValueError, IndexError):  # options of a kind that reads another number of axes
                continue
            states[f"{kind} of seed {seed}"] = [str(spec), *lines(lambda s=spec, d=draw: make(s, d))]
    listed = partial(posenc.parse_encodings, head_dim=16, num_heads=4, dim=64, train_length=32)
    for recipe in ("nope", "rope", "alibi", "t5", "cope", "fox", "rope+fox", "sink"):
        for name in layers.__all__:
            cls = getattr(layers, name)
            if isinstance(cls, type) and issubclass(cls, torch.nn.Module) and "num_heads" in signature(cls).parameters:
                known = signature(cls).parameters
                sizes = {word: 16 for word in ("kv_rank", "nope_dim", "rope_dim") if word in known}
                states[name] = lines(lambda c=cls, s=sizes: c(64, 4, **s))
                states[f"{name} under {recipe}"] = lines(
                    lambda c=cls, s=sizes, r=recipe: c(64, 4, encodings=listed(r), **s)
                )
    return states


def recorded_names() -> dict[str, list[str]]:
    """Public names by module."""
    from tests.public_api import MODULES, lines_of

    names = {}
    for module in MODULES:
        try:
            names[module] = list(lines_of(module))[1:]
        except Exception as error:
            names[module] = [f"{type(error).__name__}: {error}"]
    return names


def recorded_configs(folder: Path) -> dict[str, list[str]]:
    """What the commands say of each folder: the lines of their JSON, behind the exit code."""
    from posenc_cli import run

    printed = {}
    for path in sorted(p for p in folder.iterdir() if p.is_dir() or p.suffix == ".json"):
        for command in ("explain", "doctor"):
            out, errors = io.StringIO(), io.StringIO()
            with redirect_stdout(out), redirect_stderr(errors):
                try:
                    code: object = run([command, str(path), "--json"])
                except (SystemExit, Exception) as error:
                    code = f"{type(error).__name__}: {error}"
            text = out.getvalue() or errors.getvalue()
            with suppress(ValueError):  # of an error there are words alone
                text = json.dumps(json.loads(text), indent=1, sort_keys=True)
            printed[f"{command} {path.name}"] = [f"exit code {code}", *text.splitlines()]
    return printed


def with_option(made: Callable[..., None], today: str, before: str) -> Callable[..., None]:
    """A constructor that takes an option by today's name too."""

    def make(self: Any, *args: Any, **options: Any) -> None:
        if today in options:
            options[before] = options.pop(today)
        made(self, *args, **options)

    return make


def with_todays_names() -> None:
    """Give an installation of before a renaming today's names, as far as `tests.fuzz` uses them."""
    import posenc
    from posenc import encoding, layers, positions, rotary, score

    if hasattr(posenc, "explain_backend"):
        return

    def renamed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, token_states: Any = None, **options: Any) -> Any:
            if token_states is not None:
                options["features"] = token_states
            try:
                return function(*args, **options)
            except ValueError as error:
                raise ValueError(str(error).replace("features", "token_states")) from error

        return call

    posenc.attention, posenc.explain_backend = renamed(posenc.attention), renamed(posenc.explain)
    for module in (positions, positions.checking):
        module.NO_POSITION = positions.checking.NOWHERE
    positions.checking.has_no_position = positions.checking.nowhere
    encoding.ScoreEncoding.token_state = lambda self, x: self.remember(x)
    layers.StaticKVCache.select = layers.StaticKVCache.reorder
    if not hasattr(score, "XPos"):
        score.XPos = rotary.XPos
    adapted = score.DAPE
    score.DAPE = lambda bias, **options: adapted(bias, bias.num_heads, **options)
    for kind, today, before in ((score.RePo, "hidden", "mid"), (score.TokenRelativeBias, "max_distance", "extent")):
        kind.__init__ = with_option(kind.__init__, today, before)


def record(part: str, first: int, count: int, folder: Path, configs: Path | None) -> None:
    """Write what this interpreter's posenc does into a folder."""
    import torch

    torch.set_num_threads(1)
    with_todays_names()
    if part in ("calls", "caches"):
        record_one = {"calls": recorded_call, "caches": recorded_run}[part]
        for start in range(first, first + count, CHUNK):
            seeds = range(start, min(start + CHUNK, first + count))
            torch.save({seed: record_one(seed) for seed in seeds}, folder / f"{part}-{start}.pt")
        return
    lines = {"states": recorded_states, "names": recorded_names}.get(part, lambda: recorded_configs(configs or ROOT))()
    (folder / f"{part}.json").write_text(json.dumps(lines), encoding="utf-8")


# What compares --------------------------------------------------------------------------------------------------------


class Differences:
    """What differs, in groups, and what was compared."""

    def __init__(self) -> None:
        self.groups: defaultdict[str, list[str]] = defaultdict(list)
        self.counts: Counter[str] = Counter()

    def add(self, group: str, text: str) -> None:
        self.groups[group].append(text)

    def report(self) -> int:
        for what, count in sorted(self.counts.items()):
            print(f"{count:7,} {what}")
        for group, texts in sorted(self.groups.items()):
            print(f"\n{len(texts)} × {group}")
            for text in texts[:SHOWN]:
                print(f"    {text[:400]}")
        print("\nno difference" if not self.groups else f"\n{len(self.groups)} groups of differences")
        return 1 if self.groups else 0


def compare_calls(old: Recorded, new: Recorded, differences: Differences) -> None:
    """Hold two recordings of calls against each other, and where they differ against the definition."""
    for seed in old:
        before, after = old[seed], new[seed]
        differences.counts["calls"] += 1
        mode = before["outcome"].split()[0]
        if before["outcome"].split(":")[0] != after["outcome"].split(":")[0]:
            differences.add(f"{mode}: another outcome", f"call {seed}: {before['outcome']} → {after['outcome']}")
            continue
        for name in before["results"].keys() ^ after["results"].keys():
            which = "old" if name in before["results"] else "new"
            differences.add(f"{mode}: {name.split(', again')[0]} in the {which} one alone", f"call {seed}")
        both = [name for name in before["results"] if name in after["results"]]
        unequal = {n for n in both if not same(before["results"][n], after["results"][n])}
        differences.counts["results"] += len(both)
        differences.counts["results that differ in bits"] += len(unequal)
        if unequal:
            for name, verdict in judged(seed, {"old": before["results"], "new": after["results"]}, unequal).items():
                differences.add(f"{mode}: {verdict['group']}", f"call {seed}, {name}: {verdict['text']}")


def same(a: Any, b: Any) -> bool:
    """Equal bit for bit, NaN included."""
    return a.shape == b.shape and a.dtype == b.dtype and bool(((a == b) | ((a != a) & (b != b))).all())


def judged(seed: int, results: Mapping[str, Recorded], unequal: set[str]) -> dict[str, dict[str, str]]:
    """By name of a result, what the definition says of the two; nothing where rounding explains both."""
    from tests.fuzz.oracle import DisagreementError, judge

    verdicts, name_of = dict[str, dict[str, str]](), Numbered()

    def judge_both(got: Mapping[str, Any], define: Callable[..., Mapping[str, Any]], dtype: Any) -> float:
        for plain in got:
            name = name_of(plain)
            if name not in unequal:
                continue
            errors = {}
            for side, recorded in results.items():
                try:
                    judge({plain: recorded[name]}, lambda r, p=plain: {p: define(r)[p]}, dtype)
                except DisagreementError as error:
                    errors[side] = str(error)
            if errors:
                who = "both are" if len(errors) == 2 else f"the {next(iter(errors))} one is"
                text = "; ".join(f"{side} {error}" for side, error in errors.items())
                verdicts[name] = {"group": f"{plain}: {who} off", "text": text}
        return 0.0

    play(seed, judge_both)
    return verdicts


def compare_runs(old: Recorded, new: Recorded, differences: Differences) -> None:
    """Hold two recordings of runs of caches against each other, in float64."""
    from tests.fuzz.test_caches import TOLERANCE

    for seed in old:
        before, after = old[seed], new[seed]
        differences.counts["runs of caches"] += 1
        if before["outcome"] != after["outcome"] or before["results"].keys() != after["results"].keys():
            differences.add("caches: another outcome", f"run {seed}: {before['outcome']} → {after['outcome']}")
            continue
        for name, tensor in before["results"].items():
            other = after["results"][name]
            differences.counts["reads of caches"] += 1
            if tensor.shape != other.shape or not bool((tensor - other).abs().le(TOLERANCE).all()):
                differences.add("caches: another result", f"run {seed}, {name}: {before['outcome'].split()[0]}")
                break


def compare_lines(
    part: str, old: Mapping[str, list[str]], new: Mapping[str, list[str]], differences: Differences
) -> None:
    """Hold lines against each other; a group for each thing that is said."""
    for name in [*old, *(n for n in new if n not in old)]:
        differences.counts[part] += 1
        before, after = old.get(name), new.get(name)
        if before is None or after is None:
            differences.add(f"{part}: in the {'old' if after is None else 'new'} one alone", name)
        elif part == "names":  # by line: a module has many
            for line in sorted({*before} ^ {*after}):
                differences.add(f"names of {name}", f"{'-' if line in before else '+'} {line.strip()}")
        elif before != after:
            changed = [f"- {line.strip()}" for line in before if line not in after]
            changed += [f"+ {line.strip()}" for line in after if line not in before]
            differences.add(f"{part}: {name.split()[0]}", f"{name}: {'; '.join(changed) or 'in another order'}")


def record_all(pythons: Mapping[str, str], options: argparse.Namespace, folder: Path) -> None:
    """Let both interpreters record every part; a number of processes at a time."""
    jobs = list[tuple[str, str, int, int]]()
    for side in pythons:
        for part in options.only:
            if part in ("calls", "caches"):
                first, count = (options.first, options.calls) if part == "calls" else (options.first, options.caches)
                share = -(-count // (options.processes * CHUNK)) * CHUNK
                starts = range(first, first + count, share) if count else ()
                jobs += [(side, part, at, min(share, first + count - at)) for at in starts]
            elif part != "configs" or options.configs:
                jobs.append((side, part, 0, 0))

    def run(job: tuple[str, str, int, int]) -> None:
        side, part, first, count = job
        command = [pythons[side], str(Path(__file__).resolve()), "--record", part, str(first), str(count)]
        command += [str(folder / side), str(options.configs or "")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")

    for side in pythons:
        (folder / side).mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.processes) as pool:
        list(pool.map(run, jobs))


def compare_all(folder: Path) -> Differences:
    """Hold everything that was recorded against each other."""
    import torch

    torch.set_num_threads(1)
    differences = Differences()
    for path in sorted((folder / "old").iterdir()):
        other = folder / "new" / path.name
        if path.suffix == ".json":
            compare_lines(path.stem, json.loads(path.read_text()), json.loads(other.read_text()), differences)
        else:
            compare = {"calls": compare_calls, "caches": compare_runs}[path.stem.split("-")[0]]
            compare(torch.load(path), torch.load(other), differences)
    return differences


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--record"]:
        part, first, count, folder, configs = arguments[1:]
        record(part, int(first), int(count), Path(folder), Path(configs) if configs else None)
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old", help="the interpreter of one environment")
    parser.add_argument("new", help="that of the other")
    parser.add_argument("--calls", type=int, default=20_000, help="random calls (default: %(default)s)")
    parser.add_argument("--caches", type=int, help="runs of caches (default: a tenth of the calls)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: %(default)s)")
    parser.add_argument("--configs", type=Path, help="a folder of checkpoints' folders or config.json files")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="some parts alone")
    parser.add_argument("--processes", type=int, default=2, help="at a time (default: %(default)s)")
    parser.add_argument("--keep", type=Path, help="where the recordings stay (default: nowhere)")
    options = parser.parse_args(arguments)
    options.caches = options.calls // 10 if options.caches is None else options.caches
    options.configs = options.configs and options.configs.resolve()
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        record_all({"old": options.old, "new": options.new}, options, folder)
        return compare_all(folder).report()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
