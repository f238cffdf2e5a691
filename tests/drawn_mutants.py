"""Wrong operators that the tests must notice, drawn at random: ``python -m tests.drawn_mutants --count 300 --seed 0``.

A mutant is one changed constant, sign, comparison or index in the arithmetic of the core; `mutants` names mistakes that
people make, this one asks for what nobody thought of. Each is tried against the random calls, the conformance checks of
its encoding and the tests of its file, until one fails. Not all can be noticed: some change nothing that
has a meaning (a threshold between two ways that give the same). So the share that is caught is a figure to compare
between two states of the tests with the same seed, not one to be 100 %.

    python -m tests.drawn_mutants --count 300 --minutes 120        nightly
    python -m tests.drawn_mutants --under bias score --count 60    some folders
    python -m tests.drawn_mutants --record FILE ...                what caught each, one JSON object a line
    python -m tests.drawn_mutants --again FILE ...                 those of a record that the tests of its file caught,
                                                                   or nothing did: all that a cut of these can change
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.mutation import NONE_SELECTED, SOURCE, catches, outcome

FOLDERS = ("bias", "embedding", "frequencies", "layers", "positions", "rotary", "score", "weight", "backends", "call")
CALL = ("attend", "attention_maps", "call", "context", "dropout", "dtypes", "encoding", "heads", "rotate", "visibility")
LEFT_OUT = ("backends/triton/", "backends/flex/", "distributed/")  # whose tests need what is not here
WORDS = ("__repr__", "extra_repr", "__str__", "text", "strategy", "refuses", "refuses_by_name")
SWAPS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Add: ("-",), ast.Sub: ("+",), ast.Mult: ("/", "+"), ast.Div: ("*",), ast.FloorDiv: ("*",), ast.Mod: ("*",),
    ast.Pow: ("*",), ast.BitAnd: ("|",), ast.BitOr: ("&",),
    ast.Lt: ("<=",), ast.LtE: ("<",), ast.Gt: (">=",), ast.GtE: (">",), ast.Eq: ("!=",), ast.NotEq: ("==",),
    ast.And: ("or",), ast.Or: ("and",),
}  # fmt: skip
GOLDEN = {  # tables of golden numbers by folder
    "bias": ("biases", "attention"), "score": ("attention", "scores"), "weight": ("attention",),
    "rotary": ("rotations",), "frequencies": ("frequencies", "rotations"),
    "embedding": ("embeddings",), "positions": ("positions",),
}  # fmt: skip
ORACLE = "tests/fuzz/test_attention.py"
EACH = "tests/fuzz/test_each_encoding.py"
CACHES = "tests/fuzz/test_caches.py"
EMBEDDINGS = "tests/fuzz/test_embeddings.py"
CACHE_TESTS = ["layers/test_cache_editing.py", "layers/test_moving.py"]
SCALINGS = ["frequencies/test_scalings.py"]
GENERATORS, AXES = ["rotary/test_comrope.py"], ["rotary/test_axial.py"]
LEARNED, TOKENS = ["rotary/test_far_gradients.py"], ["score/test_path.py"]
OWN = {  # where a file's tests are called otherwise
    **{f"rotary/{name}": GENERATORS for name in ("_blocks", "_commuting", "_skew", "liere")},
    **{f"rotary/{name}": AXES for name in (
        "_axes", "_conventions", "_layout", "_directions", "mrope", "mhrope", "mixed")},
    **{f"rotary/{name}": LEARNED for name in ("fope", "pope", "grape")},
    "rotary/_rotate": ["rotary/test_rope.py"],
    **{f"frequencies/{name}": ["frequencies/test_clex.py"] for name in ("_solver",)},
    **{f"frequencies/{name}": AXES for name in ("dype", "riflex")},
    "frequencies/host": ["frequencies/test_host.py", *SCALINGS],
    "bias/_window": ["bias/test_swin.py", "bias/test_beit.py"],
    "embedding/_resize": ["embedding/test_resize.py"],
    "embedding/_rows": ["embedding/test_learned_grid.py", "embedding/test_learned.py"],
    **{f"score/{name}": TOKENS for name in (
        "_inputs", "_qk_rotation", "forget", "repo", "selective_rope", "token_relative", "grape", "cope")},
    "weight/sink": ["weight/test_sink.py"],
}  # fmt: skip


WORDS_OF = {  # entries of the catalogue that use a file which is none
    **{f"rotary/{name}": ["comrope", "liere"] for name in ("_blocks", "_commuting", "_skew")},
    **{f"rotary/{name}": ["axial", "mixed", "mrope"] for name in ("_axes", "_conventions", "_layout", "_directions")},
    "rotary/_rotate": ["rope"], "bias/_window": ["swin", "beit"], "embedding/_resize": ["learned"],
    "embedding/_rows": ["learned"], "score/_inputs": ["fox", "path"], "score/_qk_rotation": ["selective_rope", "repo"],
}  # fmt: skip


class Site(NamedTuple):
    """One change: bytes first … last of a file, and what stands there instead."""

    file: str
    line: int
    first: int
    last: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.before} → {self.after} (byte {self.first})"

    def text(self) -> str:
        source = (SOURCE / self.file).read_bytes()
        return (source[: self.first] + self.after.encode() + source[self.last :]).decode()


def sites_of(file: str) -> list[Site]:
    """All changes of one file, in its order."""
    source = (SOURCE / file).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def span(node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    def change(node: ast.expr, first: int, last: int, after: str) -> Site:
        return Site(file, node.lineno, first, last, source[first:last].decode().strip(), after)

    def between(left: ast.expr, right: ast.expr, after: tuple[str, ...]) -> Iterator[Site]:
        first, last = span(left)[1], span(right)[0]
        words = source[first:last].decode()
        bare = words.strip(" ()\n")  # brackets of an operand stay where they are
        if bare and words.count(bare) == 1 and "\n" not in bare:
            at = first + len(words[: words.index(bare)].encode())
            yield from (change(left, at, at + len(bare.encode()), new) for new in after)

    def visit(node: ast.AST) -> Iterator[Site]:
        if isinstance(node, (ast.Raise, ast.Assert, ast.JoinedStr, ast.AnnAssign, ast.Import, ast.ImportFrom)):
            if isinstance(node, ast.AnnAssign) and node.value is not None:
                yield from visit(node.value)
            return
        if isinstance(node, ast.FunctionDef):
            if node.name not in WORDS and not node.name.lstrip("_").startswith("check"):
                for statement in node.body:
                    yield from visit(statement)
            return
        if isinstance(node, ast.If) and any(isinstance(inner, ast.Raise) for inner in node.body):
            return  # the condition of a refusal
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1].lstrip("_").startswith("check"):
            return
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            value = node.value
            new = (value + 1, value - 1) if isinstance(value, int) else (value * 1.5 if value else 1.0,)
            yield from (change(node, *span(node), repr(number)) for number in new)
        elif isinstance(node, ast.BinOp):
            yield from between(node.left, node.right, SWAPS.get(type(node.op), ()))
        elif isinstance(node, ast.BoolOp):
            yield from between(node.values[0], node.values[1], SWAPS[type(node.op)])
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield from between(node.left, node.comparators[0], SWAPS.get(type(node.ops[0]), ()))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
            first = span(node)[0]  # brackets of the operand stay
            yield change(node, first, first + (1 if isinstance(node.op, ast.USub) else len("not")), "")
        for inner in ast.iter_child_nodes(node):
            yield from visit(inner)

    return list(visit(ast.parse(source)))


def draw(count: int, seed: int, folders: list[str]) -> list[Site]:
    """Changes of the core's arithmetic, each file as likely as it has places."""
    files = [str(p.relative_to(SOURCE)) for folder in folders for p in sorted((SOURCE / folder).rglob("*.py"))]
    files += [f"{name}.py" for name in CALL] if "call" in folders else []
    sites = [site for file in files if not file.startswith(LEFT_OUT) for site in sites_of(file)]
    return random.Random(seed).sample(sites, min(count, len(sites)))


