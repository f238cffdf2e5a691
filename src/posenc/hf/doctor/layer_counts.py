"""Compares the numbers of layers, the norms and the biases that the weights have with the config."""

from __future__ import annotations

import re
from collections.abc import Iterator

from posenc.hf.config.layer_kinds import layer_kinds
from posenc.hf.doctor.attention_shapes import Mismatch
from posenc.hf.doctor.head_sizes import head_sizes
from posenc.hf.doctor.model_parts import Part
from posenc.hf.families.layer_patterns import NO_ATTENTION
from posenc.hf.families.saved_tensors import (
    BIAS_BY_DEFAULT,
    BIAS_BY_KEY,
    BIASED,
    NORMED,
    NORMED_BY_KEY,
    OTHER_OUTPUTS,
    SHARED_KEYS,
    UNBIASED,
    UNNORMED,
    VARYING,
)
from posenc.hf.limits import is_count

_PREDICTION = re.compile(r"^(eh_proj|enorm|hnorm|shared_head|mtp)")  # heads that predict more than the next token
_PREDICTION_KEYS = ("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers", "num_mtp_layers")
_BIAS = re.compile(r"^(?:self_attn|attention|attn|self_attention)\.([qkv])_proj\.(weight|bias)$")
_PROJECTION = re.compile(r"^self_attn\.([qkvo])_proj\.weight$")
_QUERIES = re.compile(r"^(?:self_attn|self_attention|attention|attn)\.(?:q_proj|qkv_proj|query_key_value)\.")
_RECURRENT = re.compile(r"^(?:linear_attn|conv|mamba|short_conv|temporal_block\.conv_1d)\.")
_NORM = re.compile(r"^(?:self_attn|attention|attn)\.([qk])_(?:norm|layernorm)\.weight$")


def on_layers(part: Part, covered: set[str]) -> Iterator[Mismatch]:
    """Layers, norms and biases that are missing, or that the code does not read."""
    if part.config.model_type in VARYING or part.config.model_type == "albert":  # whose layers share weights
        return
    yield from _on_count(part)
    yield from _on_biases(part)
    yield from _on_norms(part)
    yield from _on_lost(part)
    yield from _on_mixers(part)


def _on_count(part: Part) -> Iterator[Mismatch]:
    count = head_sizes(part)[0].layers
    numbers = {n for n, tensors in part.layers.items() if not any(map(_PREDICTION.match, tensors))}
    if count is None or not numbers:
        return
    missing = tuple(n for n in range(count.value) if n not in part.layers)
    more = sum(number for key in _PREDICTION_KEYS if is_count(number := part.config.get(key)))
    extra = tuple(sorted(n for n in numbers if n >= count.value + more))
    prefix = part.prefix or "layers"
    if missing:
        last = max(numbers) + 1
        at_the_end = missing == tuple(range(last, count.value))
        text = f"is {count.value}, but the weights have {len(numbers)} layers under {prefix}, and not these"
        text += ": the missing layers start at random, and no loader stops for it"
        candidates = (
            (({count.key: last}, False),) if at_the_end and count.explicit and "layer_types" not in part.config else ()
        )
        yield Mismatch("layers-missing", count.key, text, part, missing, candidates)
    elif extra:
        text = (
            f"is {count.value}, but the weights have {len(numbers)} layers under {prefix}: these are not loaded, and "
        )
        text += "the model ends early"
        last = max(numbers) + 1
        candidates = (({count.key: last}, False),) if count.explicit and "layer_types" not in part.config else ()
        yield Mismatch("layers-unread", count.key, text, part, extra, candidates)


