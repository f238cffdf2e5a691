"""A rotation in the form that engine plugins read: a block of rope type "posenc".

    theta           radians per token, for each pair
    gain            of rotated queries and keys
    interleaved     the pairs; missing: those that the model's code has
    rotary_dim      channels that rotate
    tokens          rows that the table has at least

The block is written and checked without torch; `posenc.hf.serving.plugins` rotates by it.
"""

from __future__ import annotations

from posenc.arguments import check_flag, check_several, check_whole, one_line, shown
from posenc.frequencies.rotation import RoPESpec
from posenc.hf.config.rope_keys import RULES, Block
from posenc.hf.config.rotation import has_one_spectrum
from posenc.hf.limits import TOKENS, is_number

ROPE_TYPE = "posenc"
_KEYS = ("rope_type", "rope_theta", "theta", "gain", "interleaved", "rotary_dim", "tokens")


def plugin_block(rope: RoPESpec, *, length: int | None = None, tokens: int | None = None) -> Block:
    """The block of rope_parameters that makes the plug-ins rotate as ``rope`` does.

    Args:
        rope: the rotation.
        length: that a length-dependent scaling is to span, in tokens, for all texts.
        tokens: that will be served; default: what the configuration declares.

    Raises:
        ValueError: for something else than a RoPE, and for a scaling without a single spectrum: a spectrum that
            follows the length, without a ``length``; one for each head; another for the first tokens; learned numbers.
    """
    if not isinstance(rope, RoPESpec):
        raise ValueError(f"rope must be a RoPE, got {shown(rope)}")
    if length is not None:
        check_whole("length", length, most=TOKENS)
    spectrum = rope.spectrum(length)
    if not has_one_spectrum(rope, length):
        text = "must give one spectrum: engines have one table for all lengths, heads and tokens"
        raise ValueError(f"rope {text}; declare a length for a scaling that follows it, got {one_line(rope.scaling)}")
    block: Block = {
        "rope_type": ROPE_TYPE, "rope_theta": rope.base, "theta": spectrum.theta.tolist(),
        "gain": float(spectrum.gain), "interleaved": rope.layout == "interleaved", "rotary_dim": rope.rotary_dim,
    }  # fmt: skip
    return block if tokens is None else {**block, "tokens": check_tokens(tokens)}


def check_tokens(tokens: int) -> int:
    """The count of a table's rows; a ValueError unless it is one."""
    check_whole("tokens", tokens, most=TOKENS)
    return tokens


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
