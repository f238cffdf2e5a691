"""Groups of parameters for an optimizer: encodings learn at rates of their own and do not decay.

Weight decay pulls toward zero, which for most parameters of encodings is no neutral place: a T5 or Swin bias of zero,
a FoX gate of one half, an ALiBi-like slope, a frequency of no rotation and a position without an embedding each mean
something. Adam moves a parameter by about the learning rate a step, whatever its
gradient; a bias that must reach several units would not get there at a rate that suits weights of 0.02, hence
`Encoding.lr_multiplier`.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from posenc.arguments import check_number
from posenc.encoding import Encoding


def param_groups(model: nn.Module, *, lr: float, weight_decay: float = 0.1) -> list[dict[str, Any]]:
    """Group a model's trainable parameters for `torch.optim.AdamW`, with a learning rate for encodings.

    Args:
        model: any, with encodings of posenc anywhere inside it; also one that DDP wraps or FSDP2 shards.
        lr: learning rate outside of encodings. Encodings have it times their class's ``lr_multiplier``.
        weight_decay: of matrices outside of encodings. Vectors (biases, gains of norms) and encodings have none.

    Returns:
        Dicts with ``params``, ``lr``, ``weight_decay`` and a ``name``: "matrices", "vectors", and "encodings" for each
        rate; empty groups are left out. A scheduler that multiplies rates keeps their proportions. An encoding inside
        another has the outer one's rate.

    Raises:
        ValueError: for an lr or weight_decay below 0, or a model without parameters that are trained.

    >>> import torch
    >>> from posenc import T5Bias, param_groups
    >>> model = torch.nn.ModuleList([torch.nn.Linear(64, 64), T5Bias(8)])
    >>> [(group["name"], group["lr"], group["weight_decay"]) for group in param_groups(model, lr=0.001)]
    [('matrices', 0.001, 0.1), ('vectors', 0.001, 0.0), ('encodings', 0.03, 0.0)]
    >>> optimizer = torch.optim.AdamW(param_groups(model, lr=0.001))
    """
    check_number("lr", lr, least=0)
    check_number("weight_decay", weight_decay, least=0)
    multipliers: dict[nn.Parameter, float] = {}
    for module in model.modules():  # outer ones first
        if isinstance(module, Encoding):
            for parameter in module.parameters():
                multipliers.setdefault(parameter, module.lr_multiplier)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise ValueError("model must have parameters that are trained, got none")
    unscaled = [parameter for parameter in trained if parameter not in multipliers]
    groups = [
        {"name": "matrices", "params": [p for p in unscaled if p.ndim >= 2], "lr": lr, "weight_decay": weight_decay},
        {"name": "vectors", "params": [p for p in unscaled if p.ndim < 2], "lr": lr, "weight_decay": 0.0},
    ]
    for multiplier in sorted(set(multipliers.values())):
        of_rate = [p for p in trained if multipliers.get(p) == multiplier]
        groups.append({"name": "encodings", "params": of_rate, "lr": lr * multiplier, "weight_decay": 0.0})
    return [group for group in groups if group["params"]]
