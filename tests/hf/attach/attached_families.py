"""What must hold of encodings attached to a family's smallest model, for its own rotation and for others."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from posenc.hf.attach import attach, detach
from tests.hf.attach.smallest import built, inputs, randomize


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
