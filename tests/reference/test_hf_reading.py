"""How transformers reads a config: which of two keys it obeys, and which default it takes for a missing key.

Also the records of models without a rotation (`posenc.hf.families`), compared with the code of each.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
from typing import Any

import pytest

from posenc.hf import convert_config, read_rope
from posenc.hf.families import NON_ROTARY, ROTATIONS
from posenc.hf.families.family import FULL
from posenc.hf.families.position_schemes import (
    ALIBI,
    LOG_CPB,
    SINUSOIDAL,
    SWIN,
    TRANSFORMER_XL,
    learned,
    learned_after_padding,
    patches,
    t5_bias,
)

pytest.importorskip("transformers")
import transformers

from tests.golden import configs
from tests.hf.extend.ten_models import PUBLISHED
from tests.hf.transformers_models import model_of, rotary_module, transformers_frequencies

pytestmark = pytest.mark.reference
logging.getLogger("transformers").setLevel(logging.CRITICAL)

LLAMA = {"model_type": "llama", "head_dim": 64, "max_position_embeddings": 4096}
LINEAR = {"factor": 4.0, "rope_type": "linear"}


def first(config: dict[str, Any]) -> float:
    """Their first frequency: 1 over the factor of linear scaling."""
    return float(transformers_frequencies(rotary_module(config), None)[0][0])


@pytest.mark.parametrize("keys", [("type", "rope_type"), ("rope_type", "type")])
def test_rope_type_is_obeyed_over_type(keys: tuple[str, str]) -> None:
    names = {"rope_type": "linear", "type": "default"}
    assert first({**LLAMA, "rope_scaling": {key: names[key] for key in keys} | {"factor": 4.0}}) == 0.25


def test_rope_scaling_is_obeyed_over_rope_parameters() -> None:
    blocks = {"rope_scaling": LINEAR, "rope_parameters": {"rope_type": "default"}}
    for order in (1, -1):
        assert first({**LLAMA, **dict(list(blocks.items())[::order])}) == 0.25


def test_gemma_3_reads_rope_type_alone() -> None:
    for key, expected in (("rope_type", 0.25), ("type", 1.0)):
        config = {"model_type": "gemma3_text", "rope_scaling": {key: "linear", "factor": 4.0}}
        assert float(transformers_frequencies(rotary_module(config), None, FULL)[0][0]) == expected


@pytest.mark.parametrize("name", [name for name, family in ROTATIONS.items() if family.head_dim is not None])
def test_width_where_none_is_given(name: str) -> None:
    family, config = ROTATIONS[name], {"hidden_size": 480, "num_attention_heads": 4, "num_key_value_heads": 4}
    result = model_of(name)[0].from_dict(dict(config))
    key = "qk_rope_head_dim" if family.latent else "head_dim"
    width = result.per_layer_config["sliding_attention"].head_dim if family.full_head_dim else getattr(result, key)
    assert width == family.head_dim


@pytest.mark.parametrize(
    "name", [name for name, family in ROTATIONS.items() if family.head_dim is None and not family.fixed]
)
def test_width_is_the_quotient_elsewhere(name: str) -> None:
    config, _, _ = model_of(TEXT.get(name, name))
    fields = {key: value for key, value in vars(config).items() if key in ("head_dim", "kv_channels")}
    assert not isinstance(fields.get("head_dim"), int)
    assert not isinstance(fields.get("kv_channels"), int)


def test_granite_rotates_only_where_its_config_says_rope() -> None:
    _, _, code = model_of("granitemoehybrid")
    assert 'config.position_embedding_type == "rope"' in inspect.getsource(code)


TEXT = {"qwen2_vl": "qwen2_vl_text", "qwen2_5_vl": "qwen2_5_vl_text", "ernie4_5_moe_vl": "ernie4_5_vl_moe_text"}
EVIDENCE = {  # what the code of a family with this encoding must hold, by the words for the encoding
    learned(1).text: r"(position_embeddings?|embed_positions|wpe|positions_embed|position_embeds_layer)\s*=\s*"
    r"(nn\.Embedding|\w*Positional\w*Embedding|\w*Embeddings?\()|position_embedding_type|PositionEmbedding|BertModel\(",
    learned_after_padding(1).text: r"padding_idx\s*\+\s*1|offset = 2|\+ 2\b|incremental_indices",
    SINUSOIDAL.text: r"[Ss]inusoidal|positional_encoding|pos_encoding",
    t5_bias().text: r"relative_attention_bias = nn\.Embedding",
    ALIBI.text: r"alibi",
    TRANSFORMER_XL.text: r"rel_?shift|relative_shift|relative_positional",
    patches(1, 1).text: r"position_embeddings? = nn\.Parameter|position_embedding\w* = nn\.(Embedding|Parameter)|"
    r"pos_embed",
    SWIN.text: r"relative_position_bias_table",
    LOG_CPB.text: r"continuous_position_bias|relative_coords_table",
}  # fmt: skip


@pytest.mark.parametrize(
    "name", sorted(name for name, family in NON_ROTARY.items() if not any(item.switched_by for item in family.schemes))
)
def test_code_of_models_without_a_rotation(name: str) -> None:
    try:
        _, _, code = model_of(name)
    except LookupError:
        assert name in ("barthez", "transfo-xl"), f"transformers has no {name}"
        return
    source = inspect.getsource(code)
    rotates = re.search(r"apply_rotary|RotaryEmbedding\(", source)
    of_images = ("glm5_next_text", "inkling2_text")  # whose files hold a vision tower too
    assert rotates is None or name in ("jamba", "nemotron_h", *of_images), "its code rotates something"
    for scheme in NON_ROTARY[name].schemes:
        evidence = next((pattern for known, pattern in EVIDENCE.items() if scheme.text.endswith(known)), "")
        assert re.search(evidence, source), f"no {evidence} for {scheme.text}"


def test_our_reading_of_these_configurations_is_reported() -> None:
    read = read_rope({"model_type": "solar_open", "rope_parameters": {FULL: {"rope_type": "default"}}})
    assert "rope_parameters" in {finding.key for finding in read.findings}


# Configs that `posenc extend --config-only` and `posenc convert` write, opened by transformers.


def meaning(config: dict[str, Any]) -> Any:
    """What transformers reads of the rotation; "type" repeats rope_type, and a share of 1 says nothing."""

    def simplified(block: Any) -> Any:
        if not isinstance(block, dict):
            return block
        return {
            key: simplified(value)
            for key, value in block.items()
            if key != "type" and (key, value) != ("partial_rotary_factor", 1.0)
        }

    copied = json.loads(json.dumps(config))
    return simplified(transformers.AutoConfig.for_model(**copied).get_text_config().to_dict().get("rope_parameters"))


@pytest.mark.parametrize("spelling", ["both", "v5"])
@pytest.mark.parametrize("model", PUBLISHED)
def test_converted_configs_are_read_alike(model: str, spelling: str) -> None:
    config = next(line["config"] for line in configs("published_configs") if line["model"] == model)
    try:
        before, converted = meaning(config), convert_config(config, spelling).config
    except (ValueError, KeyError) as error:  # transformers does not have the model type, or nothing can be converted
        pytest.skip(str(error)[:80])
    assert meaning(converted) == before
