"""Folders of runs that somebody else made: data to be read, never code to be run, and never a way out of the folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from posenc.lab import commands
from posenc.lab.checkpoint import Checkpoint, write_checkpoint
from posenc.lab.export.trained import find_job, load_job
from posenc.lab.files import MOST_BYTES, read_bytes, read_json, write_atomically, write_json
from posenc.lab.jobs import RESULT_FORMAT, Job, open_job, open_run, read_job, read_result, set_aside
from posenc.lab.own import Permission, own_class, permission, permitted
from posenc.lab.rates import read_tuned
from posenc.lab.results import read_measured
from posenc.lab.runners.pending import last_line
from posenc.lab.specs import Shape, build_encodings, check_specs, entry_of
from posenc.lab.tasks import to_record
from posenc.lab.text.corpus import load_corpus
from posenc.lab.worker import run_job

MakeJob = Callable[..., tuple[Job, Path]]
TRAP = (
    "import pathlib\npathlib.Path(__file__).with_name('sprung').touch()\nraise SystemExit('code of a folder was run')\n"
)
NAMES = (
    "../../out", "..", "/etc/passwd", "C:\\Windows", "rope/../..", "a\\b", "rope\n", "", "rope\0", "Ünfug",
    "rope+", "x" * 300, "mine:", ":Class", "a..b:C", "../mine:Steep", "rope@", "rope@1@2", "rope@x", 7, None, ["rope"],
    "<script>alert(1)</script>", "rope seed",
)  # fmt: skip


def rewrite(path: Path, **changed: object) -> None:
    """Change entries of a record."""
    write_json(path, {**json.loads(path.read_text()), **changed})


def finish(job: Job, folder: Path) -> None:
    """A result for a job that nobody has trained."""
    row = {"bits": [[2.0] * 4] * 3, "positions": [2.0] * 4, "bin": 8}
    training = {"parameters": 1, "encoding_parameters": 0, "bytes_per_second": 1, "loss_bits": 2, "grad_norm_median": 1}
    more = {"grad_norm_p95": 1, "grad_norm_max": 1, "clipped_share": 0, "peak_memory": 1, "seconds": 1, "steps": 12}
    result = {"identity": job.identity, "training": {**training, **more}, "rows": {job.spec: row}}
    write_json(folder / "result.json", {"format": RESULT_FORMAT, "spec": job.spec, "seed": job.seed, **result})


@pytest.fixture
def trap(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run of somebody else with a class of theirs, and one's own working folder in it."""
    _, folder = make_job("rope+evil:Encoding")
    out = folder.parent.parent
    finish(read_job(folder), folder)
    for name in ("evil.py", "torch.py", "random.py", "posenc.py"):
        (out / name).write_text(TRAP)
        (folder / name).write_text(TRAP)
    monkeypatch.chdir(out)
    return out


def sprung(out: Path) -> bool:
    return bool(list(out.rglob("sprung"))) or "evil" in sys.modules


