"""Some short random calls of each encoding by itself, whose options the few quick calls of all kinds may leave out."""

from __future__ import annotations

import pytest

from tests.fuzz.draw import Draw
from tests.fuzz.random_call import BIAS, GRID, MOVED, ROTARY, SCORE, WEIGHT, draw_call
from tests.fuzz.refusals import legitimate, must_refuse
from tests.fuzz.test_attention import MODES

SEED, CALLS = 40_000_000, 5
KINDS = dict.fromkeys((*ROTARY[1], *BIAS[1], *SCORE[1], *WEIGHT, *MOVED), 1)  # and their axes
KINDS |= {kind: axes for axes in (3, 2) for kind in (*ROTARY[axes], *BIAS[axes], *SCORE[axes]) if kind in GRID}


@pytest.mark.parametrize("kind", KINDS)
def test_short_calls_agree(kind: str) -> None:
    for seed in range(SEED, SEED + CALLS):
        draw = Draw(seed)
        keys = draw.integer(1, 12)
        call = draw_call(seed, kinds=[kind], axes=KINDS[kind], lengths=(draw.integer(1, keys), keys))
        if must_refuse(call) is not None:
            continue
        try:
            MODES[draw.weighted({"plain": 7, "backward": 3})](call, draw)
        except ValueError as error:
            assert legitimate(error, call), f"{call}\n  {error}"  # noqa: PT017
        except AssertionError as error:
            raise AssertionError(f"{call}\n  {error}") from error
