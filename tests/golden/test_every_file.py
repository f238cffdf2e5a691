"""Every file of golden numbers is compared: by a table of this folder, or by a test that is named here."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.golden import (
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
    "authors_rope": "engines/test_reference_formulas.py",
    "drope_*": "hf/extend/test_drope.py",
    "foxlayer_pro": "layers/test_fox_pro.py",
    "longrope_search_*": "search/test_longrope.py",
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
    left = {name for name in names("**/*") if not any(fnmatch(name, pattern) for pattern in ELSEWHERE)}
    assert not left - compared()


@pytest.mark.parametrize("pattern", ELSEWHERE)
def test_who_compares_the_others(pattern: str) -> None:
    assert names(pattern)
    assert f'"{pattern}"' in (TESTS / ELSEWHERE[pattern]).read_text()