def selections(site: Site) -> dict[str, list[str]]:
    """Arguments of pytest by name, from what is cheap and catches much to what is wider."""
    folder, stem = site.file.split("/")[0] if "/" in site.file else "call", Path(site.file).stem
    tests = SOURCE.parents[1] / "tests"
    shared = {"frequencies": SCALINGS, "score": ["score/test_xpos.py"], "positions": ["positions/test_text.py"]}
    own = OWN.get(f"{folder}/{stem}", [f"{folder}/test_{stem}.py", *shared.get(folder, ())])
    own = [f"backends/test_{stem}.py", f"test_{stem}.py"] if folder == "call" else own
    own = ["backends/tiles/test_equals_dense.py"] if "/tiles/" in site.file else own
    own = CACHE_TESTS if "/cache/" in site.file else own
    own = [f"tests/{name}" for name in own if (tests / name).exists()]
    names = WORDS_OF.get(f"{folder}/{stem}", [stem])
    of_encoding = " or ".join(names) if folder not in ("backends", "layers", "positions", "call") else "alibi or fox"
    oracle = {"layers": [CACHES], "embedding": [EMBEDDINGS]}.get(folder, [EACH, ORACLE])
    golden = {"golden": [f"tests/golden/test_{word}.py" for word in GOLDEN[folder]]} if folder in GOLDEN else {}
    chosen = {"conformance": ["tests/test_conformance.py", "-k", of_encoding], "oracle": oracle}
    return golden | ({"own": own} if own else {}) | chosen


def caught_by(site: Site, names: list[str]) -> str | None:
    """The first selection of these in which a test fails; None: it lives."""
    text = site.text()
    for name, tests in selections(site).items():
        if name in names:
            code, said = outcome(site.file, text, tests)
            if catches(code):
                return name
            if code not in (0, NONE_SELECTED):
                raise RuntimeError(f"{site}: pytest ended with {code}: {said[-500:]}")
    return None


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--under", nargs="+", default=list(FOLDERS), choices=FOLDERS)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no other mutant after these")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--again", type=Path)
    parser.add_argument("--least", type=float, default=0.0, help="exit with 1 if a smaller share is caught")
    options = parser.parse_args(arguments)
    known = {}
    if options.again:
        records = [json.loads(line) for line in options.again.read_text().splitlines()]
        known = {record["mutant"]: record["caught"] for record in records}
    end, tried, caught = time.monotonic() + 60 * options.minutes, 0, 0
    for site in draw(options.count, options.seed, options.under):
        if time.monotonic() > end or (options.again and str(site) not in known):
            continue
        by = known.get(str(site))
        if by in (None, "golden", "own"):
            by = caught_by(site, ["golden", "own", "conformance", "oracle"])
        tried, caught = tried + 1, caught + (by is not None)
        print(f"{by or 'LIVES'}: {site}", flush=True)  # noqa: T201
        if options.record:
            with options.record.open("a") as file:
                file.write(json.dumps({"mutant": str(site), "caught": by}) + "\n")
    share = caught / max(tried, 1)
    print(f"{caught} of {tried} caught, {share:.1%}; seed {options.seed}, {' '.join(options.under)}")  # noqa: T201
    return 1 if not tried or share < options.least else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
