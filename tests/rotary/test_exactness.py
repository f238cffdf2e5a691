"""Rotations that see differences of positions alone, to 1e-12 in float64; and those that are shown not to."""

from __future__ import annotations

import pytest
import torch

from posenc import AxialRoPE, MRoPE, RoPE, create_encoding
from posenc.catalogue import CATALOGUE
from posenc.rotary import GRAPEM, ComRoPEAP, ComRoPELD, LieRE, MHRoPE, MixedRoPE, VJEPARoPE
from posenc.testing import exactness

HEADS, WIDTH = 2, 48
TWO = ("rope-vit", "qwen-vl", "llama-4", "sam-2", "dinov3")
THREE = ("pixtral", "eva-02", "v-jepa-2", "gemma-4", "kimi-k2.5")
CONVENTIONS = {**dict.fromkeys(TWO, 2), **dict.fromkeys(THREE, 3)}
EXACT = {
    "rope": lambda: RoPE(WIDTH),
    **{f"axial {name}": lambda name=name, axes=axes: AxialRoPE(WIDTH, axes=axes, convention=name)
       for name, axes in CONVENTIONS.items()},
    "axial, given frequencies": lambda: AxialRoPE(12, frequencies=[[1.0, 0.3, 0.1], [2.0, 0.5, 0.0]]),
    "mixed": lambda: MixedRoPE(WIDTH, num_heads=HEADS),
    "mixed, halves": lambda: MixedRoPE(WIDTH, num_heads=HEADS, axes=3, layout="half"),
    "mixed, three axes": lambda: MixedRoPE(WIDTH, num_heads=HEADS, axes=3),
    "mixed, golden directions": lambda: MixedRoPE(WIDTH, num_heads=HEADS, axes=3, directions="golden", learned=False),
    "mrope": lambda: MRoPE(WIDTH, sections=(8, 8, 8)),
    "mhrope": lambda: MHRoPE(WIDTH, num_heads=HEADS, heads=(1, 1, HEADS - 2)),
    "mrope, interleaved": lambda: MRoPE(WIDTH, sections=(12, 6, 6), interleaved=True, layout="interleaved"),
    "vjepa": lambda: VJEPARoPE(WIDTH),
    "grape_m": lambda: GRAPEM(WIDTH, num_heads=HEADS),
    "liere, blocks of 2": lambda: LieRE(WIDTH, num_heads=HEADS, block=2),
    "liere, one axis": lambda: LieRE(WIDTH, num_heads=HEADS, axes=1),
    "comrope_ap": lambda: ComRoPEAP(WIDTH, num_heads=HEADS),
    "comrope_ap, three axes": lambda: ComRoPEAP(WIDTH, num_heads=HEADS, axes=3),
    "comrope_ap, blocks of 2": lambda: ComRoPEAP(WIDTH, num_heads=HEADS, block=2),
    "comrope_ld": lambda: ComRoPELD(WIDTH, num_heads=HEADS),
    "comrope_ld, three axes": lambda: ComRoPELD(WIDTH, num_heads=HEADS, axes=3, block=4),
}  # fmt: skip
NOT_EXACT = {
    "liere, blocks of 4": lambda: LieRE(WIDTH, num_heads=HEADS, block=4),
    "liere, blocks of 8": lambda: LieRE(WIDTH, num_heads=HEADS, block=8),
    "liere, whole head": lambda: LieRE(WIDTH, num_heads=HEADS),
    "liere, small generators": lambda: LieRE(WIDTH, num_heads=HEADS, block=8, init_scale=0.3),
    "vjepa, released": lambda: VJEPARoPE(WIDTH, released=True),
}


def measured(make, dtype=torch.float64, pairs=40):
    torch.manual_seed(0)
    encoding = make()
    shape = (pairs, encoding.axes) if encoding.axes > 1 else (pairs,)
    if type(encoding).__name__.startswith(("LieRE", "ComRoPE")):  # made for coordinates from 0 to 1
        x, y = (torch.randint(0, 65, shape).double() / 64 for _ in "xy")
    else:
        x, y = (torch.randint(-1000, 1000, shape) for _ in "xy")
    return exactness(encoding, x, y, num_heads=HEADS, head_dim=encoding.head_dim, dtype=dtype)


@pytest.mark.parametrize("name", EXACT)
def test_differences_alone(name):
    assert max(measured(EXACT[name])) < 1e-12
    assert max(measured(EXACT[name], torch.float32)) < 1e-5


@pytest.mark.parametrize("name", NOT_EXACT)
def test_more_than_differences(name):
    result = measured(NOT_EXACT[name], pairs=8)
    assert result.relativity > 0.03
    assert (result.orthogonality > 0.5) == (name == "vjepa, released"), "all others are rotations all the same"


@pytest.mark.parametrize("name", [name for name, entry in CATALOGUE.items() if entry.hook_point == "rotary"])
def test_the_lists_know_every_rotation(name):
    """Spectra differ in their frequencies alone: RoPE stands for all of them. Three are not rotations."""
    if name in ("fope", "pope", "rope_pp"):
        return
    built = create_encoding(name, dim=HEADS * WIDTH, num_heads=HEADS, train_length=32, max_length=128)
    kinds = {type(make()) for make in EXACT.values()}
    assert type(built) in kinds
