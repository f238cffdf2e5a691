"""The command of a report gives the numbers of the report, whatever a probe says where it is typed again."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from posenc.lab import commands, plan
from posenc.lab.repeating import repeatable
from posenc.lab.text.profiles import Settings

CHOSEN = Settings(precision="bfloat16", device="cpu")


@pytest.mark.parametrize(
    ("typed", "asked", "settled", "wanted"),
    [
        ("compare rope", Settings(), CHOSEN, "compare rope --precision bfloat16 --device cpu"),
        ("compare --precision auto rope", Settings(), CHOSEN, "compare rope --precision bfloat16 --device cpu"),
        ("cost --device=auto x", Settings(), CHOSEN, "cost x --precision bfloat16 --device cpu"),
        ("compare --device cpu", Settings(device="cpu"), CHOSEN, "compare --device cpu --precision bfloat16"),
        ("compare --data 'a b'", CHOSEN, CHOSEN, "compare --data 'a b'"),
        ("compare", CHOSEN, Settings(processes=2), "torchrun --nproc-per-node 2 -m posenc compare"),
    ],
)
def test_what_was_left_to_the_machine_is_written_out(
    typed: str, asked: Settings, settled: Settings, wanted: str
) -> None:
    expected = wanted if wanted.startswith("torchrun") else f"posenc {wanted}"
    assert repeatable(f"posenc {typed}", asked, settled) == expected


@pytest.mark.parametrize("task", ["compare", "cost"])
def test_the_recorded_command_reproduces_the_record(
    task: str, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    of_compare = "--train-length 8 --lengths 1,2 --steps 2 --batch-size 4 --windows 4 --no-cost --no-control"
    more = f"{of_compare} --data texts --runner slurm --slurm-cluster debug" if task == "compare" else "--lengths 16"
    if task == "cost":
        more += " --seconds 0.001"
    typed = [task, "nope", "--dim", "16", "--layers", "1", "--heads", "2", *more.split()]
    file = "results.jsonl" if task == "compare" else "cost.jsonl"

    def run(words: list[str], out: str) -> dict[str, object]:
        assert commands.run([*words, "--out", out]) == 0, capsys.readouterr().err
        found: dict[str, object] = json.loads((tmp_path / out / file).read_text().splitlines()[0])
        return found

    monkeypatch.setattr(plan, "choose_precision", lambda device: ("float32", "float32 (a probe)"))
    first = run(typed, "first")
    monkeypatch.setattr(plan, "choose_precision", lambda device: ("bfloat16", "bfloat16 (another day)"))
    words = shlex.split(str(first["command"]))
    assert words[:2] == ["posenc", task]
    again = run(words[1:], "again")
    assert again["settings"] == first["settings"]
    assert first["settings"]["precision"] == "float32"  # type: ignore[index]
    if task == "compare":
        assert again["bits_per_byte"] == first["bits_per_byte"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["yarn"], ["yarn stretches", "posenc compare --task extension yarn"]),
        (["rope+ntk"], ["ntk stretches", "--task extension ntk", "in rope+ntk"]),
        (["clex"], ["--task extension clex+tuned"]),
        (["--task", "passkey", "pi"], ["--task extension pi"]),
        (["--task", "images", "yarn"], ["--task extension yarn"]),
    ],
)
def test_a_scaling_is_shown_the_way(arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(["compare", *arguments]) == 2
    err = capsys.readouterr().err
    assert all(word in err for word in words), err


def test_what_the_hints_name_can_be_compared() -> None:
    from posenc.catalogue import CATALOGUE
    from posenc.lab.extension import methods
    from posenc.lab.extension.settings import ExtensionSettings
    from posenc.lab.specs import extension_hint

    hints = [extension_hint(name) for name, entry in CATALOGUE.items() if entry.stretches]
    rows = [hint.split("--task extension ")[1].split()[0] for hint in hints if hint]
    assert len(rows) > 8
    for row in rows:
        methods.check(row, ExtensionSettings())
