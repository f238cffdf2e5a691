"""Encodings attached to live transformers models, and the smallest model of each family to attach them to."""

from __future__ import annotations

import copy
import inspect
import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from posenc.hf import model_from_config
from posenc.hf.attach import attach, detach
from posenc.hf.families import ROTATIONS
from tests.hf.explanation.whole_layer import Gap, gaps, layers_of
from tests.hf.sizes import BY_TORCH, CLASSES, EMBEDDED, LATER, LENGTH, MORE, TINY
from tests.hf.transformers_models import TEXT, model_of

SCALED: dict[str, Callable[[Any], float]] = {  # what queries and keys carry before they are turned
    "esm": lambda module: module.attention_head_size**-0.5,
    "openai_privacy_filter": lambda module: module.scaling**2,
}


def compared(name: str, **changes: Any) -> list[Gap]:
    """How far each layer of the smallest model of a family is from ours, built from the same configuration."""
    model = built(name, **changes)
    call = inputs(model, name)
    layers = layers_of(model, lambda: model(**call))
    full = {**copy.deepcopy(model.config.to_dict()), "model_type": name}
    return gaps(layers, model_from_config(full), SCALED.get(name))


def built(name: str, **changes: Any) -> nn.Module:
    """The smallest model of a family, with random weights that make its scores matter.

    Raises:
        LookupError: where its code has no model class for the configuration.
    """
    cls, _, code = model_of(TEXT.get(name, name))
    known = {*inspect.signature(cls).parameters, *dir(cls)}
    on = ROTATIONS[name].rotates_if if name in ROTATIONS else None
    known = {key for key in known if not isinstance(getattr(cls, key, 0), property)}
    sizes = {key: value for key, value in TINY.items() if key in known}
    config = cls(**{**sizes, **(dict([on]) if on else {}), **MORE.get(name, {}), **changes})
    config._attn_implementation = "sdpa" if name in BY_TORCH else "eager"
    for key, value in LATER.get(name, {}).items():
        setattr(config, key, value)
    torch.manual_seed(0)
    model: nn.Module = _class(name, cls, code)(config).eval()
    randomize(model)
    return model


def _class(name: str, cls: Any, code: Any) -> Any:
    if name in CLASSES:
        return getattr(code, CLASSES[name])
    result = [
        item for item in vars(code).values()
        if inspect.isclass(item) and issubclass(item, transformers.PreTrainedModel) and item.__module__ == code.__name__
        and getattr(item, "config_class", None) is cls and re.search(r"(?<!PreTrained)Model$", item.__name__)
    ]  # fmt: skip
    if not result:
        raise LookupError(f"{code.__name__} has no model class for {cls.__name__} alone")
    return result[0]


_QK_NORMS = re.compile(r"\b(q|k|query|key)_(layer)?norm\.weight$|qk_norm|\b(q|k)_ln")


def randomize(model: nn.Module) -> None:
    """Weights that give states of about one and scores that differ; sinks and temperatures that are not nothing."""
    source = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "sink" in name or name.endswith(("softmax_scaling.scale", "softmax_scaling.bias")):
                weight.copy_(torch.randint(-16, 16, weight.shape, generator=source) / 16)
            elif weight.ndim >= 2:
                weight.normal_(generator=source)
                weight.mul_(1.0 if re.search("embed|wte", name) else 1.3 / weight[0].numel() ** 0.5)
            elif _QK_NORMS.search(name) or name.endswith(".temp"):  # Zaya's factor on keys begins with nothing
                weight.copy_(0.3 + 0.4 * torch.rand(weight.shape, generator=source))


def inputs(model: nn.Module, name: str) -> dict[str, Any]:
    """What the model is called with: one text of `LENGTH` tokens."""
    wants = inspect.signature(model.forward).parameters
    source = torch.Generator().manual_seed(0)
    tokens = torch.randint(3, 60, (1, LENGTH), generator=source)
    result: dict[str, Any] = {"use_cache": False} if "use_cache" in wants else {}
    if "input_features" in wants and "inputs_embeds" not in wants:
        bins = model.config.num_mel_bins
        many = LENGTH * 2 if name == "glmasr_encoder" else LENGTH * 4 + 12
        shape = (1, bins, many) if name == "glmasr_encoder" else (1, many, bins)
        return {"input_features": torch.randn(shape, generator=source)}
    if name == "idefics":
        result["image_encoder_embeddings"] = torch.randn(1, 1, 5, 32, generator=source)
        result["image_attention_mask"] = torch.ones(1, LENGTH, 1)
    if name in ("moonshine", "moonshine_streaming", "dia_decoder"):
        result["encoder_hidden_states"] = torch.randn(1, 5, 64, generator=source)
    if name == "blt_global_transformer":  # whose whole model makes the mask
        result["attention_mask"] = torch.full((1, 1, LENGTH, LENGTH), -torch.inf).triu(1)
    if name == "voxtral_realtime_text":
        result["t_cond"] = torch.randn(1, 1, 64, generator=source)
    if name == "dia_decoder":
        tokens = tokens[..., None].expand(-1, -1, 2)
    if "input_ids" in wants and name not in EMBEDDED:
        return {**result, "input_ids": tokens}
    width = model.config.hidden_size
    states: Tensor = torch.randn(1, LENGTH, width, generator=source)
    key = "inputs_embeds" if "inputs_embeds" in wants else "hidden_states"
    return {**result, key: states}


