"""Made-up measurements of texts: each spec has its bits at 1×, 2× and 16×, and all share windows and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from posenc.lab.cost import Costs
from posenc.lab.cost.conditions import Conditions
from posenc.lab.cost.results import LAYER_PASSES, MODEL_PASSES, Cost, Parameters
from posenc.lab.record import RunRecord
from posenc.lab.tasks.task import Measured
from posenc.lab.text.corpus import Facts
from posenc.lab.text.profiles import Settings
from posenc.lab.text.table import Row, rows_of

SETTINGS = Settings(train_length=64, lengths=(1, 2, 16), windows=24)
FACTS = Facts("tales", 9000, 3, "aa" * 32, 1000, 1, "bb" * 32, 4.5, 2.02, 1.72)
RECORD = RunRecord(SETTINGS, FACTS, {"torch": "2.13"}, {"processor": "fast", "cores": "4"}, "posenc compare")
BITS: Mapping[str, Sequence[float | None]] = {
    "fox": (1.64, 1.63, 1.63), "alibi": (1.67, 1.66, 1.67), "t5": (1.60, 1.61, 1.73), "rope": (1.68, 4.4, 5.7),
    "rope+window": (1.68, 1.68, 1.68), "nope": (2.08, 2.9, 5.0), "learned": (1.79, None, None),
    "sinusoidal": (1.75, 5.8, 6.6),
}  # fmt: skip
MANY = {**BITS, **{name: (1.7 + n / 50, 2.5, 2.6 + n / 4) for n, name in enumerate(("xpos", "fire", "cope", "shaw"))}}
TRAINING = {
    "parameters": 869504.0, "encoding_parameters": 0.0, "bytes_per_second": 13000.0, "loss_bits": 1.8,
    "grad_norm_median": 0.5, "grad_norm_p95": 1.1, "grad_norm_max": 4.0, "clipped_share": 0.07, "peak_memory": 5e8,
    "seconds": 900.0,
}  # fmt: skip


def made_up(
    bits: Mapping[str, Sequence[float | None]] = BITS, seeds: Sequence[int] = (0, 1, 2), machine: str = "fast"
) -> dict[str, list[Measured]]:
    """Of each spec with each seed. What fails scatters ten times as much as what does not."""
    chance = np.random.default_rng(7)
    texts, of_seed = chance.normal(0, 0.2, 24), chance.normal(0, 0.01, 9)
    found: dict[str, list[Measured]] = {}
    for number, (spec, means) in enumerate(bits.items()):
        own = np.random.default_rng(number)
        for seed in seeds:
            values: list[list[float] | None] = []
            for mean in means:
                wide = 0.1 if mean is not None and mean > 2.2 else 0.01
                noise = own.normal(0, wide) + own.normal(0, wide, 24)
                values.append(None if mean is None else list(np.round(mean + texts + of_seed[seed] + noise, 5)))
            last = [mean for mean in means if mean is not None][-1]
            found.setdefault(spec, []).append(
                {
                    "bits": values, "positions": [last] * (64 if means[-1] is not None else 4), "bin": 16,
                    "seed": seed, "machine": {"processor": machine, "cores": "4"}, "training": TRAINING,
                }
            )  # fmt: skip
    return found


def rows(bits: Mapping[str, Sequence[float | None]] = BITS, seeds: Sequence[int] = (0, 1, 2)) -> list[Row]:
    """The same as rows."""
    return rows_of(made_up(bits, seeds))


def costs(**relative: float) -> Costs:
    """What encodings cost, as multiples of nope; by default ALiBi a little, RoPE a lot."""
    ratios = {"nope": 1.0, **(relative or {"alibi": 1.02, "rope": 1.3})}
    conditions = Conditions(128, 4, 4, 352, 64, 32, "float32", "cpu", 1, (64, 1024), 0.1)
    cells = [
        Cost(spec, work, length, ratio, ratio, ratio - 0.01, ratio + 0.01, int(1e6 * ratio * length), "sdpa", 9)
        for spec, ratio in ratios.items()
        for work, lengths in {**dict.fromkeys(LAYER_PASSES, (64, 1024)), **dict.fromkeys(MODEL_PASSES, (64,))}.items()
        for length in lengths
    ]
    parameters = {spec: Parameters(869504, 0) for spec in ratios}
    return Costs(conditions, parameters, tuple(cells), {"torch": "2.13"}, {"processor": "fast"}, "posenc cost")
