"""A rotation in the form that engine plugins read: a block of rope type "posenc", and a rotary class.

    theta           radians per token, for each pair
    gain            of rotated queries and keys
    interleaved     the pairs; missing: those that the model's code has
    rotary_dim      channels that rotate
    tokens          rows that the table has at least

Both engines read cos and sin from a table that their class computes in float32, wrong by 0.12 at two million tokens.
Here the table is exact, and everything else, kernels included, is the engine's own.
Source: vLLM and SGLang, layers/rotary_embedding: RotaryEmbedding, get_rope.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from posenc.arguments import check_flag, check_several, check_whole, one_line, shown
from posenc.frequencies.spectrum import Spectrum
from posenc.hf.config.block_schema import RULES, Block
from posenc.hf.limits import TOKENS, is_number
from posenc.rotary._rotation_table import RotationTable
from posenc.rotary.rope import RoPE

ROPE_TYPE = "posenc"
_KEYS = ("rope_type", "rope_theta", "theta", "gain", "interleaved", "rotary_dim", "tokens")


def plugin_block(rope: RoPE, *, length: int | None = None, tokens: int | None = None) -> Block:
    """The block of rope_parameters that makes the plug-ins rotate as ``rope`` does.

    Args:
        rope: the rotation.
        length: that a length-dependent scaling is to span, in tokens, for all texts.
        tokens: that will be served; default: what the configuration declares.

    Raises:
        ValueError: for something else than a RoPE, and for a scaling without a single spectrum: a spectrum that
            follows the length, without a ``length``; one for each head; another for the first tokens; learned numbers.
    """
    if not isinstance(rope, RoPE):
        raise ValueError(f"rope must be a RoPE, got {shown(rope)}")
    if length is not None:
        check_whole("length", length, most=TOKENS)
    spectrum, scaling = rope.spectrum(length), rope.scaling
    learned = scaling is not None and any(True for _ in scaling.parameters())
    if (rope.length_dependent and length is None) or learned or spectrum.theta.ndim > 1 or spectrum.start is not None:
        text = "must give one spectrum: engines have one table for all lengths, heads and tokens"
        raise ValueError(f"rope {text}; declare a length for a scaling that follows it, got {one_line(scaling)}")
    block: Block = {
        "rope_type": ROPE_TYPE, "rope_theta": rope.base, "theta": spectrum.theta.tolist(),
        "gain": float(spectrum.gain), "interleaved": rope.layout == "interleaved", "rotary_dim": rope.rotary_dim,
    }  # fmt: skip
    return block if tokens is None else {**block, "tokens": check_tokens(tokens)}


def check_tokens(tokens: int) -> int:
    """The count of a table's rows; a ValueError unless it is one."""
    check_whole("tokens", tokens, most=TOKENS)
    return tokens


def table(block: Block, start: int, end: int) -> Tensor:
    """cos and sin of positions start … end − 1, ``(end − start, 2 · pairs)``, float32, on the default device."""
    theta = torch.tensor(block["theta"], dtype=torch.float64, device="cpu")
    waves = RotationTable.fixed(Spectrum(theta, None, torch.tensor(block["gain"], dtype=torch.float64, device="cpu")))
    return torch.cat(waves.table(torch.arange(start, end), torch.float32), -1)


def around(base: Callable[[], type[Any]]) -> Callable[..., Any]:
    """An engine's ``get_rope`` with the rope type "posenc": a function (original, *args, **kwargs).

    Args:
        base: gives the engine's RotaryEmbedding.
    """
    modules: dict[str, Any] = {}

    def get_rope(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(original).bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = bound.arguments
        block = arguments.get("rope_parameters") or arguments.get("rope_scaling") or {}
        if block.get("rope_type", block.get("type")) != ROPE_TYPE:
            return original(*args, **kwargs)
        check_block(block, arguments["head_size"])
        if arguments.get("dual_chunk_attention_config") is not None:
            raise ValueError("rope_type 'posenc' has no dual chunks: leave dual_chunk_attention_config out")
        dtype = arguments.get("dtype") or torch.get_default_dtype()
        rows = max(arguments["max_position"], block.get("tokens", 0))
        neox = not block["interleaved"] if "interleaved" in block else arguments["is_neox_style"]
        key = json.dumps([block, arguments["head_size"], rows, neox, str(dtype), str(torch.get_default_device())])
        if key not in modules:  # one module for all layers, as the engines have it
            cls = rotary_class(base(), block)
            width, theta = block.get("rotary_dim", arguments["head_size"]), block.get("rope_theta", 10000.0)
            modules[key] = cls(arguments["head_size"], width, rows, theta, neox, dtype)
        return modules[key]

    return get_rope


def check_block(block: Block, head_size: int) -> None:
    """Raise a ValueError that names the key for what cannot be served."""
    strange = set(block) - set(_KEYS) - set(RULES) - {"type"}  # SGLang merges ours into the file's own block
    if strange:
        raise ValueError(f"rope_parameters has {', '.join(sorted(strange))}, unknown to posenc; known are {_KEYS}")
    theta, width = check_several("theta", block.get("theta", ())), block.get("rotary_dim", head_size)
    if 2 * len(theta) != width or width > head_size or not all(is_number(frequency, 0) for frequency in theta):
        text = f"must be {width // 2} numbers of at least 0, one for each pair of rotary_dim = {width}"
        raise ValueError(f"theta {text}, at most head_size = {head_size}, found {shown(block.get('theta'))}")
    if not is_number(block.get("gain", 1.0), 0, above=True):
        raise ValueError(f"gain must be a number above 0, found {shown(block.get('gain'))}")
    if "interleaved" in block:
        check_flag("interleaved", block["interleaved"])
    if "tokens" in block:
        check_tokens(block["tokens"])


def rotary_class(base: type[Any], block: Block) -> type[Any]:
    """An engine's RotaryEmbedding with the frequencies of a block."""
    values = {"gain": 1.0, **block}

    class Posenc(base):  # type: ignore[misc]
        """The engine's class: its kernels, its interface; the table is posenc's."""

        cos_sin_cache: Tensor

        def _compute_inv_freq(self, base: float) -> Tensor:
            return torch.tensor(values["theta"], dtype=torch.float32)

        def _compute_cos_sin_cache(self) -> Tensor:
            start = getattr(self, "position_start", 0)
            return table(values, start, start + self.max_position_embeddings)

        def _ensure_cos_sin_cache_length(self, needed_max_pos: int) -> None:
            """SGLang's: more rows."""
            old = self.cos_sin_cache
            if needed_max_pos < len(old):
                return
            start = getattr(self, "position_start", 0)
            more = table(values, start + len(old), start + needed_max_pos + 1)
            self.cos_sin_cache = torch.cat([old, more.to(old.device, old.dtype)])

    return Posenc
