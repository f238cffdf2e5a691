"""Options of every scaling and bias, drawn at random: what Python and the page are both given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import posenc
from posenc.encoding import BiasEncoding
from posenc.frequencies.spectrum import Scaling
from tests.fuzz.draw import Draw, Sizes
from tests.fuzz.rotations import SCALINGS

Options = dict[str, Any]


def scaling_options(name: str, pairs: int, draw: Draw) -> Options:
    """Arguments of the constructor, by name; `CLEX` without ``pairs`` and in the page's step."""
    sizes = Sizes(heads=4, num_kv_heads=draw.choice([1, 2, 4]), head_dim=2 * pairs, value_dim=1, dim=1)
    options = dict(SCALINGS[name](draw, sizes, pairs)) if name in SCALINGS else {}
    options |= MORE[name](draw, pairs) if name in MORE else {}
    return {key: value for key, value in options.items() if name != "CLEX" or key not in ("pairs", "step")}


MORE: dict[str, Callable[[Draw, int], Options]] = {  # what the random calls leave out
    "RIFLEx": lambda draw, pairs: {
        "k": draw.integer(1, pairs), "length": draw.integer(2, 500), "share": draw.number(0.5, 1)
    },
    "DyPE": lambda draw, pairs: {
        "length": draw.integer(65, 2000), "original_length": 64, "timestep": draw.choice([0, draw.number(0, 1)]),
        "method": draw.choice(["yarn", "ntk"]), "dynamic": draw.chance(0.7),
    },
    "NTKByParts": lambda draw, pairs: {"alpha": draw.number(0.5, 4), "beta": draw.number(5, 30)},
    "PartNTK": lambda draw, pairs: {"ntk_factor": draw.number(0, 1), "extrapolation_factor": draw.number(0, 1)},
    "DynamicYaRN": lambda draw, pairs: {"beta_fast": draw.number(8, 64), "beta_slow": draw.number(0.5, 4)},
    "Llama3": lambda draw, pairs: {"low_freq_factor": draw.number(0.5, 4), "high_freq_factor": draw.number(4, 12)},
    "DynamicLongRoPE": lambda draw, pairs: {"gain": draw.choice(["su", "yarn", 0.75])},
    "MultiScale": lambda draw, pairs: {"min_base": draw.number(100, 1e4), "max_base": draw.number(2e4, 1e7)},
}  # fmt: skip


def scaling_of(name: str, options: Options, pairs: int) -> Scaling:
    """The scaling in Python."""
    more = {"pairs": pairs, "step": 0.01} if name == "CLEX" else {}
    built: Scaling = getattr(posenc.frequencies, name)(**options, **more)
    return built


def bias_of(name: str, heads: int, draw: Draw) -> tuple[BiasEncoding, Options]:
    """A bias in Python, in float64, with drawn parameters, and the options of the page for the same."""
    if name == "ALiBi":
        options: Options = draw.choice(
            [
                {"slopes": draw.choice(["press", "geometric", "kerple"]), "max_exponent": draw.number(2, 10)},
                {"slopes": [draw.number(0, 1) for _ in range(heads)], "bias_scale": draw.number(0.5, 2)},
            ]
        )
        return posenc.ALiBi(heads, **options), {"num_heads": heads, **options}
    if name == "Sandwich":
        options = {"dim": 2 * draw.integer(2, 90), "start": draw.choice([0, 1])}
        return posenc.bias.Sandwich(heads, **options), {"num_heads": heads, **options}
    if name == "T5Bias":
        options = {"num_buckets": 2 * draw.integer(4, 20), "bidirectional": draw.chance(0.5)}
        options |= {"max_distance": draw.integer(50, 3000), "bias_scale": draw.number(0.5, 2)}
        t5 = _drawn(posenc.T5Bias(heads, **options), draw)
        return t5, {"num_heads": heads, **options, "table": t5.get_parameter("weight").tolist()}
    if name == "KERPLE":
        kind = draw.choice(["log", "power"])
        kerple = _drawn(posenc.bias.KERPLE(heads, kind=kind), draw)
        numbers = {part: kerple.get_parameter(part).tolist() for part in ("p", "a")}
        return kerple, {"kind": kind, **numbers}
    options = {"c": draw.number(0.01, 2), "threshold": draw.number(10, 500), "leak": draw.choice([0.0, 0.01])}
    fire = posenc.bias.FIRE(heads, hidden=8, **options).double()
    with torch.no_grad():
        fire.c.fill_(options["c"])
        fire.multiplier.fill_(draw.number(-2, 2))
    weights = {
        "inner": fire.inner.weight[:, 0].tolist(), "inner_bias": fire.inner.bias.tolist(),
        "outer": fire.outer.weight.tolist(), "outer_bias": fire.outer.bias.tolist(),
    }  # fmt: skip
    return fire, {**options, **weights, "multiplier": fire.multiplier.item()}


def _drawn(module: BiasEncoding, draw: Draw) -> BiasEncoding:
    """Parameters drawn wide, also past the bounds that a class sets them."""
    built: nn.Module = module.double()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.copy_(
                torch.tensor([draw.number(-0.5, 3) for _ in range(parameter.numel())]).view(parameter.shape)
            )
    return module
