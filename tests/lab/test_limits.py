"""Numbers beyond all sense are refused by the name of their option, before anything is built, read or written."""

from __future__ import annotations

from pathlib import Path

import pytest

from posenc.lab import commands
from posenc.lab.machine import check_machine
from posenc.lab.specs import Shape, check_specs, standard_encodings
from posenc.lab.tasks import NAMES, task_named
from posenc.lab.text.profiles import Settings

HUGE = str(10**18)
NUMBERS = (
    "train-length", "steps", "batch-size", "seeds", "windows", "dim", "layers", "heads", "warmup", "checkpoint-every",
    "threads", "max-epochs", "workers", "slurm-timeout",
)  # fmt: skip


@pytest.mark.parametrize("number", [HUGE, str(2**31), "9" * 4000])
@pytest.mark.parametrize("option", NUMBERS)
def test_compare_bounds_every_number(
    option: str, number: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert commands.run(["compare", "rope", f"--{option}", number]) == 2
    err = capsys.readouterr().err
    assert f"--{option}" in err
    assert "Traceback" not in err
    assert len(err) < 400 or len(number) > 100
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "rope", "--lengths", f"1,{HUGE}"],
        ["compare", "rope", "--lengths", ",".join(map(str, range(1, 100)))],
        ["compare", "rope", "--train-length", "1000000", "--lengths", "1,65536"],
        ["compare", "rope", "--train-length", "1000000", "--batch-size", "1000000"],
        ["compare", "--task", "passkey", "--windows", HUGE],
        ["compare", "--task", "images", "--epochs", HUGE],
        ["compare", "--task", "images", "--image-size", HUGE],
        ["compare", "--task", "images", "--patch", HUGE],
        ["compare", "--task", "extension", "--fine-tune-length", HUGE],
        ["compare", "--task", "extension", "--fine-tune-steps", HUGE],
        ["compare", "--task", "extension", f"yarn@{HUGE}"],
        ["tune", "rope", "--trials", HUGE],
        ["tune", "rope", "--workers", HUGE],
        ["tune", "rope", "--steps", HUGE],
        ["cost", "rope", "--lengths", f"64,{HUGE}"],
        ["cost", "rope", "--dim", HUGE],
        ["cost", "rope", "--seconds", "1e300"],
    ],
    ids=lambda arguments: " ".join(arguments)[:60],
)
def test_every_command_bounds_its_numbers(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert commands.run(arguments) == 2
    err, option = capsys.readouterr().err, next(word for word in reversed(arguments) if word.startswith(("--", "yarn")))
    assert option in err
    assert not list(tmp_path.iterdir())


def test_what_the_profiles_say_is_within_the_bounds() -> None:
    for name in NAMES:
        for profile in ("quick", "standard", "full"):
            task_named(name).check(task_named(name).profile(profile).settings)


def test_a_model_larger_than_the_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posenc.lab.machine._memory", lambda: 2**30)
    settings = Settings(dim=16384, layers=1000, heads=128, device="cpu", precision="float32")
    with pytest.raises(ValueError, match=r"--dim 16384 and --layers 1000: .* GiB"):
        check_machine(settings, elsewhere=False)
    check_machine(settings, elsewhere=True)
    check_machine(Settings(device="cpu"), elsewhere=False)


def test_encodings_are_looked_at_without_their_numbers() -> None:
    shape = Shape(dim=16384, heads=128, layers=2, train_length=2**18)  # a table of rows would have 16 GiB
    assert check_specs(["learned", "rope+alibi"], shape) == ["learned", "rope+alibi"]
    small = Shape(dim=128, heads=4, layers=2, train_length=64)
    assert check_specs(standard_encodings(), small) == list(standard_encodings())