@pytest.mark.parametrize("arguments", [["report", "."], ["report", "results.jsonl"], ["report", ".", "--out", "new"]])
def test_a_report_imports_nothing_that_a_folder_names(
    trap: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.run(["report", "."]) == 0
    assert commands.run(arguments) == 0
    assert "rope+evil:Encoding" in (trap / "table.md").read_text()
    assert not sprung(trap)


@pytest.mark.parametrize("where", [".", "jobs/rope+evil.Encoding-seed0"])
def test_an_export_imports_nothing_that_a_folder_names(
    trap: Path, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.run(["export", where, "--to", "model"]) == 2
    assert "only encodings of the catalogue are exported" in capsys.readouterr().err
    assert not sprung(trap)


def test_compare_imports_only_what_is_typed(trap: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(trap, trap.parent / "copy")
    tiny = (
        "--train-length 8 --lengths 1,2,4 --steps 1 --batch-size 4 --windows 4 --dim 16 --layers 1 --heads 2 --no-cost "
        "--data ../texts --out new --no-control --workers 1 --precision float32 --device cpu"
    )
    command = ["compare", "nope", *tiny.split()]
    assert commands.run(command) == 0, capsys.readouterr().err
    assert not sprung(trap), "a worker imports what lies in the current folder"
    assert commands.run(["compare", "evil:Encoding", *command[2:]]) == 2
    assert "evil cannot be imported" in capsys.readouterr().err
    assert (trap / "sprung").exists(), "the test needs a trap that can spring"


def test_a_worker_trains_nothing_of_others(trap: Path) -> None:
    (folder,) = (trap / "jobs").iterdir()
    (folder / "result.json").unlink()
    with pytest.raises(ValueError, match="a class of somebody's own"):
        run_job(folder, ["rope+evil:Encoding"])
    assert not sprung(trap)


def test_permission_ends_with_the_command(trap: Path, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("from posenc import ALiBi\nclass Mine(ALiBi):\n    pass\n")
    path = list(sys.path)
    with permitted(Permission(frozenset({"good:Mine"}), tmp_path)):
        assert own_class("good:Mine").__name__ == "Mine"
        with pytest.raises(ValueError, match="somebody's own"):
            own_class("evil:Encoding")
        assert permission().of(["rope"]).names == frozenset()
    assert sys.path == path
    shape = Shape(dim=16, heads=2, layers=1, train_length=8)
    for ask in (
        own_class,
        entry_of,
        lambda name: check_specs([name], shape),
        lambda name: build_encodings(name, shape),
    ):
        with pytest.raises(ValueError, match="Reading a run imports nothing"):
            ask("good:Mine")  # though it is loaded by now
    sys.modules.pop("good")
    with (
        pytest.raises(ValueError, match=r"--classes-from .*nowhere: no such folder"),
        permitted(Permission(frozenset({"good:Mine"}), tmp_path / "nowhere")),
    ):
        pass


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name)[:24])
def test_names_are_checked_before_they_are_paths(make_job: MakeJob, name: object) -> None:
    job, folder = make_job()
    out = folder.parent.parent
    finish(job, folder)
    rewrite(folder / "config.json", spec=name)
    for read in (
        lambda: read_job(folder), lambda: read_measured(out), lambda: set_aside(out, {"mine:Steep": "b"}),
        lambda: find_job(out, None, None), lambda: load_job(folder),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=re.escape(str(folder / "config.json"))):
            read()
    assert commands.run(["report", str(out)]) == 2
    assert folder.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"seed": "../../x"}, {"seed": -1}, {"seed": True}, {"seed": 10**18}, {"seed": 1.5}, {"trial": "../../x"},
        {"trial": "/tmp"}, {"trial": 3}, {"code": {"../mine:X": "a"}}, {"code": {"mine": "a"}}, {"code": ["mine:X"]},
        {"corpus": {"a": 1}}, {"versions": "1"}, {"versions": {"torch": "\x1b[2J"}}, {"tuned": {"lr": -1.0}},
        {"tuned": {"x": 1.0}}, {"tuned": 5}, {"settings": 5}, {"settings": {"task": "../text"}},
        {"settings": {"task": 1}},
    ],
    ids=str,
)  # fmt: skip
def test_every_entry_of_a_job_is_checked(make_job: MakeJob, change: dict[str, Any]) -> None:
    _, folder = make_job()
    rewrite(folder / "config.json", **change)
    with pytest.raises(ValueError, match=re.escape(str(folder / "config.json"))):
        read_job(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"dim": "16"}, {"dim": 10**18}, {"layers": 2**31}, {"steps": 1.5}, {"lr": "x"}, {"lr": 1e308 * 2 > 0},
        {"device": 5}, {"device": "x" * 5000}, {"lengths": [1, "2"]}, {"lengths": 5}, {"lengths": [1, 10**18]},
        {"compile": 1}, {"no_such": 1}, {"heads": 0}, {"train_length": 10**18},
    ],
    ids=str,
)  # fmt: skip
def test_every_number_of_a_job_is_checked(make_job: MakeJob, change: dict[str, Any]) -> None:
    job, folder = make_job()
    rewrite(folder / "config.json", settings={**to_record(job.settings), **change})
    with pytest.raises(ValueError, match=re.escape(str(folder / "config.json"))):
        read_job(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"rows": {"../x": {}}}, {"rows": {"rope": 3}}, {"rows": []}, {"training": {"loss_bits": "x"}}, {"training": []},
        {"machine": {"processor": ["x"]}}, {"machine": {"a": "\x1b]0;x\x07"}},
    ],
    ids=str,
)  # fmt: skip
def test_every_entry_of_a_result_is_checked(make_job: MakeJob, change: dict[str, Any]) -> None:
    job, folder = make_job()
    finish(job, folder)
    rewrite(folder / "result.json", **change)
    with pytest.raises(ValueError, match=re.escape(str(folder / "result.json"))):
        read_result(folder, job)


def test_rows_that_are_no_measurements_are_refused_by_name(
    make_job: MakeJob, capsys: pytest.CaptureFixture[str]
) -> None:
    job, folder = make_job()
    out = folder.parent.parent
    finish(job, folder)
    for row in ({}, {"bits": 5}, {"bits": [["x"]]}, {"bits": [], "positions": [], "bin": 0}):
        rewrite(folder / "result.json", rows={"rope": row})
        assert commands.run(["report", str(out)]) == 2, row
        assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [{"encoding": "../../x"}, {"encoding": "mine:X/.."}, {"runs": 5}, {"runs": [{"seed": "../x"}]}, {"versions": []},
     {"corpus": {"name": "x"}}, {"settings": {"task": "posenc.lab.worker"}}, {"machine": {"a": {}}}, {"rates": [1]}],
    ids=str,
)  # fmt: skip
def test_every_entry_of_results_is_checked(
    make_job: MakeJob, change: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job, folder = make_job()
    finish(job, folder)
    assert commands.run(["report", str(folder.parent.parent), "--out", str(tmp_path / "report")]) == 0
    file = tmp_path / "report" / "results.jsonl"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}) + "\n")
    assert commands.run(["report", str(file), "--out", str(tmp_path / "again")]) == 2
    assert f"error: {file}" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()


