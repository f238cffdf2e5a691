"""Every family of the installed transformers is read, or refused with a reason; what is read is what its code does."""

from __future__ import annotations

import copy
import inspect
import logging
import re
from functools import cache
from pathlib import Path

import pytest
import torch

from posenc.hf import model_from_config, read_rope
from posenc.hf.config.rotation import text_rope
from posenc.hf.families import NON_ROTARY, ROTARY, UNSUPPORTED
from posenc.hf.families.family import KINDS

pytest.importorskip("transformers")

import transformers

from tests.hf.attach.smallest import built
from tests.reference.test_hf_config import SCALABLE, of_family

pytestmark = pytest.mark.reference
logging.getLogger("transformers").setLevel(logging.CRITICAL)
MODELS = Path(transformers.__file__).parent / "models"
# What speaks of a rotation, of layers without one, of a temperature, of a sink.
_SIGNS = re.compile(
    r"rotate_half|rotate_pairwise|rotate_every_two|apply_rotary|RotaryEmbedding|RotaryPositional|freqs_cis|"
    r"no_rope_layer|use_rope\b|layer_rope_theta|attn_temperature_tuning|llama_4_scaling|llama_4_attn_scale|"
    r"log_scaling_alpha|compute_attention_scaling|\bsinks\b|s_aux\s*="
)
_NO_SINK = {  # the words stand there for something else
    "marian": "sinusoidal embeddings, in a comment's spelling",
    "superglue": "Sinkhorn's iterations, which match points",
}


@cache
def folders() -> dict[str, set[str]]:
    """The folders whose code speaks of any of this, and the model types of each."""
    results = {}
    for folder in sorted(path for path in MODELS.iterdir() if path.is_dir()):
        code = "".join(path.read_text() for path in sorted(folder.glob("modeling_*.py")))
        if _SIGNS.search(code) and folder.name not in _NO_SINK:
            text = "".join(path.read_text() for path in sorted(folder.glob("configuration_*.py")))
            results[folder.name] = set(re.findall(r'^    model_type = "([^"]+)"', text, re.MULTILINE))
    return results


def test_there_are_as_many_folders_as_expected() -> None:
    assert len(folders()) > 180


@pytest.mark.parametrize("folder", sorted(folders()))
def test_every_folder_is_read_or_refused(folder: str) -> None:
    types = folders()[folder]
    assert types & {*ROTARY, *NON_ROTARY, *UNSUPPORTED}, f"{folder} has {sorted(types)}, and no table has any of them"


def test_what_is_refused_is_there_and_no_family() -> None:
    """So that no reason outlives its family; hunyuan_vl's text part has a name of vLLM's."""
    every = {name for path in MODELS.glob("*/configuration_*.py") for name in _types(path)}
    assert set(UNSUPPORTED) - {"baichuan", "chatglm", "phi3small"} - every == set(), "but code of a checkpoint's own"
    assert not set(UNSUPPORTED) & {*ROTARY, *NON_ROTARY}
    for name, reason in UNSUPPORTED.items():
        with pytest.raises(ValueError, match=re.escape(reason)):
            read_rope({"model_type": name, "rope_theta": 1e4, "head_dim": 64})


def _types(path: Path) -> list[str]:
    return re.findall(r'^    model_type = "([^"]+)"', path.read_text(), re.MULTILINE)


def test_rotations_of_images_are_never_read() -> None:
    """Each configuration class whose rope type is axial is refused by its name."""
    axial = set()
    for path in MODELS.glob("*/configuration_*.py"):
        for text in re.split(r"^class ", path.read_text(), flags=re.MULTILINE):
            if 'default_rope_type = "axial"' in text:
                axial |= set(re.findall(r'^    model_type = "([^"]+)"', text, re.MULTILINE))
    assert len(axial) > 30
    assert axial <= set(UNSUPPORTED)


