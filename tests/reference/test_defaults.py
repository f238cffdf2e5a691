"""Default configurations of transformers: none of them gets a remark that claims a fault."""

from __future__ import annotations

import logging

import pytest

from posenc.hf import model_from_config, read_rope
from posenc.hf.doctor import examine

pytest.importorskip("transformers")

from tests.reference.test_hf_config import ROTARY, of_family

pytestmark = pytest.mark.reference
logging.getLogger("transformers").setLevel(logging.CRITICAL)
TRUE = {"minimax_m3_vl_text": {"share-ignored"}}  # whose default of 64 transformers itself does not obey


@pytest.mark.parametrize("name", ROTARY)
def test_no_false_fault(name: str) -> None:
    config, _, _, whole = of_family(name)
    read = read_rope({**config.to_dict(), "model_type": name})
    assert {remark.name for remark in read.remarks if remark.level == "fault"} == TRUE.get(name, set()), read.remarks
    assert all(remark.name for remark in read.remarks)
    model_from_config(whole)


def test_there_are_as_many_as_expected() -> None:
    assert len(ROTARY) >= 100


# whose default misses the share that releases have; which learns factors of its frequencies; a key read by its code
CAUTIONED = {
    "minimax_m2": {"share-lost"}, "mistral_large4_text": {"learned-frequencies"}, "deepseek_v4": {"key-unread"},
}  # fmt: skip


@pytest.mark.parametrize("name", ROTARY)
def test_the_doctor_raises_no_false_alarm(name: str) -> None:
    config = of_family(name)[0]
    assert examine({**config.to_dict(), "model_type": name}).names() == {**TRUE, **CAUTIONED}.get(name, set())
