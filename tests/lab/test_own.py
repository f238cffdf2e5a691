"""Classes of one's own: what is known of them, what is refused, who may import them, and a run that knows versions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab.conftest import numbers, run

from posenc.lab import commands
from posenc.lab.plugins import ImportAllowlist, allow_imports, encoding_class, import_allowlist
from posenc.lab.run.folder import read_run
from posenc.lab.specs import Shape, build_encodings, check_specs, ends_at_table, entry_of, plugin_hashes

SHAPE = Shape(dim=16, heads=2, layers=2, train_length=8)
PLUGINS = '''
import sys

import torch

from posenc import ALiBi, Learned, RoPE, ScoreEncoding


class Steep(ScoreEncoding):
    """Takes from a score what a learned slope makes of the distance.

    No more.
    """

    shared_by_layers, lr_multiplier = False, 5.0

    def __init__(self, num_heads):
        super().__init__()
        self.slope = torch.nn.Parameter(torch.full((num_heads, 1, 1), 0.1))

    def forward(self, scores, context):
        distance = context.q_pos.unsqueeze(-1) - context.k_pos.unsqueeze(-2)
        return scores - self.slope * distance.abs()


class Rows(Learned):
    """Its rows end."""


class Flat(RoPE):
    axes = 2


class Wanting(ALiBi):
    def __init__(self, num_heads, window):
        super().__init__(num_heads)


class Broken(ALiBi):
    def __init__(self, num_heads):
        raise RuntimeError("out of ink")


some_number = 3
'''
TRAP = (
    "import pathlib\npathlib.Path(__file__).with_name('sprung').touch()\nraise SystemExit('code of a folder was run')\n"
)
REFUSED = (
    ("nowhere:Class", "nowhere:Class: nowhere cannot be imported from .*: No module named 'nowhere'"),
    ("mine:some_number", "no class of this name"),
    ("posenc.encoding:Encoding", "there is no class of this name that is one of"),
    ("../mine:Steep", r"\.\./mine:Steep: an own class is named as it is imported"),
    ("mine.py:Steep", "mine.py cannot be imported"), ("mine:", "an own class is named"),
    ("mine:Steep:Steep", "an own class is named"),
    ("rope+mine:Wanting", r"rope\+mine:Wanting: mine:Wanting cannot be built .* needs window"),
    ("mine:Broken", "mine:Broken cannot be built from what compare passes .dim, .*: RuntimeError: out of ink"),
    ("mine:Flat", "mine:Flat: positions of Flat have 2 coordinates, positions of this task 1"),
)  # fmt: skip


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with ``mine.py`` that one works in; nothing imported from it stays."""
    (tmp_path / "mine.py").write_text(PLUGINS)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("mine", "evil", "good"):
        sys.modules.pop(name, None)


def test_facts_of_a_plugin(plugins: Path) -> None:
    with allow_imports(ImportAllowlist(frozenset({"mine:Steep", "mine:Rows"}), plugins)):
        entry = entry_of("mine:Steep")
        assert (entry.name, entry.hook_point, entry.shared, entry.lr_multiplier) == ("mine:Steep", "score", False, 5.0)
        assert entry.title == "Takes from a score what a learned slope makes of the distance."
        assert ends_at_table("rope+mine:Rows")  # inherited
        built = build_encodings("alibi+mine:Steep", SHAPE)
        (first, first_encoding), (second, two) = built.attention
        assert first is second
        assert first_encoding is not two
        assert built.lr_multipliers == {first_encoding.slope: 5.0, two.slope: 5.0}
        assert check_specs([" RoPE + mine:Steep "], SHAPE) == ["rope+mine:Steep"]
        code = plugin_hashes(["rope", "alibi+mine:Steep"])
        assert list(code) == ["mine:Steep"]
        (plugins / "mine.py").write_text(PLUGINS.replace("0.1", "0.2"))
        assert plugin_hashes(["mine:Steep"]) != code


@pytest.mark.parametrize(("spec", "words"), REFUSED)
def test_plugins_that_cannot_be_trained_are_refused(plugins: Path, spec: str, words: str) -> None:
    (plugins / "torn.py").write_text("class Class(:")
    (plugins / "script.py").write_text("raise SystemExit(3)")
    names = frozenset(name for spec, _ in REFUSED for name in spec.split("+"))
    with allow_imports(ImportAllowlist(names, plugins)), pytest.raises(ValueError, match=words):
        check_specs([spec], SHAPE)


def test_permission_ends_with_the_command(plugins: Path) -> None:
    (plugins / "good.py").write_text("from posenc import ALiBi\nclass Mine(ALiBi):\n    pass\n")
    path = list(sys.path)
    with allow_imports(ImportAllowlist(frozenset({"good:Mine"}), plugins)):
        assert encoding_class("good:Mine").__name__ == "Mine"
        with pytest.raises(ValueError, match="somebody's own"):
            encoding_class("evil:Encoding")
        assert import_allowlist().of(["rope"]).names == frozenset()
    assert sys.path == path
    for ask in (encoding_class, entry_of, lambda name: check_specs([name], SHAPE)):
        with pytest.raises(ValueError, match="Reading a run imports nothing"):
            ask("good:Mine")  # though it is loaded by now
    with (
        pytest.raises(ValueError, match=r"--classes-from .*nowhere: no such folder"),
        allow_imports(ImportAllowlist(frozenset({"good:Mine"}), plugins / "nowhere")),
    ):
        pass


def test_a_changed_class_is_another_run(plugins: Path, here: None, capsys: pytest.CaptureFixture[str]) -> None:
    out = plugins / "run"
    assert run(out, encodings=["rope", "mine:Steep"]) == 0
    before = numbers(out)
    (plugins / "mine.py").write_text(PLUGINS.replace("distance.abs()", "distance.abs().float().sqrt()"))
    assert run(out, encodings=["rope", "mine:Steep"]) == 2
    assert "code mine:Steep" in capsys.readouterr().err
    assert numbers(out) == before


@pytest.mark.slow  # test_extending has the same of reports
def test_workers_and_reports_import_only_what_is_typed(plugins: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder of somebody else with a class of theirs, and one's own working folder in it."""
    assert run(plugins / "run", encodings=["mine:Steep"]) == 0
    for name in ("mine", "evil", "torch", "random", "posenc"):
        for folder in (plugins, plugins / "run", *(plugins / "run" / "jobs").iterdir()):
            (folder / f"{name}.py").write_text(TRAP)
    sys.modules.pop("mine")
    assert commands.run(["report", "run", "--out", "again"]) == 0
    assert "mine:Steep" in (plugins / "again" / "table.md").read_text()
    assert run(plugins / "new", encodings=["nope"]) == 0, capsys.readouterr().err
    assert commands.run(["export", "run", "--to", "model"]) == 2
    assert not list(plugins.rglob("sprung")), "code of a folder was run"
    assert set(read_run(plugins / "new").records["spec"].astype(str)) == {"nope"}
    assert run(plugins / "more", encodings=["evil:Encoding"]) == 2
    assert "evil cannot be imported" in capsys.readouterr().err
    assert (plugins / "sprung").exists(), "the test needs a trap that can spring"
