"""What was measured: a line for each encoding, pass and length; kept as cost.csv, with its facts in cost.json.

    spec pass length milliseconds relative low high memory path rounds why

milliseconds of one call, median over the rounds; relative: the same over what `BASE` took in the same round, median,
with a 95 % interval from low to high; memory: bytes of tensors that one call holds at most at the same time, beyond its
inputs and parameters, with a backward pass all gradients among them; path of attention, as `explain` names it; rounds
that were timed; why a number is missing, where one is.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pandas as pd
from typing_extensions import TypedDict

from posenc.lab.files import MOST_RESULTS, read_bytes, write_atomically, write_json
from posenc.lab.schema import Count, Facts, Line, Lines, Spec, read_record

FORMAT = "posenc-lab-cost/2"
BASE = "nope"  # every cell is compared with the same cell of a model without encodings
LAYER_PASSES = {"forward": "forward", "train": "forward + backward", "decode": "decoding step"}
MODEL_PASSES = {"model-forward": "whole model, forward", "model": "whole model, forward + backward"}
PASSES = {**LAYER_PASSES, **MODEL_PASSES}  # in words
TABLE, FACTS = "cost.csv", "cost.json"
COLUMNS = {
    "spec": str, "pass": str, "length": "int64", "milliseconds": "float64", "relative": "float64", "low": "float64",
    "high": "float64", "memory": "Int64", "path": str, "rounds": "int64", "why": str,
}  # fmt: skip
HEADS = ["encoding", "own", "forward", "train", "decode", "MiB", "path", "model", "kT/s"]
LEGEND = (
    "own: parameters of the encoding. train: forward and backward. MiB, path: of a layer in training. kT/s: thousand "
    "tokens a second in training, without the optimizer. A layer alone adds its embedding and makes its table of "
    "rotations in every call; the whole model does both once."
)
WIDE, MANY = 0.3, 0.2  # intervals that wide, as a share of the ratio, in that share of the cells


@dataclass(frozen=True)
class Costs:
    """All cells of one measuring, and what is needed to repeat it.

    Attributes:
        frame: the columns above; specs in the order of measuring, of which the first is `BASE`.
        numbers: the conditions, in words.
        parameters: of each encoding's whole model, in all, and the encoding's own.
        tokens: that the whole model reads at a time.
        versions, machine, command: what it was measured with.
    """

    frame: pd.DataFrame = field(repr=False)
    numbers: dict[str, str]
    parameters: dict[str, tuple[int, int]]
    tokens: int
    versions: dict[str, str]
    machine: dict[str, str]
    command: str

    def overview(self) -> list[list[str]]:
        """Cells under `HEADS`: the layer at the longest length, and the whole model; `LEGEND` explains them."""
        frame, layer = self.frame, self.frame["pass"].isin(list(LAYER_PASSES))
        at = frame[~layer | (frame["length"] == frame.loc[layer, "length"].max())].set_index(["spec", "pass"])
        rows = []
        for spec in self.parameters:
            ratios = [_shown(at.at[(spec, work), "relative"]) for work in (*LAYER_PASSES, "model")]
            memory, path = (at.at[(spec, "train"), name] for name in ("memory", "path"))
            speed = 1 / at.at[(spec, "model"), "milliseconds"] * self.tokens  # thousand tokens a second
            parameters = f"{self.parameters[spec][1]:,}"
            rows.append(
                [spec, parameters, *ratios[:3], _shown(memory / 2**20, 1), path or "–", ratios[3], _shown(speed, 1)]
            )
        return rows

    def remarks(self) -> list[str]:
        """Caveats: timing rounds that differ much, and a line for each cell that lacks a number."""
        ratios = self.frame[(self.frame["spec"] != BASE) & (self.frame["rounds"] > 1)]
        wide = int((ratios["high"] - ratios["low"] > WIDE * ratios["relative"]).sum())
        busy = (
            f"In {wide} of {len(ratios)} cells the interval is wider than {WIDE:.0%} of the ratio: the machine was "
            "busy, or --seconds too short. Quieter numbers are worth another run."
        )
        missing = self.frame.loc[self.frame["why"] != "", ["spec", "pass", "length", "why"]]
        reasons = [f"{spec}, {PASSES[work]}, {length:,} tokens: {why}." for spec, work, length, why in missing.values]
        return [*([busy] if wide > MANY * len(ratios) else []), *reasons]


class CostFacts(TypedDict):
    """What cost.json holds."""

    format: Literal["posenc-lab-cost/2"]
    sha256: Line
    numbers: Facts
    parameters: dict[Spec, tuple[Count, Count]]
    tokens: Count
    versions: Facts
    machine: Facts
    command: Lines


def write_costs(folder: Path, costs: Costs) -> list[Path]:
    """Write both files in the place of older ones; returns their paths."""
    content = costs.frame.to_csv(index=False, float_format="%.6g").encode()
    write_atomically(folder / TABLE, content)
    facts = {
        "format": FORMAT, "sha256": hashlib.sha256(content).hexdigest(), "numbers": costs.numbers,
        "parameters": {spec: list(counts) for spec, counts in costs.parameters.items()}, "tokens": costs.tokens,
        "versions": costs.versions, "machine": costs.machine, "command": costs.command,
    }  # fmt: skip
    write_json(folder / FACTS, facts)
    return [folder / TABLE, folder / FACTS]


def read_costs(folder: Path) -> Costs:
    """Read what `write_costs` wrote; a ValueError for files that are missing, truncated, or of another format."""
    path, table = folder / FACTS, folder / TABLE
    facts = read_record(path, CostFacts)
    try:
        content = read_bytes(table, MOST_RESULTS)
    except OSError as error:
        raise ValueError(f"cannot read {table}: {error.strerror}; posenc cost writes it") from error
    if facts["sha256"] != hashlib.sha256(content).hexdigest():
        raise ValueError(f"{table} is truncated, or not of the format {FORMAT}; posenc cost writes it anew")
    counts = facts["parameters"]
    try:
        empty = {name: [""] for name, kind in COLUMNS.items() if kind is not str}
        frame = pd.read_csv(io.BytesIO(content), dtype=COLUMNS, keep_default_na=False, na_values=empty)
        if (
            list(frame) != list(COLUMNS)
            or not set(frame["spec"]) <= set(counts)
            or not set(frame["pass"]) <= set(PASSES)
        ):
            raise ValueError
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{path} and {TABLE} do not hold what posenc cost writes; it writes them anew") from error
    conditions = facts["numbers"], counts, facts["tokens"], facts["versions"], facts["machine"]
    return Costs(frame, *conditions, facts["command"])


def frame_of(lines: list[dict[str, object]]) -> pd.DataFrame:
    """Lines as a table of `COLUMNS`."""
    return pd.DataFrame(lines, columns=list(COLUMNS)).astype(COLUMNS)


def _shown(value: object, digits: int = 2) -> str:
    """A number; a dash where nothing was measured."""
    return "–" if pd.isna(value) else f"{value:.{digits}f}"
