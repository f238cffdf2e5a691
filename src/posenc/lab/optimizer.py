"""AdamW with a group for the encodings' parameters, and the schedule: warm-up, constant, linear decay.

Adam moves a parameter by about the learning rate a step, whatever its gradient. A bias that must reach several
units would never get there at the rate of a weight of 0.02, so an encoding's parameters have a rate of their own.
"""

from __future__ import annotations

import torch
from torch import nn

from posenc.lab.config import Training
from posenc.lab.model import LabModel

BETAS = (0.9, 0.95)


def make_optimizer(model: LabModel, training: Training) -> torch.optim.AdamW:
    """Three kinds of groups: matrices (decayed), vectors, and the encodings' parameters by their rate."""
    own = model.lr_multipliers
    shared = [parameter for parameter in model.parameters() if parameter not in own]
    groups = [
        _group("matrices", [p for p in shared if p.dim() >= 2], training.weight_decay, 1.0),
        _group("vectors", [p for p in shared if p.dim() < 2], 0.0, 1.0),
    ]
    for multiplier in sorted(set(own.values())):
        groups.append(_group("encoding", [p for p, m in own.items() if m == multiplier], 0.0, multiplier))
    fused = next(model.parameters()).device.type in ("cpu", "cuda")
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=training.lr, betas=BETAS, fused=fused)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give every group its share of the common learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["multiplier"]


def lr_at(step: int, training: Training) -> float:
    """The common learning rate of step 0 ≤ ``step`` < ``training.steps``."""
    warmup = min(training.warmup, training.steps // 5)
    decay = round(training.decay * training.steps)
    rise = (step + 1) / (warmup + 1) if step < warmup else 1.0
    fall = (training.steps - step) / (decay + 1) if step > training.steps - decay - 1 else 1.0
    return training.lr * min(rise, fall)


def _group(name: str, parameters: list[nn.Parameter], weight_decay: float, multiplier: float) -> dict[str, object]:
    return {"name": name, "params": parameters, "weight_decay": weight_decay, "multiplier": multiplier}
