"""Damaged folders: each command ends in a right reading or in an error that names the file, soon and in little memory.

A case is drawn from its number (`tests.fuzz.damaged`), written to disk and given to a command in this process. Checked
of each: the exit code is one of posenc's own; an error is one line that begins with the path (a malformed block is
followed by a corrected one); JSON is JSON; no sign in the output steers a terminal and no text of a file begins a line;
what can be read of an undamaged configuration is what it says; and no file but the output is written.

The quick suite takes 300 cases, the slow test 5,000:

    POSENC_FUZZ_SEED=7 POSENC_FUZZ_COUNT=50000 pytest -m slow tests/fuzz/test_damaged_folders.py -s
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import pytest

import posenc_cli
from posenc.hf import read_rope
from posenc.hf.explanation.report import facts
from posenc_cli.exit_codes import BAD_INPUT, FAULT, OK, SUSPICION
from tests.fuzz.damaged import Case, draw

SECONDS, MEGABYTES = 5.0, 1024
SEED, COUNT = int(os.environ.get("POSENC_FUZZ_SEED", "35")), int(os.environ.get("POSENC_FUZZ_COUNT", "5000"))


class Outcome(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str
    seconds: float  # of this process on a CPU, so that other work on the machine fails nothing
    megabytes: float


class HangsError(BaseException):
    """A command does not end; no Exception, so that nobody makes a message of it."""


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise HangsError


@contextlib.contextmanager
def bounded(seconds: int) -> Iterator[None]:
    """Ends what hangs."""
    before = signal.signal(signal.SIGALRM, _stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def call(arguments: list[str]) -> Outcome:
    """A command in this process."""
    out, err = io.StringIO(), io.StringIO()
    held, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), bounded(30):
        code = posenc_cli.run(arguments)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held) / 1024
    return Outcome(code, out.getvalue(), err.getvalue(), time.process_time() - begun, grown)


def strict(text: str) -> Any:
    """JSON as every reader takes it."""

    def refuse(name: str) -> NoReturn:
        raise ValueError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def judge(case: Case, out: Path) -> Outcome:
    """Run a case; an AssertionError that says what is wrong."""
    known = {path: path.lstat().st_mtime_ns for path in case.path.parent.rglob("*")}
    arguments = [
        item.format(path=case.path, out=out) if item[0] == "{" and item[1] in "po" else item for item in case.arguments
    ]
    done = call(arguments)
    assert done.code in (OK, FAULT, BAD_INPUT, SUSPICION)
    for line in (done.out + done.err).split("\n"):
        assert line.replace("\t", "").isprintable(), f"signs that steer a terminal: {line!r:.300}"
        assert not line.startswith("PLANTED"), "a text of a file begins a line"
    assert "Traceback" not in done.err
    folder = case.path if case.path.is_dir() else case.path.parent
    if done.code == BAD_INPUT:
        errors = done.err.split("\n")
        assert errors[0].startswith("error: "), done.err[:300]
        assert str(folder) in errors[0], f"names no file: {done.err[:300]}"
        assert len(errors) == 2 or "\nfound: " in done.err, f"several lines: {done.err[:600]}"
        assert len(errors[0]) < 1000, f"long: {len(errors[0])}"
    else:
        assert not done.err, done.err[:300]
        if "--json" in arguments and "--layers" not in arguments:  # which prints a sentence a layer
            strict(done.out)
    if case.reported:
        assert done.code != OK or "note" in done.out, f"not told: {done.out[:300]}"
    if "--in-place" not in arguments:
        now = {
            path: path.lstat().st_mtime_ns for path in case.path.parent.rglob("*") if out not in (path, *path.parents)
        }
        assert now == known, f"files were written: {set(now) ^ set(known)}"
    check_reading(case, arguments, done)
    assert done.seconds < SECONDS, f"{done.seconds:.1f} s"
    assert done.megabytes < MEGABYTES, f"{done.megabytes:.0f} MB"
    return done


def check_reading(case: Case, arguments: list[str], done: Outcome) -> None:
    """What is told of the rotation is what the configuration says."""
    command = arguments[0]
    if case.config is None:
        return
    sound = as_json(facts(read_rope(case.config))["layers"])
    if command == "explain":
        assert done.code == OK, f"a sound rotation is refused: {done.err[:300]}"
        if "--json" in arguments and "--layers" not in arguments:  # which prints a sentence a layer
            assert strict(done.out)["layers"] == sound, "another rotation is told"
    elif "--in-place" not in arguments and not command.startswith("gguf"):
        assert as_json(facts(read_rope(case.path))["layers"]) == sound


def as_json(value: Any) -> Any:
    """As JSON has it."""
    return json.loads(json.dumps(value))


def run(seed: int, count: int, folder: Path) -> tuple[Counter[int], Outcome, float]:
    """How often each exit code came, the slowest case, and the most memory; fails with all that went wrong."""
    call(["doctor", str(_warm(folder))])  # what is imported at the first call is not the case's time
    seen, wrong, slowest, most = Counter[int](), [], Outcome(0, "", "", 0.0, 0.0), 0.0
    for number in range(count):
        place = folder / f"case{number}"
        (place / "model").mkdir(parents=True)
        case = draw(seed, number, place / "model")
        try:
            done = judge(case, place / "out")
        except (Exception, HangsError) as error:
            message = f"{' '.join(case.arguments)}: {case.words:.300}"
            wrong.append(f"number {number}: {message}\n{type(error).__name__}: {str(error)[:1500]}")
        else:
            seen[done.code] += 1
            slowest, most = max(slowest, done, key=lambda first: first.seconds), max(most, done.megabytes)
        shutil.rmtree(place)
    assert not wrong, f"seed {seed}: {len(wrong)} of {count}\n\n" + "\n\n".join(wrong[:40])
    return seen, slowest, most


def _warm(folder: Path) -> Path:
    path = folder / "warm"
    path.mkdir()
    (path / "config.json").write_text('{"model_type": "llama", "head_dim": 64, "rope_theta": 10000.0}')
    return path


def test_some_damaged_folders(tmp_path: Path) -> None:
    seen, _, _ = run(14, 300, tmp_path)
    assert min(seen[OK], seen[FAULT], seen[BAD_INPUT]) > 20, f"too one-sided to tell anything: {seen}"


@pytest.mark.slow
def test_damaged_folders(tmp_path: Path) -> None:
    begun = time.monotonic()
    seen, slowest, most = run(SEED, COUNT, tmp_path)
    print(  # noqa: T201
        f"{COUNT} cases of seed {SEED} in {time.monotonic() - begun:.0f} s: exit codes {dict(seen)}, "
        f"slowest {slowest.seconds:.2f} s, most memory {most:.0f} MB"
    )
