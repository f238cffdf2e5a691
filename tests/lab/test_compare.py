"""The main job as a user runs it: to its report, killed and continued, under torchrun, through submitit."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import posenc
from posenc.lab import commands
from posenc.lab.jobs import Job
from posenc.lab.text.profiles import Settings

TINY = (
    "--train-length 8 --lengths 1,2,4 --steps 60 --batch-size 4 --windows 4 --dim 16 --layers 1 --heads 2 "
    "--no-cost --precision float32 --device cpu --checkpoint-every 1 --workers 2"
)
QUALITY = ("encoding", "seeds", "bits_per_byte", "change", "change_error", "verdict", "loss_by_position")


def arguments(texts: Path, out: Path, *more: str, encodings: Sequence[str] = ("rope", "t5")) -> list[str]:
    """A command line that takes seconds."""
    return ["compare", *encodings, "--data", str(texts), "--out", str(out), *TINY.split(), *more]


def quality(out: Path) -> list[dict[str, object]]:
    """The numbers of results.jsonl that no clock has a part in."""
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    return [{key: row[key] for key in QUALITY} for row in rows]


def quality_table(out: Path) -> list[str]:
    """The first table of table.md."""
    lines = (out / "table.md").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| encoding"))
    return lines[start : lines.index("", start)]


@pytest.fixture(scope="module")
def texts(once: Callable[[str, Callable[[Path], None]], Path], write_texts: Callable[[Path], Path]) -> Path:
    """Texts, and beside them a run of them."""

    def make(folder: Path) -> None:
        assert commands.run(arguments(write_texts(folder / "texts"), folder / "undisturbed")) == 0

    return once("compare", make) / "texts"


@pytest.fixture(scope="module")
def undisturbed(texts: Path) -> Path:
    """A finished run of rope and t5 by two workers, not to be changed."""
    return texts.parent / "undisturbed"


def test_a_run_ends_with_its_report(undisturbed: Path) -> None:
    rows = {row["encoding"]: row for row in quality(undisturbed)}
    assert set(rows) == {"rope", "rope+window", "t5"}  # the control comes with every table
    table = (undisturbed / "table.md").read_text()
    for words in ("zlib -9", "lzma", "entropy", f"--out {undisturbed}", "torch", "SHA-256", "Flat is the best"):
        assert words in table
    for name in ("report.html", "bits_by_length.png", "loss_by_position.png"):
        assert (undisturbed / name).stat().st_size > 10_000
    assert not list(undisturbed.glob("jobs/*/progress.json"))


def test_the_same_command_again_trains_nothing_and_writes_the_report_again(
    undisturbed: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shutil.copytree(undisturbed, tmp_path / "run")
    written = {path: path.stat().st_mtime_ns for path in out.glob("jobs/*/checkpoint.pt")}
    (out / "report.html").unlink()
    (out / "results.jsonl").unlink()
    assert commands.run(arguments(texts, out)) == 0
    assert "finished already" in capsys.readouterr().out
    assert (out / "report.html").exists()
    assert quality(out) == quality(undisturbed)
    assert {path: path.stat().st_mtime_ns for path in out.glob("jobs/*/checkpoint.pt")} == written


@pytest.mark.slow
def test_costs_are_measured_once_when_all_jobs_are_done(undisturbed: Path, texts: Path, tmp_path: Path) -> None:
    out = shutil.copytree(undisturbed, tmp_path / "run")
    assert "cost-time" not in (out / "report.html").read_text()
    assert commands.run(arguments(texts, out, "--cost")) == 0
    measured = (out / "cost.jsonl").read_bytes()
    assert {json.loads(line)["encoding"] for line in measured.splitlines()[1:]} == {"nope", "rope", "t5"}
    assert "cost-time" in (out / "report.html").read_text()
    assert commands.run(arguments(texts, out, "--cost")) == 0
    assert (out / "cost.jsonl").read_bytes() == measured


@pytest.mark.parametrize(
    ("more", "words"),
    [(["--lr", "0.5"], "lr 0.002 there, 0.5 here"), (["--lengths", "1,2"], "lengths [1, 2, 4] there")],
)
def test_another_configuration_is_refused(
    undisturbed: Path, texts: Path, more: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (undisturbed / "results.jsonl").read_bytes()
    assert commands.run(arguments(texts, undisturbed, *more)) == 2
    err = capsys.readouterr().err
    assert words in err
    assert len(err.splitlines()) == 1
    assert (undisturbed / "results.jsonl").read_bytes() == before


def test_another_text_is_refused(
    undisturbed: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = shutil.copytree(texts, tmp_path / "texts")
    (other / "more.txt").write_text("another text " * 50)
    assert commands.run(arguments(other, undisturbed)) == 2
    assert "sha256" in capsys.readouterr().err


def test_a_probe_is_not_repeated(undisturbed: Path, texts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(arguments(texts, undisturbed, "--precision", "auto", "--device", "auto")) == 0
    assert "Precision: float32, as in this folder's run" in capsys.readouterr().out


def test_the_control_can_be_left_out_and_other_controls_asked_for(texts: Path, tmp_path: Path) -> None:
    more = ("--no-control", "--runner", "slurm", "--slurm-cluster", "debug")
    assert commands.run(arguments(texts, tmp_path / "run", *more, encodings=["nope+window"])) == 0
    assert {row["encoding"] for row in quality(tmp_path / "run")} == {"nope", "nope+window"}


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["parent", "worker"])
def test_killed_at_a_random_moment_the_same_command_ends_with_the_same_table(
    undisturbed: Path, texts: Path, tmp_path: Path, victim: str, here_alone: None
) -> None:
    out, delay = tmp_path / "run", random.uniform(0, 0.5)
    process = _start(arguments(texts, out, "--workers", "1"), tmp_path / "log")
    _wait_for(lambda: list(out.glob("jobs/*/checkpoint.pt")))
    time.sleep(delay)
    target = process.pid if victim == "parent" else _a_child_of(process.pid)
    if target is not None:
        os.kill(target, signal.SIGKILL)
    code = process.wait(timeout=300)
    log = (tmp_path / "log").read_text()
    if victim == "worker" and target is not None:
        assert code == 0, log
        assert "it is taken up again" in " ".join(log.split())
    assert commands.run(arguments(texts, out)) == 0, f"killed after {delay} s"
    assert quality(out) == quality(undisturbed), f"killed after {delay} s"
    assert quality_table(out) == quality_table(undisturbed), f"killed after {delay} s"


PARENT = """import os, subprocess, sys
worker = subprocess.Popen([*sys.argv[1:], "--parent", str(os.getpid())])
print(worker.pid, flush=True)
worker.wait()"""


@pytest.mark.slow
def test_workers_end_when_their_parent_was_killed(
    make_job: Callable[..., tuple[Job, Path]], tiny: Settings, tmp_path: Path
) -> None:
    _, folder = make_job("nope", settings=dataclasses.replace(tiny, steps=100_000, checkpoint_every=1))
    worker = [sys.executable, "-m", "posenc.lab.worker", str(folder), "--rows", "nope"]
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", PARENT, *worker], env=_environment(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    _wait_for((folder / "checkpoint.pt").exists)
    assert not _is_zombie(child)
    process.kill()
    process.wait()
    _wait_for(lambda: not Path(f"/proc/{child}/exe").exists() or _is_zombie(child))


@pytest.mark.slow  # test_endings has the same in the process of the test
def test_interrupted_it_stops_its_workers_and_says_how_to_go_on(texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    typed = arguments(texts, out, "--steps", "100000", encodings=["rope"])
    process = _start(typed, tmp_path / "log")
    _wait_for(lambda: list(out.glob("jobs/*/checkpoint.pt")))
    child = _a_child_of(process.pid)
    assert child is not None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=300) == 130
    last = (tmp_path / "log").read_text().splitlines()[-1]
    assert last.startswith("stopped: nothing is lost; to go on: posenc compare rope")
    assert not Path(f"/proc/{child}").exists()
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_under_torchrun_two_processes_train_each_job_together(undisturbed: Path, texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "posenc"]
    done = subprocess.run(
        [sys.executable, *launcher, *arguments(texts, out)],
        env=_environment(), capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Written to") == 1
    assert json.loads((out / "run.json").read_text())["settings"]["processes"] == 2
    # Two ranks share each batch, so the training is that of one process, up to rounding.
    alone = {row["encoding"]: row["bits_per_byte"] for row in quality(undisturbed)}
    together = {row["encoding"]: row["bits_per_byte"] for row in quality(out)}
    assert together.keys() == alone.keys()
    for name, bits in together.items():
        assert bits == pytest.approx(alone[name], abs=1e-3)


@pytest.mark.slow
def test_under_torchrun_bad_input_is_one_line(undisturbed: Path, texts: Path) -> None:
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "posenc"]
    refused = subprocess.run(
        [sys.executable, *launcher, *arguments(texts, undisturbed)],
        env=_environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert refused.returncode != 0
    assert refused.stderr.count("error: ") == 1
    assert "processes 1 there, 2 here" in refused.stderr


@pytest.mark.parametrize("cluster", ["debug", "local"])
@pytest.mark.slow
def test_submitit_brings_jobs_to_the_same_numbers(undisturbed: Path, texts: Path, tmp_path: Path, cluster: str) -> None:
    more = ("--runner", "slurm", "--slurm-cluster", cluster)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _environment().items():
            patch.setenv(name, value)
        assert commands.run(arguments(texts, tmp_path / "run", *more)) == 0
    assert quality(tmp_path / "run") == quality(undisturbed)


def test_a_failing_job_is_named_and_the_others_are_reported(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("--lr", "1e30", "--clip", "1e30")
    assert commands.run(arguments(texts, tmp_path / "run", *more, encodings=["rope"])) == 1
    err = capsys.readouterr().err
    assert "error: rope-seed0: loss or gradient is not finite" in err
    assert "Traceback" not in err
    assert "Traceback" in (tmp_path / "run" / "jobs" / "rope-seed0" / "log.txt").read_text()


@pytest.mark.parametrize("name", ["checkpoint.pt", "result.json", "config.json"])
def test_a_truncated_file_stops_the_run_before_it_starts(
    undisturbed: Path, texts: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shutil.copytree(undisturbed, tmp_path / "run")
    path = out / "jobs" / "rope-seed0" / name
    content = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(content)
    if name == "checkpoint.pt":
        (path.parent / "result.json").unlink()
    assert commands.run(arguments(texts, out)) == 2
    err = capsys.readouterr().err
    assert str(path) in err
    assert len(err.splitlines()) == 1
    assert path.read_bytes() == content


def _environment() -> dict[str, str]:
    """An environment in which a new process finds this posenc, wherever it starts."""
    return {**os.environ, "PYTHONPATH": str(Path(posenc.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


def _start(typed: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("w") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "posenc", *typed], env=_environment(), stdout=file, stderr=file,
            preexec_fn=_heed_interrupts,
        )  # fmt: skip


def _heed_interrupts() -> None:
    """A shell without a terminal starts what it puts in the background deaf to SIGINT, and that is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _wait_for(condition: Callable[[], object], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.02)


def _a_child_of(pid: int) -> int | None:
    """A worker of a run, None if all have ended."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
            command = (path.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == pid and b"posenc.lab.worker" in command:
            return int(path.parent.name)
    return None


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True
