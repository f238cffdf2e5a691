"""Methods of context extension, by name: frequency scalings, LongRoPE's search, and remapped distances.

pi  ntk  part_ntk  ntk_by_parts  yarn  yarn_by_turns  llama3     each also with +resonance
dynamic_ntk                                                      depends on the current length
longrope                                 factors searched on the model's own loss, also with +resonance
longrope2                                                        critical pair and factors, searched by needles
self_extend  rerope  leaky_rerope  dual_chunk  string            remapped distances, unchanged frequencies
lm_infinite  streaming_llm                                       windows plus the first tokens
auto                                                             as the plan says (`posenc.hf.plan.plan`)

What trains (LongRoPE's and LongRoPE2's recipes, DroPE) is in the repository's folder examples/long_context.
"""

from __future__ import annotations

import difflib
import inspect
from typing import Any

from torch import nn

from posenc.arguments import one_line, shown
from posenc.catalogue import encoding_info
from posenc.frequencies.by_name import DYNAMIC, FACTORED, Trained
from posenc.frequencies.modules import YaRN
from posenc.frequencies.resonance import Resonance
from posenc.rotary.rope import RoPE

SEARCHED, BY_NEEDLES, AUTO = "longrope", "longrope2", "auto"
RESONANT = "+resonance"
SEARCHES = (SEARCHED, SEARCHED + RESONANT)
_ROPE_TYPES = {"linear": "pi", "dynamic": "dynamic_ntk"}  # transformers' names, by which --config-only knows them
_TRAINING = ("progressive", "drope")
DISTANCES = ("self_extend", "rerope", "leaky_rerope", "dual_chunk", "string", "lm_infinite", "streaming_llm")
SCALED = (*FACTORED, "dynamic_ntk")
METHODS = (*SCALED, SEARCHED, BY_NEEDLES, *DISTANCES, AUTO)
_NO_ROPE_TYPE = sorted({*DYNAMIC} - {*SCALED})  # scalings that are no rope type of transformers


def check_method(method: object) -> str:
    """The name of a method, also of one under transformers' name for it; a ValueError for any other."""
    method = _ROPE_TYPES.get(method, method) if isinstance(method, str) else method
    name = method.removesuffix(RESONANT) if isinstance(method, str) else None
    if name in _NO_ROPE_TYPE:
        raise ValueError(f"method {name!r} is no rope type of transformers, so no model could load it: use dynamic_ntk")
    if name in _TRAINING:
        raise ValueError(f"method {name} trains: python -m examples.long_context.{name} in a clone of posenc")
    if not isinstance(method, str) or name not in METHODS:
        near = difflib.get_close_matches(str(name), METHODS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {shown(method)}{hint}")
    if method != name and name not in (*FACTORED, SEARCHED):
        rounded = ", ".join((*FACTORED, SEARCHED))
        raise ValueError(f"method: {RESONANT} rounds the frequencies of a factor ({rounded}), got {method!r}")
    return method


def scaled_rope(rope: RoPE, method: str, factor: float, original_length: int) -> RoPE:
    """A rotation whose frequencies are scaled; what it was scaled by before stays, and YaRN over YaRN is one factor.

    Args:
        rope: of the trained model.
        method: one of `SCALED`, or with ``+resonance``.
        factor: how many times longer.
        original_length: tokens.

    Raises:
        ValueError: for a method that does not start from frequencies that are scaled already.
    """
    if method == "yarn" and isinstance(rope.scaling, YaRN):
        options = {name: getattr(rope.scaling, name) for name in inspect.signature(YaRN).parameters}
        options["factor"] = factor * original_length / rope.scaling.original_length
        return rope.replace(scaling=YaRN(**options))
    trained = Trained(original_length, rope.rotary_dim // 2)
    scaling = {**FACTORED, **DYNAMIC}[method.removesuffix(RESONANT)](factor, trained)
    if method.endswith(RESONANT):
        scaling = nn.Sequential(scaling, Resonance())
    composed = scaling if rope.scaling is None else nn.Sequential(rope.scaling, scaling)
    try:
        return rope.replace(scaling=composed)
    except ValueError as error:
        has = one_line(rope.scaling)
        remapped = "no method that scales frequencies can; self_extend remaps distances instead"
        advice = remapped if rope.length_dependent else "use pi or ntk"
        raise ValueError(
            f"model: its frequencies are scaled already, by {has}, which {method} cannot start from: {advice}"
        ) from error


def remapping_spec(method: str, original_length: int, length: int) -> dict[str, Any]:
    """The encoding for `posenc.hf.attach` that remaps distances of up to ``length`` into the training range.

    Raises:
        ValueError: for a length that the method does not reach.
    """
    entry = encoding_info(method)
    options: dict[str, Any] = {**entry.lengths(original_length)}
    if method == "string":  # no distance may be new: those beyond the shift are reduced by shift − local
        options["shift"] = length - original_length + options["local"]
        if options["shift"] > original_length:
            longest = 2 * original_length - options["local"]
            raise ValueError(f"length: string reaches {longest:,} tokens from {original_length:,}, got {length:,}")
    shape = {**options, "train_length": original_length, "max_length": length}
    return {"name": method, "options": {**options, **entry.defaults(shape), "rotation": "own"}}
