"""Options of every scaling and bias, drawn at random: what Python and the page are both given."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from torch import nn

import posenc
from posenc.encoding import BiasEncoding
from posenc.frequencies.spectrum import Scaling

Options = dict[str, Any]


def scaling_options(name: str, pairs: int, draw: Random) -> Options:
    """Arguments of the constructor, by name; `CLEX` without ``pairs``."""
    factor, original = draw.uniform(1.1, 40), draw.randint(64, 100_000)
    both = {"factor": factor, "original_length": original}
    factors = [draw.uniform(1, 30) for _ in range(pairs)]
    num_kv_heads = draw.choice([1, 2, 4])
    ramp = {
        "beta_fast": draw.uniform(8, 64), "beta_slow": draw.uniform(0.5, 4), "truncate": draw.random() < 0.5,
        "ramp": draw.choice(["index", "rotations"]),
    }  # fmt: skip
    low = draw.uniform(0.5, 4)
    result: dict[str, Options] = {
        "PositionInterpolation": {"factor": factor},
        "DynamicPositionInterpolation": {"original_length": original},
        "NTKAware": {"factor": factor},
        "DynamicNTK": draw.choice(
            [both, {"original_length": original}, {"original_length": original, "schedule": "powers"}]
        ),
        "NTKByParts": {**both, "alpha": low, "beta": low + draw.uniform(1, 30)},
        "PartNTK": {**both, "ntk_factor": draw.random(), "extrapolation_factor": draw.random()},
        "YaRN": {
            **both, **ramp, **_gains(draw), "extrapolation_factor": draw.random(), "attn_factor": draw.uniform(0.5, 2),
        },
        "DynamicYaRN": {"original_length": original, **ramp},
        "Llama3": {**both, "low_freq_factor": low, "high_freq_factor": low + draw.choice([0.0, draw.uniform(0, 8)])},
        "LongRoPE": {
            **both, "short": sorted(factors), "long": factors, "gain": draw.choice(["su", "yarn", 1.25]),
            **draw.choice([{}, {"short_gain": 1.1}, {"long_gain": 1.3}]),
        },
        "DynamicLongRoPE": {**both, "factors": factors, "gain": draw.choice(["su", "yarn", 0.75])},
        "Resonance": {},
        "RIFLEx": {"k": draw.randint(1, pairs), "length": draw.randint(2, 500), "share": draw.uniform(0.5, 1)},
        "DyPE": {
            "length": round(original * factor), "original_length": original,
            "timestep": draw.choice([0, draw.random()]),
            "method": draw.choice(["yarn", "ntk"]), "dynamic": draw.random() < 0.7,
        },
        "CLEX": {"original_length": original, "max_factor": draw.randint(2, 3), "continuous": draw.random() < 0.5},
        "Proportional": {"fraction": draw.random()},
        "Clipped": {"count": draw.randint(1, pairs + 4), "kind": draw.choice(["soft", "hard"])},
        "MultiScale": {
            "num_heads": 4, "num_kv_heads": num_kv_heads,
            "min_base": draw.uniform(100, 1e4), "max_base": draw.uniform(2e4, 1e7),
        },
    }  # fmt: skip
    return result[name]


def _gains(draw: Random) -> Options:
    return draw.choice(
        [
            {},
            {"attention_factor": draw.uniform(0.5, 2)},
            {"mscale": draw.random(), "mscale_all_dim": draw.random()},
            {"mscale": draw.random()},
            {"mscale": draw.random(), "mscale_all_dim": 0.0},
        ]
    )


def scaling_of(name: str, options: Options, pairs: int) -> Scaling:
    """The scaling in Python."""
    more = {"pairs": pairs, "step": 0.01} if name == "CLEX" else {}
    built: Scaling = getattr(posenc.frequencies, name)(**options, **more)
    return built


def bias_of(name: str, heads: int, draw: Random) -> tuple[BiasEncoding, Options]:
    """A bias in Python, in float64, with drawn parameters, and the options of the page for the same."""
    if name == "ALiBi":
        options: Options = draw.choice(
            [
                {"slopes": draw.choice(["press", "geometric", "kerple"]), "max_exponent": draw.uniform(2, 10)},
                {"slopes": [draw.random() for _ in range(heads)], "bias_scale": draw.uniform(0.5, 2)},
            ]
        )
        return posenc.ALiBi(heads, **options), {"num_heads": heads, **options}
    if name == "Sandwich":
        options = {"dim": 2 * draw.randint(2, 90), "start": draw.choice([0, 1])}
        return posenc.bias.Sandwich(heads, **options), {"num_heads": heads, **options}
    if name == "T5Bias":
        options = {"num_buckets": 2 * draw.randint(4, 20), "bidirectional": draw.random() < 0.5}
        options |= {"max_distance": draw.randint(50, 3000), "bias_scale": draw.uniform(0.5, 2)}
        t5 = _drawn(posenc.T5Bias(heads, **options), draw)
        return t5, {"num_heads": heads, **options, "table": t5.get_parameter("weight").tolist()}
    if name == "KERPLE":
        kind = draw.choice(["log", "power"])
        kerple = _drawn(posenc.bias.KERPLE(heads, kind=kind), draw)
        numbers = {part: kerple.get_parameter(part).tolist() for part in ("p", "a")}
        return kerple, {"kind": kind, **numbers}
    options = {"c": draw.uniform(0.01, 2), "threshold": draw.uniform(10, 500), "leak": draw.choice([0.0, 0.01])}
    fire = posenc.bias.FIRE(heads, hidden=8, **options).double()
    with torch.no_grad():
        fire.c.fill_(options["c"])
        fire.multiplier.fill_(draw.uniform(-2, 2))
    weights = {
        "inner": fire.inner.weight[:, 0].tolist(), "inner_bias": fire.inner.bias.tolist(),
        "outer": fire.outer.weight.tolist(), "outer_bias": fire.outer.bias.tolist(),
    }  # fmt: skip
    return fire, {**options, **weights, "multiplier": fire.multiplier.item()}


def _drawn(module: BiasEncoding, draw: Random) -> BiasEncoding:
    """Parameters drawn wide, also past the bounds that a class sets them."""
    built: nn.Module = module.double()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.copy_(
                torch.tensor([draw.uniform(-0.5, 3) for _ in range(parameter.numel())]).view(parameter.shape)
            )
    return module
