"""Whole layers of every family: transformers' own attention and ours, of the same configuration, give the same.

One small model a family with random weights; a text of which part lies beyond the trained length; every layer that has
attention. That the comparison can fail is shown for each layer: with one fact changed it does.
"""

from __future__ import annotations

import logging
import re
import warnings
from pathlib import Path

import pytest

from posenc.hf.families import FAMILIES, ROTARY
from posenc.hf.families.listing import counts

pytest.importorskip("transformers")

from tests.hf.attach.smallest import compared
from tests.reference.test_families import folders

pytestmark = pytest.mark.reference
logging.getLogger("transformers").setLevel(logging.CRITICAL)
ROOT = Path(__file__).parents[2]
COMPARED = sorted(name for name, family in ROTARY.items() if not family.not_compared)
SEEN = 1e-4  # a fault of this size shows, as agreement is ten times closer


@pytest.mark.parametrize("name", COMPARED)
def test_layers_agree(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = compared(name)
    assert result
    assert max(layer.gap for layer in result) < 1e-5
    for layer in result:
        assert min(layer.faults.values()) > SEEN, layer


def test_the_reasons_are_of_families() -> None:
    assert {name for name, family in FAMILIES.items() if family.not_compared} <= set(ROTARY)


def test_the_counts_are_printed() -> None:
    """At least 150 folders of transformers, and the numbers that the pages have."""
    here = [name for name, types in folders().items() if types & set(COMPARED)]
    assert len(here) >= 150
    assert counts()["whole layers compared"] == len(COMPARED)
    result = counts()
    tally = {
        "docs/guarantees.md": f"{len(COMPARED)} model types in {len(here)} of the {len(folders())} model folders",
        "docs/huggingface.md": f"Of {result['read']} model types {len(COMPARED)} are compared",
    }
    for page, words in tally.items():
        assert words in re.sub(r"\s+", " ", (ROOT / page).read_text())
