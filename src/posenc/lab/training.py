"""The numbers that every training has, whatever is learnt."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Training:
    """How a model is built and trained. A task adds what its data need, and says how many steps that makes."""

    batch_size: int = 32
    dim: int = 128
    layers: int = 4
    heads: int = 4
    lr: float = 2e-3
    weight_decay: float = 0.1  # on matrices
    clip: float = 1.0  # norm that a gradient is clipped to
    warmup: int = 50  # steps, at most a fifth of all
    decay: float = 0.4  # last share of the steps, in which the learning rate falls to 0
    precision: str = "auto"  # of the training; evaluation is in float32
    device: str = "auto"
    threads: int = 1  # of a training process
    processes: int = 1  # that share each batch
    compile: bool = False  # whether the training's blocks are compiled
    shard: bool = False  # whether the processes share the model too
    checkpoint_every: int = 100  # steps; the one number here that decides nothing

    @property
    def hidden(self) -> int:
        """Width of the feed-forward layer: 8/3 of ``dim``, rounded up to a multiple of 32."""
        return 32 * math.ceil(8 * self.dim / 3 / 32)

    @property
    def matrices(self) -> int:
        """Numbers in the matrices of the layers, which are most of a model."""
        return self.layers * (4 * self.dim**2 + 3 * self.dim * self.hidden)

    def shown(self) -> dict[str, str]:
        """Every number that decides a result, in words."""
        return {key.replace("_", " "): str(value) for key, value in asdict(self).items()}
