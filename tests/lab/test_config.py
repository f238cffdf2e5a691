"""Numbers: each within its bounds, each an option of the command line, and the same again from a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.lab.conftest import tiny

from posenc.lab import commands
from posenc.lab.cli_options import chosen
from posenc.lab.config import Config, config_of
from posenc.lab.specs import plugin_hashes
from posenc.lab.tasks import TASKS, task_named
from posenc.lab.tasks.task import PROFILES

HUGE = "1000000000000000000"


@pytest.mark.parametrize("name", TASKS)
def test_every_number_of_every_profile_comes_back_from_its_record(name: str) -> None:
    task = task_named(name)
    for profile in PROFILES:
        config = task.profile(profile).config
        config.check()
        task.check(config)
        assert plugin_hashes(task.profile(profile).encodings) == {}  # rows of the house are nobody's own classes
        record = json.loads(json.dumps(config.record()))
        assert config_of(record, lambda name: task.options, Path("x")) == config
        assert not set(config.deciding()) & {"checkpoint_every", "threads", "device", "processes"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dim": 0}, "--dim 0"), ({"lr": 0.0}, "--lr 0.0"), ({"precision": "half"}, "--precision half"),
        ({"lengths": ()}, "--lengths"), ({"lengths": (1, 4, 2)}, "--lengths"), ({"lr": float("nan")}, "--lr nan"),
        ({"dim": 18, "heads": 4}, "--heads 4"), ({"batch_size": 5, "processes": 2}, "2 processes"),
    ],
)  # fmt: skip
def test_numbers_out_of_bounds_name_their_option(change: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tiny(**change).check()


def given(*words: str) -> Config:
    """The tiny configuration with options of the command line."""
    return chosen(commands.parser_of("compare").parse_intermixed_args(words), tiny())


def test_numbers_of_another_task_are_refused() -> None:
    with pytest.raises(ValueError, match="--patch: --task copy has no such number"):
        tiny(patch=2)
    with pytest.raises(ValueError, match=r"--set patch=2: NAME=VALUE is needed, with one of .*dim"):
        given("--set", "patch=2")
    config = given("--dim", "32", "--set", "lag=3", "--set", "lengths=1,3", "--set", "compile=true")
    assert (config.model.dim, config.evaluation.lengths, config.training.compile) == (32, (1, 3), True)
    assert config.deciding()["lag"] == 3
    for text in ("lag=x", "lengths=1,x", "compile=1"):
        with pytest.raises(ValueError, match=f"--{text.partition('=')[0]}"):
            given("--set", text)


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "rope", "--dim", HUGE], ["compare", "rope", "--seeds", HUGE], ["compare", "rope", "--workers", "0"],
        ["compare", "rope", "--lengths", f"1,{HUGE}"], ["compare", "rope", "--lengths", "1,x"],
        ["compare", "rope", "--slurm-timeout", "5"], ["compare", "--task", "passkey", "--windows", HUGE],
        ["compare", "--task", "images", "--epochs", HUGE], ["compare", "--task", "images", "--patch", HUGE],
        ["compare", "rope", "--profile", "quik"],
        ["compare", "rope", "--task", "passky"], ["compare", "rope", "--executor", "slrm"],
        ["compare", "yarn", "--task", "passkey"], ["compare", "axial", "--task", "copy"],
        ["compare", "rope", "--train-length", "1000000", "--lengths", "1,65536"],
    ],
    ids=lambda arguments: " ".join(arguments)[:60],
)  # fmt: skip
def test_what_cannot_be_is_said_in_one_line_before_anything_is_written(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert commands.run(arguments) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert err.startswith("error: ")
    assert not list(tmp_path.iterdir())