def compared(name: str, length: int) -> float:
    """The largest gap between a family's own cosines and ours, over all of its kinds of layers."""
    _, module, _, full = of_family(name)
    gap, times = 0.0, 0
    source = inspect.getsource(type(module).forward)
    places = torch.tensor([0, 1, 7, length // 2, length - 1])
    inputs = places[None].expand(3, 1, -1) if "mrope" in inspect.getsource(type(module)) else places[None]
    for kind, rope in read_rope(full).layers.items():
        flat = hasattr(module, "inv_freq")
        if rope is None or not (flat or hasattr(module, f"{kind}_inv_freq")):
            continue
        extra = {} if flat or "layer_type" not in source else {"layer_type": kind}
        table = module(torch.zeros(1), inputs, **extra)
        cos = (table.real, table.imag) if torch.is_tensor(table) else table
        actual = text_rope(rope)
        theta, gain = actual.spectrum(length).theta, float(actual.spectrum(length).gain)
        angles = places[:, None].double() * theta.double()
        for result, expected in zip(cos, (angles.cos() * gain, angles.sin() * gain), strict=True):
            pairs = expected.shape[-1]
            baseline = result.reshape(len(places), -1).double()
            same = [baseline[:, :pairs], baseline.repeat_interleave(1, -1)[:, :: baseline.shape[-1] // pairs]]
            gap = max(gap, min(float((item - expected).abs().max()) for item in same))
        times += 1
    assert times, "no kind of layers was compared"
    return gap


SECTIONS = "its sections put the pairs in another order, which tests/reference/test_hf_mrope.py compares"
NOT_COMPARED = {
    "ernie4_5_moe_vl": SECTIONS,
    "ernie4_5_vl_moe_text": SECTIONS,
    "mistral_large4_text": "its own frequencies carry a factor from the weights, which the next test sets to one",
}


@pytest.mark.parametrize("beyond", [False, True])
@pytest.mark.parametrize("name", [name for name in SCALABLE if name not in NOT_COMPARED])
def test_cosines_are_the_familys_own(name: str, beyond: bool) -> None:
    trained = of_family(name)[3].get("max_position_embeddings") or 2048
    length = 2 * trained if beyond else min(trained, 512)
    assert compared(name, length) < rounding(length)


def rounding(length: int) -> float:
    """What float32 leaves: 1e-5, and what the angle of the last position is rounded by, in frequency and product."""
    return 1e-5 + 2.4e-7 * length


def test_the_learned_factor_of_mistral_large_4() -> None:
    """Its frequencies are times exp(alpha), and alpha stands in the weights: with alpha = 0 ours are its own."""
    assert compared("mistral_large4_text", 512) < rounding(512)


def test_kinds_of_layers_equal_transformers() -> None:
    from transformers import configuration_utils

    assert {*configuration_utils.ALLOWED_LAYER_TYPES} <= KINDS


@pytest.mark.parametrize(
    ("name", "key", "size"),
    [
        *((name, "sliding_window", None) for name in ("gemma2", "gemma3_text", "gpt_oss", "cohere2", "mistral")),
        *((name, "sliding_window", 0) for name in ("gemma2", "gemma3_text", "gpt_oss", "mistral", "phi3", "smollm3")),
        *(("qwen2", "sliding_window", size) for size in (None, 0)),
        *(("llama4_text", "attention_chunk_size", size) for size in (None, 8)),
    ],
)
def test_windows_that_are_missing_are_those_on_which_transformers_fails(name: str, key: str, size: int | None) -> None:
    model = built(name, **{key: size}, **({"use_sliding_window": True} if name in ("qwen2", "smollm3") else {}))
    try:
        model(input_ids=torch.ones(1, 24, dtype=torch.long))
        fails = False
    except (TypeError, ValueError, RuntimeError):
        fails = True
    full = {**copy.deepcopy(model.config.to_dict()), "model_type": name, key: size}
    unread = [facts for facts in model_from_config(full).distinct_layers if facts.not_read]
    assert bool(unread) == fails
