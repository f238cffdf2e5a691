"""Whatever `posenc.hf` is given in Python is taken, or refused by a ValueError that names the argument."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import numpy
import pytest
import torch

from posenc import RoPE, hf
from posenc.hf import RopeConfig, preset, read_rope
from tests.samples import expect_taken_or_named

Call = tuple[str, Callable[..., object], dict[str, object]]
WRONG: tuple[object, ...] = (
    3, 0, -1, 2.5, 10**18, 10**400, None, True, "x", b"x", "", [], [None], [[1]], {}, {"x": 3}, {3: None}, object(),
    RoPE, math.nan, 1j, torch.ones(()), torch.ones(2), torch.ones(2, dtype=torch.bool), numpy.ones(2), lambda: None,
)  # fmt: skip
LLAMA, GEMMA = preset("llama-3.1"), {**preset("gemma-3"), "layer_types": ["sliding_attention", "full_attention"]}
READ, KINDS = read_rope(LLAMA), read_rope(GEMMA)


def method(name: str, of: RopeConfig = READ, **valid: object) -> Call:
    return f"RopeConfig.{name}", getattr(of, name), valid


SUNK = hf.LayerFacts("full", sink="learned", scale=1.0)
NORMED = hf.LayerFacts("full", spec=RoPE(16), scale=1.0, normed_after=True)
CALLS: list[Call] = [
    ("read_rope", hf.read_rope,
     {"config": LLAMA, "head_dim": 64, "layout": "half", "convention": "deepseek", "ignore": ["mscale"]}),
    ("rope_from_config", hf.rope_from_config, {"config": GEMMA, "layer_type": "full_attention", "head_dim": 64}),
    ("rope_to_config", hf.rope_to_config, {"rope": RoPE(16), "version": 4, "model_type": "llama", "as_longrope": True,
                                           "original_length": 64}),
    ("rope_to_config", hf.rope_to_config, {"rope": {"all": RoPE(16)}, "as_longrope": False}),
    ("model_from_config", hf.model_from_config,
     {"config": LLAMA, "head_dim": 64, "layout": "half", "convention": "deepseek", "ignore": ["mscale"]}),
    ("explain", hf.explain,
     {"config": LLAMA, "head_dim": 64, "layout": "half", "convention": "deepseek", "ignore": ["mscale"]}),
    ("as_text", hf.as_text, {"config": READ}),
    ("facts", hf.facts, {"config": KINDS}),
    ("preset", hf.preset, {"name": "gpt-oss"}),
    ("plugin_block", hf.plugin_block, {"rope": RoPE(16), "length": 64, "tokens": 64}),
    ("serve_flags", hf.serve_flags,
     {"config": READ, "exact": True, "length": 64, "folder": "DIR",
      "program": "vllm"}),
    ("LayerAttention", hf.LayerAttention, {"facts": SUNK, "num_heads": 4, "scale": 0.5}),
    ("LayerAttention", hf.LayerAttention, {"facts": NORMED, "norms": (torch.nn.Identity(), torch.nn.Identity())}),
    ("encodings_of", hf.encodings_of, {"facts": SUNK, "num_heads": 4}),
    method("of", layer_type="all"),
    method("of", KINDS, layer_type="full_attention"),
    method("for_layer", index=0),
    method("for_layer", KINDS, index=1),
    method("softmax_factor", KINDS, layer_type="full_attention"),
    ("RopeConfig.with_rope", lambda rope: READ.with_rope(rope).to_config(), {"rope": RoPE(128)}),
    ("RopeConfig.with_rope", lambda rope: KINDS.with_rope(rope).to_config(), {"rope": {"full_attention": RoPE(256)}}),
    method("with_factors", factors=[1.5] * (READ.rope.rotary_dim // 2)),
    method("to_config", version=5),
    method("like", config=LLAMA),
]  # fmt: skip
OF_A_FILE = {"config"}  # what may be a path, whose errors are the operating system's
ALSO_NAMED = {  # what else may be named: a key that is missing, or what does not fit
    "config": "rope_parameters", "as_longrope": "original_length", "rope": "layers",
}  # fmt: skip


def cases() -> list[object]:
    return [
        pytest.param(run, valid, argument, id=f"{name}-{argument}") for name, run, valid in CALLS for argument in valid
    ]


@pytest.mark.parametrize(("run", "valid", "argument"), cases())
def test_whatever_is_given_is_taken_or_refused_by_name(run, valid, argument):
    run(**valid)
    refusal = (ValueError, FileNotFoundError) if argument in OF_A_FILE else ValueError
    expect_taken_or_named(run, valid, argument, WRONG, also=ALSO_NAMED.get(argument, ""), refusal=refusal)


def test_everything_public_is_there():
    given_back = (
        hf.CacheEditor,
        hf.CheckBatch,
        hf.Explanation,
        hf.Finding,
        hf.ModelFacts,
        hf.RopeConfig,
        hf.LayerFacts,
        hf.ConfigExtension,
        hf.ConfigConversion,
        hf.write_gguf,
        hf.extend_config,
        hf.convert_config,
    )  # nobody builds these, or tests of their own ask: test_batches, test_caches, extend, gguf
    public = {name: thing for name in hf.__all__ if callable(thing := getattr(hf, name)) and thing not in given_back}
    methods = {f"RopeConfig.{name}": thing for name, thing in vars(RopeConfig).items() if inspect.isfunction(thing)}
    public |= {name: thing for name, thing in methods.items() if "__" not in name and "._" not in name}
    tried: dict[str, set[str]] = {}
    for name, _, valid in CALLS:
        tried.setdefault(name, set()).update(valid)
    expected = {name: set(inspect.signature(thing).parameters) - {"self"} for name, thing in public.items()}
    assert expected == tried


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: read_rope(LLAMA, ignore="mscale"), "ignore"),
        (lambda: read_rope(LLAMA, layout=""), "layout"),
        (lambda: hf.rope_to_config(RoPE(16), as_longrope="no"), "as_longrope"),
        (
            lambda: hf.rope_to_config(RoPE(16), as_longrope=True, original_length=0),
            "original_length",
        ),
        (lambda: hf.rope_to_config({}), "rope"),
        (lambda: hf.facts(LLAMA), "config"),
        (lambda: READ.with_rope({"all": "x"}), "rope"),
        (lambda: READ.for_layer(-1), "index"),
        (lambda: KINDS.for_layer(2), "index"),
    ],
)
def test_messages(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)