def test_links_are_not_followed_out_of_the_folder(make_job: MakeJob, tmp_path: Path) -> None:
    job, folder = make_job()
    out, victim = folder.parent.parent, tmp_path / "victim"
    victim.mkdir()
    precious = victim / "precious"
    precious.write_text("mine")
    for name in ("log.txt", "metrics.jsonl", "lock", "config.json"):
        link = folder / name
        kept = link.read_bytes() if link.exists() else None
        link.unlink(missing_ok=True)
        link.symlink_to(precious)
        with pytest.raises(ValueError, match=f"{name} is a link"):
            open_job(out, job)
        link.unlink()
        if kept is not None:
            link.write_bytes(kept)
    folder.rename(victim / folder.name)
    folder.symlink_to(victim / folder.name)
    for use in (lambda: open_job(out, job), lambda: read_measured(out), lambda: set_aside(out, {"mine:S": "b"})):
        with pytest.raises(ValueError, match="is a link"):
            use()
    shutil.rmtree(out / "corpus")
    (out / "corpus").symlink_to(victim)
    with pytest.raises(ValueError, match="corpus is a link"):
        open_run(out, job.settings, job.corpus, job.versions)
    assert precious.read_text() == "mine"
    assert sorted(path.name for path in victim.iterdir()) == ["precious", folder.name]


def test_what_is_written_takes_the_place_of_a_link(tmp_path: Path) -> None:
    precious, table = tmp_path / "precious", tmp_path / "table.md"
    precious.write_text("mine")
    table.symlink_to(precious)
    write_atomically(table, b"new")
    assert (precious.read_text(), table.read_text()) == ("mine", "new")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no such files here")
def test_pipes_devices_and_huge_files_are_not_waited_for(tmp_path: Path) -> None:
    pipe, huge, nested = tmp_path / "pipe.json", tmp_path / "huge.json", tmp_path / "nested.json"
    os.mkfifo(pipe)
    with huge.open("wb") as file:
        file.truncate(MOST_BYTES + 1)  # of holes: it takes no room
    nested.write_text("[" * 200_000)
    zero = tmp_path / "zero.json"
    zero.symlink_to("/dev/zero")
    for path, words in ((pipe, "no plain file"), (zero, "no plain file"), (huge, "more than"), (nested, "not JSON")):
        with pytest.raises(ValueError, match=words):
            read_json(path, ())
    with pytest.raises(ValueError, match="is a folder"):
        read_bytes(tmp_path)
    log = tmp_path / "log.txt"
    with log.open("wb") as file:
        file.truncate(2**33)
        file.seek(2**33)
        file.write(b"\nerror: the end\n")
    assert last_line(log) == "error: the end"


def test_a_corpus_of_others_is_checked(make_job: MakeJob) -> None:
    _, folder = make_job()
    corpus = folder.parent.parent / "corpus"
    whole = json.loads((corpus / "corpus.json").read_text())
    for change in (
        {"spans": [[0, 10**18]]}, {"spans": [[5, 1]]}, {"spans": ["ab"]}, {"spans": 5}, {"facts": {}},
        {"facts": {**whole["facts"], "train_bytes": "9"}}, {"facts": {**whole["facts"], "name": "\x1b[2J"}},
    ):  # fmt: skip
        write_json(corpus / "corpus.json", {**whole, **change})
        with pytest.raises(ValueError, match=re.escape(str(corpus / "corpus.json"))):
            load_corpus(corpus)
    write_json(corpus / "corpus.json", whole)
    with (corpus / "train.bin").open("r+b") as file:
        file.truncate(2**40)
    with pytest.raises(ValueError, match=r"train\.bin has .* bytes, more than"):
        load_corpus(corpus)


@pytest.mark.parametrize("encodings", [{"../x": {"lr": 2.0}}, {"rope": {"lr": 0}}, {"rope": 5}, ["rope"], 5], ids=str)
def test_tuned_rates_of_others_are_checked(tmp_path: Path, encodings: object) -> None:
    write_json(tmp_path / "tuned.json", {"format": "posenc-lab-tuned/1", "encodings": encodings})
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / "tuned.json"))):
        read_tuned(tmp_path)


@pytest.mark.parametrize("model", [{}, {"embed.weight": 5}, 7])
def test_weights_of_another_model_are_refused_by_name(make_job: MakeJob, model: Any) -> None:
    import torch

    job, folder = make_job()
    some = torch.ones(12)
    write_checkpoint(folder / "checkpoint.pt", Checkpoint(job.identity, 12, model, {}, some, some, 1.0, 1))
    with pytest.raises(ValueError, match=re.escape(str(folder / "checkpoint.pt"))):
        load_job(folder)


def test_names_in_a_model_s_configuration_are_of_the_catalogue() -> None:
    pytest.importorskip("transformers")
    from posenc.hf.modeling import PosencConfig

    for given in (
        "os:system",
        "evil:Encoding",
        "../rope",
        [{"name": "os:system"}],
        [{"name": "rope", "module": "evil"}],
    ):
        with pytest.raises(ValueError, match=r"no encoding is named|name is needed"):
            PosencConfig(encodings=given).lines()
    assert "evil" not in sys.modules
