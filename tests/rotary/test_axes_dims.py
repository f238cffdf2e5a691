"""Axial RoPE with axes of unequal width: equal to the position modules of diffusion models, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from posenc import AxialRoPE, DynamicNTK, NTKAware, RoPE, YaRN
from posenc.frequencies import DyPE, PartNTK, RIFLEx, identify_k
from posenc.positions import NOWHERE, grid
from tests.samples import gap

FOLDER = Path(__file__).parents[1] / "golden" / "diffusion"
MANIFEST = json.loads((FOLDER / "manifest.json").read_text())
MODULES = [
    name
    for name, settings in MANIFEST.items()
    if "identify" not in name and "dype" not in name and "tolerances" not in settings
]


def arrays(name: str) -> dict[str, Tensor]:
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as file:
        return {key: torch.from_numpy(file[key]) for key in file.files}


def made_with(config: dict[str, Any]) -> AxialRoPE:
    """The encoding of a model, by the numbers of its configuration."""
    head_dim, options = config["head_dim"], {"layout": config["layout"]}
    base: Any = config.get("bases", config.get("theta"))
    if "rope_freq_dim" in config:  # MiniMax-H3: three axes of 2 · rope_freq_dim channels, the rest is not rotated
        width = 2 * config["rope_freq_dim"]
        return AxialRoPE(head_dim, axes_dims=(width,) * 3, rotary_dim=3 * width, base=base, **options)
    scaling = None
    if "L_test" in config:
        scaling = (RIFLEx(config["k"], length=config["L_test"]), None, None)
    return AxialRoPE(head_dim, axes_dims=config["axes_dims"], base=base, scaling=scaling, **options)


@pytest.mark.parametrize("name", MODULES)
def test_equal_to_the_position_module_of_the_model(name: str) -> None:
    expected, rope = arrays(name), made_with(MANIFEST[name])
    positions = expected["positions"]
    table = rope.table(positions, like=positions)
    assert gap(table[0], expected["cos"]) < 1e-11
    assert gap(table[1], expected["sin"]) < 1e-11
    for part in ("q", "k"):
        assert gap(rope.rotate(expected[part], table), expected[f"{part}_rot"]) < 1e-11
    single = rope.table(positions.float() if positions.frac().any() else positions.long())
    assert single[0].dtype == torch.float32
    assert gap(single[0], expected["cos"]) < 2e-5


def test_the_period_that_repeats_as_the_authors_find_it() -> None:
    for base, width, repeats_at, k, period in arrays("riflex_identify_k")["table"].tolist():
        assert identify_k(int(width), base, repeats_at) == (int(k), int(period))


@pytest.mark.parametrize("convention", ["rope-vit", "qwen-vl", "llama-4", "gemma-4"])
def test_conventions_keep_their_order_and_layout(convention: str) -> None:
    positions = grid(4, 5)
    q = torch.randn(1, 2, 20, 32, dtype=torch.float64)
    equal, by_dims = AxialRoPE(32, convention=convention), AxialRoPE(32, axes_dims=(16, 16), convention=convention)
    assert (
        gap(by_dims.rotate(q, by_dims.table(positions, like=q)), equal.rotate(q, equal.table(positions, like=q)))
        < 1e-13
    )


def test_a_scaling_for_one_axis_and_its_gain() -> None:
    yarn = YaRN(4.0, original_length=64)
    rope = AxialRoPE(32, axes_dims=(8, 24), scaling=(None, yarn), base=(256.0, 10_000.0))
    cos, sin = rope.table(torch.tensor([[3, 100], [NOWHERE, NOWHERE]]), like=torch.zeros(1, dtype=torch.float64))
    times, columns = RoPE(8, base=256.0).spectrum().theta, RoPE(24, scaling=yarn).spectrum()
    assert gap(cos[0, :4], (3 * times).cos()) < 1e-13
    assert gap(sin[0, 4:], columns.gain * (100 * columns.theta).sin()) < 1e-12
    assert torch.equal(cos[1], torch.ones(16, dtype=torch.float64))  # no gain without a place
    one_for_all = AxialRoPE(32, axes_dims=(8, 24), scaling=NTKAware(2.0))
    assert one_for_all.scaling is not None
    assert len(one_for_all.scaling) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"axes_dims": (16, 56)}, "axes_dims must be even and add up to head_dim = 128, or give rotary_dim"),
        ({"axes_dims": (15, 57, 56)}, "axes_dims must be even"),
        ({"axes_dims": (16, 56, 56), "axes": 3}, "give axes or axes_dims, not both"),
        ({"axes_dims": (16, 56, 56), "rotary_dim": 96}, "add up to rotary_dim = 96"),
        ({"axes_dims": 3}, "axes_dims must be a list or tuple"),
        ({"axes": 3, "rotary_dim": 100}, "multiple of 2 * axes"),
        ({"axes_dims": (64, 64), "convention": "pixtral"}, "pairs of its own"),
        ({"axes_dims": (64, 64), "base": (10.0, 20.0, 30.0)}, "one for each of 2 axes"),
        ({"axes_dims": (64, 64), "base": 0.5}, "base must be a finite number above 1"),
        ({"axes_dims": (64, 64), "scaling": (None,)}, "one or None for each of 2"),
        ({"axes_dims": (64, 64), "scaling": DynamicNTK(original_length=64)}, "must follow no length"),
        ({"axes_dims": (64, 64), "scaling": (3, None)}, "must be a Scaling"),
        ({"axes_dims": (64, 64), "frequencies": [1.0] * 32}, "go with a base"),
        ({"base": (10.0, 20.0)}, "base must be one number"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as error:
        AxialRoPE(128, **arguments)
    assert words in str(error.value)


def test_riflex_slows_one_pair_down() -> None:
    unscaled = RoPE(16, base=256.0).spectrum().theta
    theta = RoPE(16, base=256.0, scaling=RIFLEx(4, length=66)).spectrum().theta
    assert theta[3] == pytest.approx(0.9 * 2 * math.pi / 66)
    assert theta[3] * 66 < 2 * math.pi < unscaled[3] * 66
    assert gap(theta[[0, 1, 2, 4, 5, 6, 7]], unscaled[[0, 1, 2, 4, 5, 6, 7]]) == 0
    with pytest.raises(ValueError, match="k must be one of the 8 pairs"):
        RoPE(16, scaling=RIFLEx(9, length=66))


@pytest.mark.parametrize("name", [name for name in MANIFEST if "dype" in name])
def test_dype_is_the_authors_at_each_step(name: str) -> None:
    settings, expected = MANIFEST[name], arrays(name)
    positions = expected["positions"]
    sizes = (
        settings["video_fhw"][1:] if "video_fhw" in settings else [int(positions[:, axis].max()) + 1 for axis in (1, 2)]
    )
    options = {
        "original_length": settings["base_patches"],
        "timestep": settings["timestep"],
        "dynamic": settings["dype"],
    }
    steps = [DyPE(size, method=settings.get("method_", "yarn"), **options) for size in sizes]
    widths = settings["axes_dims"]
    rope = AxialRoPE(sum(widths), axes_dims=widths, base=settings["theta"], scaling=(None, *steps))
    cos, sin = rope.table(positions, like=positions)
    assert gap(cos, expected["cos"]) < 1e-12
    assert gap(sin, expected["sin"]) < 1e-12


def test_dype_at_the_ends_of_denoising() -> None:
    unscaled = RoPE(56).spectrum().theta
    part = RoPE(56, scaling=PartNTK(4.0, original_length=64)).spectrum().theta
    first, last = (RoPE(56, scaling=DyPE(256, timestep=timestep)).spectrum() for timestep in (1.0, 0.0))
    assert gap(first.theta, part) < 1e-15
    assert gap(last.theta, unscaled) == 0
    assert float(first.gain) == float(last.gain) == pytest.approx(0.1 * math.log(4) + 1)
    within = RoPE(56, scaling=DyPE(64, timestep=0.5)).spectrum()
    assert gap(within.theta, unscaled) == 0
    assert float(within.gain) == 1
    for arguments, word in [
        ({"timestep": 1.5}, "timestep"),
        ({"method": "pi"}, "method"),
        ({"original_length": 0}, "original"),
    ]:
        with pytest.raises(ValueError, match=word):
            DyPE(128, **arguments)
