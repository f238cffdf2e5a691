"""What a call may be refused for: what the docs say of an encoding, and nothing else.

A refusal is legitimate where its text matches and the call is of the kind that the reason speaks of. An entry that is
``always`` refuses every such call: a result in its place is a disagreement as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from tests.fuzz.situation import MOVED, Situation
from tests.fuzz.spec import Spec
from tests.fuzz.specs import ROTATIONS


class Refusal(NamedTuple):
    """One thing that the library does not serve, by what its docs say."""

    text: str  # a regular expression of the message
    concerns: Callable[[Situation], bool]
    reason: str
    always: bool = False


def inside(spec: Spec) -> list[Spec]:
    """A spec and all that it holds."""
    found = [spec]

    def collect(value: object) -> None:
        if isinstance(value, Spec):
            found.extend(inside(value))
        elif isinstance(value, list):
            for item in value:
                collect(item)

    for value in spec.options.values():
        collect(value)
    return found


def reads_rotated(spec: Spec) -> bool:
    """Whether it reads queries or keys by themselves, after their rotation."""
    if spec.kind == "Mixture":
        held = inside(spec)[1:]
        return any(s.kind in ROTATIONS or reads_rotated(s) for s in held)
    tied = spec.options.get("tie") == "key" or bool(spec.options.get("rotated"))
    return spec.kind in ("Shaw", "PaTH", "DecomposedRelative", "GRAPEA", "SelectiveRoPE", "GRAPEContext") or (
        spec.kind in ("CoPE", "GRAPEAP") and tied
    )


def causal_only(spec: Spec) -> bool:
    """Whether it has no meaning for keys after the query."""
    if spec.kind == "T5Bias":
        return not spec.options.get("bidirectional")
    if spec.kind == "DataDependentALiBi":
        return spec.options.get("form") == "rows"
    return spec.kind in ("XPos", "GRAPEAP", *MOVED)


def widened_after_decay(kinds: list[str]) -> bool:
    """Whether PoPE widens queries and keys behind XPos, whose decay acts on them last."""
    return "XPos" in kinds and "PoPE" in kinds[kinds.index("XPos") :]


LEGITIMATE = (
    Refusal(
        r"q must have no more tokens than k where causal=True",
        lambda s: s.options.get("causal", True) is True and s.q.shape[2] > s.k.shape[2],
        "queries are the last of the keys, and here cannot be (Args of attention: causal)",
        always=True,
    ),
    Refusal(
        r"encodings must not hold XPos beside",
        lambda s: any(e.kind == "XPos" for e in s.specs) and any(map(reads_rotated, s.specs)),
        "xPos scales queries and keys for one another: by themselves they mean nothing (docstring of XPos)",
        always=True,
    ),
    Refusal(
        r"k_pos must lie less than .* tokens after the query that sees them .* xPos grows with such distances",
        lambda s: any(e.kind == "XPos" for e in s.specs) and "k_pos" in s.options and s.options["causal"] is True,
        "a key that lies after its query grows with the distance, beyond what the dtype holds (docstring of XPos)",
    ),
    Refusal(
        r"head_dim of this XPos",
        lambda s: widened_after_decay([e.kind for e in s.specs]),
        "the decay acts after all rotations, on other channels than its own (docstrings of XPos and PoPE)",
        always=True,
    ),
    Refusal(
        r"encodings must not hold GRAPEAP beside",
        lambda s: any(e.kind in MOVED for e in s.specs) and any(e.options.get("tie") == "key" for e in s.specs),
        "it reads keys as one rotation leaves them, and there are several (RotaryEncoding.replaces)",
        always=True,
    ),
    Refusal(
        r"q must have no more tokens than k under GRAPEAP",
        lambda s: s.q.shape[2] > s.k.shape[2] and any(e.kind == "GRAPEAP" for p in s.specs for e in inside(p)),
        "queries are tokens of the keys, whose p they have (docstring of GRAPEAP)",
        always=True,
    ),
    Refusal(
        r"causal",
        lambda s: s.options.get("causal", True) is False and any(causal_only(e) for p in s.specs for e in inside(p)),
        "no meaning for keys after the query (docstrings of T5Bias, XPos, DataDependentALiBi, remapped distances)",
        always=True,
    ),
)


def legitimate(error: ValueError, situation: Situation) -> bool:
    """Whether a call may be refused with these words."""
    return any(re.search(refusal.text, str(error)) and refusal.concerns(situation) for refusal in LEGITIMATE)


def must_refuse(situation: Situation) -> Refusal | None:
    """What the docs say of a call that is served nowhere; None for others."""
    return next((refusal for refusal in LEGITIMATE if refusal.always and refusal.concerns(situation)), None)