# What must hold of encodings attached to a family's smallest model, for its own rotation and for others.


class Itself(NamedTuple):
    """What came out.

    Attributes:
        gap: between the states with and without, relative to the largest, or to 1.
        without: the same gap with no position at all.
        back: whether the model is to the bit what it was, after `detach`.
        same: whether the tokens generated behind padding are the same; None: no language model of this family.
    """

    gap: float
    without: float
    back: bool
    same: bool | None


@torch.no_grad()
def itself(name: str) -> Itself:
    """Attach a model's own rotation, nothing, and generate.

    Raises:
        ValueError: where `attach` or the call refuses.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = built(name)
        call = inputs(model, name)
        before = model(**call)[0]
        attach(model, "own")
        try:
            own_rotation = model(**call)[0]
        finally:
            detach(model)
        back = torch.equal(model(**call)[0], before)
        bare = attach(model, "nope")(**call)[0]
        detach(model)
        largest = float(before.abs().max().clamp(min=1))
        gaps = (float((output - before).abs().max()) / largest for output in (own_rotation, bare))
        return Itself(*gaps, back, _generates(model.config))


def _generates(config: Any) -> bool | None:
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return None
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    randomize(model)
    ids = torch.randint(3, 60, (2, 8), generator=torch.Generator().manual_seed(3))
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    options = {"attention_mask": mask, "max_new_tokens": 8, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    before = model.generate(ids, **options)
    return bool(torch.equal(attach(model, "own").generate(ids, **options), before))


LEARNED = ("alibi", "fox", "cope", "stick-breaking", "t5")  # with and without parameters, token states and softmax


def decoder(name: str, **changes: Any) -> Any:
    """A family's smallest model of two layers, with its head."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = built(name, num_hidden_layers=2, **changes).config
        model = AutoModelForCausalLM.from_config(config).eval()
    randomize(model)
    return model


def tokens(rows: int = 2, count: int = 12) -> Tensor:
    """Any text."""
    return torch.randint(3, 60, (rows, count), generator=torch.Generator().manual_seed(0))


def move(model: nn.Module) -> None:
    """New parameters away from where they begin, so that they matter."""
    source = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".posenc." in name:
                weight.add_(0.3 * torch.randn(weight.shape, generator=source))


@torch.no_grad()
def calls_agree(model: Any, *, packs: bool = True) -> None:
    """Steps, padding before a text, and packed texts give what the texts give by themselves, to 1e-4.

    ``packs``: whether the model's own code tells packed texts apart by their positions.
    """
    ids = tokens()
    full = model(ids).logits
    cache, steps = None, []
    for part in (slice(0, 5), slice(5, 6), slice(6, 7), slice(7, 12)):
        out = model(ids[:, part], past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        steps.append(out.logits)
    torch.testing.assert_close(torch.cat(steps, 1), full, rtol=0, atol=1e-4)
    padded, mask = torch.cat([ids[:, :3] * 0, ids], 1), torch.ones(2, 15, dtype=torch.long)
    mask[:, :3] = 0
    places = (mask.cumsum(1) - 1).clamp(min=0)
    behind = model(padded, attention_mask=mask, position_ids=places).logits[:, 3:]
    torch.testing.assert_close(behind, full, rtol=0, atol=1e-4)
    if not packs:
        return
    row, restart = ids.reshape(1, 24), torch.arange(12).repeat(1, 2)
    packed = model(row, position_ids=restart, use_cache=False).logits.view(2, 12, -1)
    torch.testing.assert_close(packed, full, rtol=0, atol=1e-4)


def loss_falls(model: Any, steps: int = 5) -> None:
    """Training on one batch lowers its loss, and every new parameter has a gradient."""
    ids = tokens()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(steps):
        loss = model(ids, labels=ids).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        new = {name: weight for name, weight in model.named_parameters() if ".posenc." in name}
        assert all(weight.grad is not None for weight in new.values()), new.keys()
        optimizer.step()
    assert losses[-1] < losses[0] - 0.1, losses
