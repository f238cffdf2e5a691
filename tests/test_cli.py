"""The command line: what it shows, and one clear line with exit code 2 for whatever is wrong with its input."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import posenc
from posenc import cli
from posenc.lab import commands

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run a command line in this process: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: str) -> tuple[int, str, str]:
        code = commands.run(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text("call me ishmael, some years ago " * 1000)
    return path


def _one_line(outcome: tuple[int, str, str], *words: str) -> None:
    code, _, err = outcome
    assert code == 2
    assert len(err.splitlines()) == 1, err
    assert err.startswith("error: ")
    assert "Traceback" not in err
    for word in words:
        assert word in err


def test_list_names_every_encoding(call: Call) -> None:
    code, out, _ = call("list")
    assert code == 0
    assert all(name in out for name in posenc.list_encodings())


def test_info_tells_formula_source_parameters_and_cost(call: Call) -> None:
    code, out, _ = call("info", "t5")
    entry = posenc.info("t5")
    flat = " ".join(out.split())
    assert code == 0
    assert all(fact in flat for fact in (entry.formula, entry.source, entry.parameters, entry.cost))


def test_version(call: Call) -> None:
    assert call("--version")[:2] == (0, f"posenc {posenc.__version__}\n")


def test_help_names_the_commands(call: Call) -> None:
    code, out, _ = call("--help")
    assert code == 0
    assert all(name in out for name in ("compare", "list", "info"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["info", "rop"], ["rop", "rope"]),
        (["info"], ["name"]),
        (["compair"], ["compair"]),
        (["compare", "ropee"], ["ropee", "rope"]),
        (["compare", "rope+albi"], ["albi", "alibi"]),
        (["compare", "--profile", "quik"], ["quik", "quick"]),
        (["compare", "--lengths", "1,4,2"], ["--lengths", "grow"]),
        (["compare", "--lengths", "1,x"], ["--lengths"]),
        (["compare", "--train-length", "63"], ["--train-length", "even"]),
        (["compare", "--steps", "many"], ["--steps", "integer"]),
        (["compare", "--nonsense", "1"], ["--nonsense"]),
        (["compare", "--data", "nowhere"], ["nowhere"]),
        (["compare", "--data", "empty.txt"], ["empty.txt", "empty"]),
        (["compare", "--data", "short.txt"], ["too short", "1025", "9000"]),
        (["compare", "--data", "binaries"], ["binaries", "no text"]),
        (["compare", "--data", "book.txt", "--windows", "4", "--out", "book.txt"], ["--out book.txt"]),
        (["compare", "--data", "book.txt", "--windows", "4", "--out", "/proc/no"], ["--out /proc/no"]),
        (["compare", "--data", "book.txt", "--windows", "4", "--out", "binaries"], ["binaries", "not empty"]),
        (["compare", "--data", "book.txt", "--windows", "4", "--device", "tpu"], ["--device tpu"]),
        (
            ["compare", "--data", "book.txt", "--windows", "4", "--device", "xla", "--runner", "slurm"],
            ["--precision auto", "float32 or bfloat16"],
        ),
        (["compare", "--workers", "0"], ["--workers 0"]),
        (["compare", "--runner", "moon"], ["--runner moon", "ray"]),
        (["compare", "--slurm-cluster", "moon"], ["--slurm-cluster moon"]),
        (["compare", "rope", "--dim", "12", "--heads", "4"], ["rope: ", "even"]),
    ],
)
def test_bad_input_is_one_line(call: Call, text: Path, arguments: list[str], words: list[str]) -> None:
    folder = text.parent
    (folder / "empty.txt").write_text("")
    (folder / "short.txt").write_text("a" * 9000)
    (folder / "binaries").mkdir()
    (folder / "binaries" / "image.png").write_bytes(b"\x89PNG\xff")
    _one_line(call(*arguments), *words)
    assert not (folder / "posenc-compare").exists() or not list(folder.glob("posenc-compare/*/jobs/*"))


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_folder_that_cannot_be_written_is_refused(call: Call, text: Path) -> None:
    folder = text.parent / "locked"
    folder.mkdir(mode=0o500)
    _one_line(call("compare", "--data", str(text), "--windows", "4", "--out", str(folder)), "not writable")


def test_a_folder_without_permission_is_refused_for_root_too(
    call: Call, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    _one_line(call("compare", "--data", str(text), "--windows", "4", "--out", "x"), "--out x", "not writable")


def test_without_the_extra_one_line_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__
    for name in [name for name in sys.modules if name.startswith(("posenc.lab", "typer"))]:
        monkeypatch.delitem(sys.modules, name)

    def missing(name: str, *rest: object) -> object:
        if name.split(".")[0] == "typer":
            raise ModuleNotFoundError("No module named 'typer'", name="typer")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert "pip install 'posenc[lab]'" in err


def test_python_dash_m_works() -> None:
    source = str(Path(posenc.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "posenc", "info", "rop"],
        env={**os.environ, "PYTHONPATH": source}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
