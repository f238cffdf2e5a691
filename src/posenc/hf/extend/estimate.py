"""Estimates of what an extension takes: seconds of all readings that are left, and memory of the longest one.

A reading of n tokens costs, in floating-point operations,

    cost(n) = 2 · P · n + 2 · L · H · n²

with P parameters of the layers, L layers and H channels of all query heads: matrix products of the weights, then half
of the attention matrix (causal) for logits and for values. Seconds are cost times the pace of the readings so far, at
first of one short probe. Mixtures of experts, other kernels at other lengths and offloading change the pace, so that
every line says "about".

Memory of the longest reading is a sum of what the code keeps at once: the weights as they are loaded, the states and
the feed-forward activations of one layer, the logits that are scored, the attention matrix where the implementation
builds it ("eager"), and the key/value cache where texts are decoded.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from posenc.evaluation.likelihood import device_of, token_losses

_PROBE = 256  # tokens of the probe: enough to outweigh the overhead of calls
_PROBES = 3
_STATES = (
    8  # copies of the states of a layer that live at once: input, norm, queries, keys, values, output, residual, next
)


class Workload:
    """The readings that are left, by their length in tokens, and the pace of those that were made.

    Args:
        model: on its device.
        readings: how many texts of each length are to be read.
    """

    def __init__(self, model: nn.Module, readings: Mapping[int, int]) -> None:
        sizes: Any = text_config_of(model)
        embedded = {id(weight) for module in model.modules() if isinstance(module, nn.Embedding)
                    for weight in module.parameters()}  # fmt: skip
        self._parameters = sum(weight.numel() for weight in model.parameters() if id(weight) not in embedded)
        heads = sizes.num_attention_heads
        self._attention: int = (
            sizes.num_hidden_layers * heads * (getattr(sizes, "head_dim", None) or sizes.hidden_size // heads)
        )
        self.left = Counter(readings)
        self._read = self._seconds = 0.0

    def cost(self, tokens: int) -> float:
        """Of one reading, in floating-point operations."""
        return 2.0 * self._parameters * tokens + 2.0 * self._attention * tokens**2

    def probe(self, model: nn.Module, tokens: Tensor) -> None:
        """Time short readings after a warm-up; the first real reading replaces their pace."""
        piece = tokens[: min(_PROBE, len(tokens))]
        token_losses(model, piece, 1)
        seconds = []
        for _ in range(_PROBES):
            start = time.perf_counter()
            token_losses(model, piece, 1)  # copies its losses to the processor, so that a GPU has finished
            seconds.append(time.perf_counter() - start)
        self._pace = min(seconds) / self.cost(len(piece))  # whatever else the machine does only adds to a reading

    def done(self, tokens: int, seconds: float | None, count: int = 1) -> None:
        """Note readings that were made; seconds None: they were known already."""
        self.left[tokens] -= count
        if seconds:
            self._read, self._seconds = self._read + count * self.cost(tokens), self._seconds + seconds
            self._pace = self._seconds / self._read

    @property
    def seconds_left(self) -> float:
        """Of all readings that are left, at the pace so far."""
        return self._pace * sum(self.cost(n) * count for n, count in self.left.items() if count > 0)

    def time_left(self) -> str:
        """The same in words."""
        return f"about {duration(self.seconds_left)} left"


def duration(seconds: float) -> str:
    """Seconds in words, in the unit in which one would say them.

    >>> duration(0.2), duration(40), duration(600), duration(9000)
    ('1 s', '40 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def text_config_of(model: nn.Module) -> Any:
    """The configuration of a model's text part."""
    config: Any = model.config
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def memory_needed(model: nn.Module, length: int, scored: int, *, decodes: bool) -> dict[str, int]:
    """Bytes of the longest reading, by what they hold.

    Args:
        model: as it is loaded.
        length: tokens of the reading.
        scored: tokens whose logits are computed.
        decodes: whether a text of this length is decoded with a cache.
    """
    sizes: Any = text_config_of(model)
    weights = [*model.parameters(), *model.buffers()]
    width = next((weight.element_size() for weight in weights if weight.is_floating_point()), 4)
    heads = sizes.num_attention_heads
    key_heads = getattr(sizes, "num_key_value_heads", None) or heads
    head_dim = getattr(sizes, "head_dim", None) or sizes.hidden_size // heads
    inner = getattr(sizes, "intermediate_size", None) or 4 * sizes.hidden_size
    eager = getattr(sizes, "_attn_implementation", None) == "eager"
    parts = {
        "weights": sum(weight.numel() * weight.element_size() for weight in weights),
        "activations": length * (_STATES * sizes.hidden_size + 3 * inner) * width,
        "logits": 3 * (scored + 1) * sizes.vocab_size * 4,  # as computed, in float32, and their softmax
        "attention matrix": 2 * heads * length**2 * 4 if eager else 0,
        "key/value cache": 2 * sizes.num_hidden_layers * key_heads * head_dim * length * width if decodes else 0,
    }
    return {name: size for name, size in parts.items() if size}


def memory_free(model: nn.Module) -> int | None:
    """Bytes that are free on the model's device, in addition to its weights; None where the system does not say."""
    device = device_of(model)
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def memory_text(model: nn.Module, length: int, scored: int, *, decodes: bool) -> str:
    """The estimate of memory in words, with a warning where less is free."""
    parts = memory_needed(model, length, scored, decodes=decodes)
    listed = ", ".join(f"{name} {gigabytes(size)}" for name, size in parts.items())
    text = f"memory at {length:,} tokens: about {gigabytes(sum(parts.values()))} ({listed})"
    free, more = memory_free(model), sum(parts.values()) - parts["weights"]
    if free is None:
        return text
    text += f"; {gigabytes(free)} are free in addition to the weights"
    if more > free:
        text += ", which is too little: use a shorter --length, another --device or --device-map auto"
    return text


def gigabytes(size: int) -> str:
    """Bytes in words.

    >>> gigabytes(3 * 10**9), gigabytes(4 * 10**6)
    ('3.0 GB', '0.004 GB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 5e7 else f"{size / 1e9:.3f} GB"


@contextmanager
def within_memory(model: nn.Module, tokens: int, *, trains: bool = False) -> Iterator[None]:
    """Let a lack of memory become a ValueError of one line, which says at how many tokens and what to do.

    Args:
        model: on its device.
        tokens: of a reading, or of a row that is trained on.
        trains: whether gradients and the optimizer need memory too.
    """
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise _too_little(model, tokens, trains) from error
    except RuntimeError as error:  # of the allocator of the processor, and of MPS
        if "can't allocate memory" not in str(error) and "out of memory" not in str(error):
            raise
        raise _too_little(model, tokens, trains) from error


def _too_little(model: nn.Module, tokens: int, trains: bool) -> ValueError:
    if trains:
        what = (
            f"training on rows of {tokens:,} tokens: use fewer --tokens, a smaller --batch, LoRA (--rank 16) or another"
        )
        return ValueError(f"device {device_of(model)}: its memory does not suffice for {what} --device")
    return ValueError(
        f"device {device_of(model)}: its memory does not suffice for {tokens:,} tokens: use a shorter --length, a "
        "smaller --dtype, another --device or --device-map auto"
    )
