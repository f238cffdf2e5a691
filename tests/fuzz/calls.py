"""One random call in one random mode, from one number."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.fuzz import batches, constructors, faults, kinds, modes, states, transforms
from tests.fuzz.draw import Draw
from tests.fuzz.oracle import DisagreementError
from tests.fuzz.refusals import legitimate, must_refuse
from tests.fuzz.situation import Situation, draw_situation

Mode = Callable[[Situation, Draw], float]
MODES: dict[str, Mode] = {
    "plain": modes.plain, "every_path": modes.every_path, "backward": modes.backward, "packed": batches.packed,
    "padded": batches.padded, "decoded": batches.decoded, "same_otherwise": kinds.same_otherwise,
    "refused": faults.refused, "forward_derivative": transforms.forward_derivative,
    "function_gradient": transforms.function_gradient, "mapped": transforms.mapped, "compiled": transforms.compiled,
    "carried": states.carried,
}  # fmt: skip
TEXTS = {"packed", "padded", "decoded"}  # modes that lay texts out themselves
SMALL = {"refused", "same_otherwise", "forward_derivative", "function_gradient", "mapped", "compiled"}
SHARES = {
    "plain": 42.0, "every_path": 10.0, "backward": 15.0, "packed": 5.0, "padded": 5.0, "decoded": 8.0,
    "same_otherwise": 3.0, "refused": 4.0, "constructor": 2.0, "forward_derivative": 1.2, "function_gradient": 1.2,
    "mapped": 1.2, "compiled": 0.4, "carried": 2.0,
}  # fmt: skip
QUICK = {
    "plain": 48.0, "every_path": 8.0, "backward": 10.0, "packed": 5.0, "padded": 5.0, "decoded": 8.0,
    "same_otherwise": 5.0, "refused": 9.0, "carried": 2.0,
}  # fmt: skip


def try_call(seed: int, *, quick: bool = False, mode: str | None = None) -> str:
    """What a call came to: its mode, and "agreed" or "refused".

    Args:
        seed: of the call.
        quick: short texts, and modes that take no compiler.
        mode: default one by the seed.

    Raises:
        DisagreementError: with the call in words, where the library and the definition disagree beyond rounding, where
            it fails other than by a ValueError, and where it refuses what the docs do not say it refuses.
    """
    draw = Draw(seed + 13)  # apart from the situation's, whose first choice would follow from the mode
    mode = draw.weighted(QUICK if quick else SHARES) if mode is None else mode
    if mode == "constructor":
        constructors.refused_at_construction(seed)
        return "constructor refused"
    situation = _situation(seed, draw, mode, quick=quick)
    refusal = must_refuse(situation)
    if refusal is not None and mode != "refused":
        return f"{mode} {_expect(refusal.text, situation)}"
    try:
        MODES[mode](situation, draw)
    except DisagreementError as error:
        raise DisagreementError(f"{mode}: {situation}\n  {error}") from error
    except ValueError as error:
        if legitimate(error, situation):
            return f"{mode} refused"
        raise DisagreementError(f"{mode}: {situation}\n  refused: {error}") from error
    except Exception as error:
        words = f"{type(error).__name__}: {str(error)[:600]}"
        raise DisagreementError(f"{mode}: {situation}\n  {words}") from error
    return f"{mode} agreed"


def _situation(seed: int, draw: Draw, mode: str, *, quick: bool) -> Situation:
    if mode == "carried":
        return states.draw_states(seed, most=10 if quick else 24)
    if mode in TEXTS:
        return batches.draw_batch(seed, most=10 if quick else 24)
    if quick or mode in SMALL:
        keys = draw.whole(1, 12)
        queries = draw.weighted({keys: 6, draw.whole(1, keys): 3, draw.whole(1, keys + 4): 1})
        return draw_situation(seed, lengths=(queries, keys))
    return draw_situation(seed)


def _expect(text: str, situation: Situation) -> str:
    """A call that the docs say is refused."""
    try:
        modes.served(situation)
    except ValueError as error:
        if re.search(text, str(error)) or legitimate(error, situation):
            return "refused"
        raise DisagreementError(f"{situation}\n  refused otherwise than by {text!r}: {error}") from error
    raise DisagreementError(f"{situation}\n  served, where the docs say that it is refused: {text!r}")
