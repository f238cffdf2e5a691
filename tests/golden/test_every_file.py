"""Every file of golden numbers is compared: by a table of this folder, or by a test that is named here."""

from __future__ import annotations

import shutil
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests import golden
from tests.golden import (
    files,
    names,
    test_attention,
    test_biases,
    test_embeddings,
    test_frequencies,
    test_positions,
    test_rotations,
    test_scores,
)

TABLES = (test_attention, test_biases, test_embeddings, test_frequencies, test_positions, test_rotations, test_scores)
ELSEWHERE = {  # what is compared beside more of the same subject
    "authors_rope": "test_reference_formulas.py",
    "drope_*": "test_drope.py",
    "foxlayer_pro": "test_fox_pro.py",
    "longrope_search_*": "test_longrope.py",
    "rotary_peer_kernels": "test_functional.py",
    "diffusion/*": "test_presets.py",
}
TESTS = Path(__file__).parents[1]


def compared() -> set[str]:
    """The files of all tables."""
    found: set[str] = set()
    for module in TABLES:
        test = getattr(module, module.__name__.rpartition(".")[2])
        (mark,) = (mark for mark in test.pytestmark if mark.name == "parametrize")
        found |= {case.values[1] for case in mark.args[1]}
    return found


def test_every_file_is_compared() -> None:
    left = {name for name in files() if not any(fnmatch(name, pattern) for pattern in ELSEWHERE)}
    assert not left - compared()


@pytest.mark.parametrize("pattern", ELSEWHERE)
def test_who_compares_the_others(pattern: str) -> None:
    assert names(pattern)
    (path,) = TESTS.rglob(ELSEWHERE[pattern])
    assert f'"{pattern}"' in path.read_text()


def test_a_file_that_is_written_again_is_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = golden.HERE / "embedding.npz"
    shutil.copy(before, tmp_path)
    monkeypatch.setattr(golden, "HERE", tmp_path)
    for name in names("sinusoidal_*"):
        golden.save(name, golden.load(name, None), golden.config(name))
    with zipfile.ZipFile(before) as first, zipfile.ZipFile(tmp_path / "embedding.npz") as second:
        assert first.namelist() == second.namelist()
        assert all(first.read(member) == second.read(member) for member in first.namelist())
