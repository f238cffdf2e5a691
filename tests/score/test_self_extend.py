"""Self-Extend against the authors' code."""

from __future__ import annotations

import pytest
import torch

from posenc import LogN, RoPE, attention
from posenc.backends.call import Backend
from posenc.catalogue import encoding_info
from posenc.encoding import Encoding
from posenc.score import SelfExtend
from tests.golden import config, load, names
from tests.samples import gap
from tests.score.remapping import EACH_BACKEND, EACH_FLOAT, expect_decoding, expect_golden, rope


def made(name: str) -> list[Encoding]:
    said = config(name)
    exact = said["offset_division"] == "true"
    own = SelfExtend(rope(name), window=said["neighbor_window"], group=said["group_size"], exact=exact)
    return [own] if said["scale_base"] < 0 else [own, LogN(said["scale_base"])]


@EACH_FLOAT
@EACH_BACKEND
@pytest.mark.parametrize("name", [n for n in names("selfextend_*") if "leftpad" not in n])
def test_authors_numbers(name: str, backend: Backend, dtype: torch.dtype, tolerance: float) -> None:
    expect_golden(name, made(name), dtype, tolerance, backend)


@EACH_BACKEND
def test_padding_in_front(backend: Backend) -> None:
    name = "selfextend_leftpad_b2_l30_w6_g4"
    pads = torch.tensor(config(name)["left_pads"])
    real = torch.arange(30) >= pads[:, None]
    at = load(name)["position_ids"]
    expect_golden(
        name, made(name), torch.float64, 1e-12, backend, real=real, mask=real[:, None, :], q_pos=at, k_pos=at
    )  # fmt: skip


def test_a_group_of_one_is_the_rotation() -> None:
    golden = load("selfextend_g1_l24_w5")
    q, k, v = (golden[part] for part in "qkv")
    own = attention(q, k, v, [SelfExtend(RoPE(8), window=5, group=1)])
    assert gap(own, attention(q, k, v, [RoPE(8)])) < 1e-13


def test_decoding() -> None:
    expect_decoding(lambda: SelfExtend(RoPE(8), window=7, group=3))


@pytest.mark.parametrize("times", [1.5, 2, 3, 4, 8])
@pytest.mark.parametrize("trained", [64, 100, 4096])
def test_the_group_for_a_length_is_the_smallest_without_a_new_position(trained: int, times: float) -> None:
    longest = int(trained * times)
    entry = encoding_info("self_extend")
    shape = {"head_dim": 8, **entry.lengths(trained), "train_length": trained, "max_length": longest}

    def farthest(group: int) -> float:
        own = SelfExtend(RoPE(8), window=entry.lengths(trained)["window"], group=group)
        places = torch.arange(longest)
        far = own.ranges(places, places)[-1]
        return float((far.q_pos - far.k_pos[0]).max())

    group = entry.defaults(shape)["group"]
    assert isinstance(group, int)
    assert farthest(group) < trained
    assert group == 2 or farthest(group - 1) >= trained


def test_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="group"):
        SelfExtend(RoPE(8), group=0)
    with pytest.raises(ValueError, match="rotation"):
        SelfExtend(64)  # type: ignore[arg-type]