def _on_biases(part: Part) -> Iterator[Mismatch]:
    model_type, flag = part.config.model_type, part.config.get("attention_bias")
    key = flag if isinstance(flag, bool) else model_type in BIAS_BY_DEFAULT
    with_bias: list[int] = []
    without: list[int] = []
    for number, tensors in sorted(part.layers.items()):
        matches = [match for rest in tensors if (match := _BIAS.match(rest))]
        weights, biases = ({match[1] for match in matches if match[2] == kind} for kind in ("weight", "bias"))
        if weights:
            (with_bias if biases >= weights else without).append(number)
            if biases and biases < weights:  # of some projections alone: these would be dropped, others made anew
                with_bias.append(number)
    by_key = model_type in BIAS_BY_KEY
    if with_bias and ((by_key and not key) or model_type in UNBIASED):
        what = "attention_bias" if by_key else "q_proj.bias"
        what_it_is = "false" if flag is False else "not given, which means false"
        text = f"is {what_it_is}, but the weights have biases of q_proj, k_proj or v_proj"
        text = text if by_key else f"and its kin are in the weights, and the code of {model_type} has no biases there"
        text += ": they are dropped as the model loads, and every attention logit changes"
        yield Mismatch("biases-unread", what, text, part, tuple(with_bias),
                       (({"attention_bias": True}, True),) if by_key and not without else ())  # fmt: skip
    if without and ((by_key and flag is True) or model_type in BIASED):
        what = "attention_bias" if by_key else "q_proj.bias"
        text = f"and its kin are missing, and the code of {model_type} adds biases there"
        text = "is true, but q_proj, k_proj and v_proj have no biases" if by_key else text
        text += ": a loader makes new ones, which were never trained"
        yield Mismatch("biases-missing", what, text, part, tuple(without),
                       (({"attention_bias": False}, True),) if by_key and not with_bias else ())  # fmt: skip


def _on_norms(part: Part) -> Iterator[Mismatch]:
    model_type = part.config.model_type
    normed: list[int] = []
    without_norms: list[int] = []
    for number, tensors in sorted(part.layers.items()):
        norms = {match.group(1) for rest in tensors if (match := _NORM.match(rest))}
        if norms:
            normed.append(number)
        if norms != {"q", "k"} and any(rest.startswith("self_attn.q_proj.") for rest in tensors):
            without_norms.append(number)
    switched = part.config.get("use_qk_norm") if model_type in NORMED_BY_KEY else None
    if normed and switched is False:
        text = "is false, but the weights have q_norm and k_norm: they are dropped as the model loads, and every "
        text += "attention logit changes"
        yield Mismatch("norms-unread", "use_qk_norm", text, part, tuple(normed), (({"use_qk_norm": True}, True),))
    if normed and model_type in UNNORMED:
        text = f"and k_norm are in the weights, and the code of {model_type} normalizes neither queries nor keys: they "
        text += "are dropped as the model loads, and every attention logit changes"
        yield Mismatch("norms-unread", "q_norm", text, part, tuple(normed))
    if without_norms and (model_type in NORMED or switched is True):
        text = f"or k_norm is missing, and the code of {model_type} normalizes queries and keys: a loader makes new "
        text += "ones, which were never trained"
        yield Mismatch("norms-missing", "q_norm", text, part, tuple(without_norms))


def _on_lost(part: Part) -> Iterator[Mismatch]:
    """Layers that have some of the four projections."""
    if part.config.model_type not in (NORMED | UNNORMED) - SHARED_KEYS - OTHER_OUTPUTS:
        return
    lost_in: dict[tuple[str, ...], list[int]] = {}
    for number, tensors in sorted(part.layers.items()):
        kinds = {match.group(1) for rest in tensors if (match := _PROJECTION.match(rest))}
        if kinds and kinds != set("qkvo"):
            lost_in.setdefault(tuple(sorted(set("qkvo") - kinds)), []).append(number)
    for lost, numbers in lost_in.items():
        names = " and ".join(f"self_attn.{kind}_proj.weight" for kind in lost)
        text = "is missing next to other projections: a loader makes a new one, which was never trained"
        yield Mismatch("projection-missing", names, text, part, tuple(numbers))


def _on_mixers(part: Part) -> Iterator[Mismatch]:
    """Layers that the config says attend and whose weights are a recurrence or convolution, or the reverse."""
    if part.is_tower or part.role:
        return
    try:
        kinds = layer_kinds(part.config)
    except ValueError:  # reported by the checks of the config
        return
    wrong: list[int] = []
    for number, tensors in sorted(part.layers.items()):
        attends, recurs = (any(map(sign.match, tensors)) for sign in (_QUERIES, _RECURRENT))
        if number < len(kinds) and attends != recurs and attends == (kinds[number] in NO_ATTENTION):
            wrong.append(number)
    if wrong:
        pattern = part.config.family.layers
        key = pattern.types_key if pattern.types_key in part.config else "layer_types"
        if key not in part.config and pattern.listing is not None:
            key = pattern.listing.parent or pattern.listing.key
        listed = kinds[wrong[0]]
        text = f"makes layer {wrong[0]} {listed!r}, and its weights are of "
        text += "attention" if listed in NO_ATTENTION else "a recurrence or a convolution"
        text += ": these tensors are dropped as the model loads, and others start at random"
        yield Mismatch("layer-kinds-differ", key, text, part, tuple(wrong))
