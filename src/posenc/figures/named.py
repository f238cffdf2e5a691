"""Figures by name: waves and binary numbers, measured comparisons, what the other modules draw; and as files."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import torch

from posenc.catalogue import CATALOGUE, find
from posenc.catalogue.studies import studies
from posenc.embedding.sinusoidal import Sinusoidal
from posenc.figures import generators, rotations, texts
from posenc.figures.drawn import Curves, Figure, Heat
from posenc.figures.mechanisms import TOKENS, figure_of
from posenc.figures.svg import alone

KINDS = (".svg", ".pdf")
SHOWN = "quick"  # a comparison; the picture has room for eight of its rows


def _sinusoids() -> Figure:
    added = Sinusoidal(16)(torch.zeros(1, 65, 16), torch.arange(65))[0]
    series = {f"channel {c}": [(float(p), float(added[p, c])) for p in range(65)] for c in (0, 4, 8)}
    return Curves(
        series,
        "position",
        "embedding",
        "three waves over 65 positions: a fast one, a slower one, and one so slow it only rises",
        "Three channels of the sinusoidal embedding: fast, slower, slowest. Together they are the hands of a clock.",
    )


def _binary() -> Figure:
    rows = [[float(p >> bit & 1) for bit in range(5)] for p in range(TOKENS)]
    return Heat(
        rows,
        "bit, lowest first",
        "position",
        "a column for each bit: cells alternate at every row in the first column and half as often in each next one",
        "Positions 0 … 23 in binary. The lowest bit changes at each token, each next bit half as often.",
    )


def _measured() -> Figure:
    study = next(study for study in studies() if study.name == SHOWN)
    ranked = [*study.ranked(study.longest), *(row for row in study.rows.values() if len(row.means) == 1)]
    rows = ranked[:8]
    series = {
        row.name: [
            (tokens / study.train_length, mean)
            for tokens, (mean, _, _) in (*sorted(row.reach.items()), *sorted(row.means.items()))
        ]
        for row in rows
    }
    counting = study.counting
    seeds = max(row.seeds for row in rows)
    return Curves(
        series,
        "tokens of context, in training lengths",
        study.unit,
        "a line for each encoding: within the training length more context helps little; beyond it some lines leave "
        "upwards and others stay flat",
        f"{study.unit.capitalize()} of small models, one for each encoding, trained at {study.train_length} tokens "
        f"({seeds} training{'s' * (seeds > 1)} each). Up to 1 the model sees only the last tokens before the one it "
        f"predicts, beyond 1 more than in training; the same tokens are scored throughout, and {study.better} is "
        "better. Dashed: the best n-gram of the training text, and the entropy of single bytes.",
        levels={} if counting is None else {f"{counting.order}-gram": counting.ngram, "single bytes": counting.unigram},
        log_x=True,
    )


NAMED: dict[str, Callable[[], Figure]] = {
    "scaled-integers": texts.scaled_integers, "adding": texts.adding,
    "flattening": texts.flattening, "interpolation": texts.interpolation,
    "sinusoids": _sinusoids, "binary": _binary, "rotation": rotations.rotation,
    "rotation-offset": rotations.rotation_offset, "rotation-decay": rotations.rotation_decay,
    "alibi-matrix": texts.alibi_matrix, "alibi-slopes": texts.alibi_head_slopes, "slopes": texts.slopes,
    "cope-counts": texts.cope_counts, "stick": texts.stick_breaking,
    "axial-grid": rotations.axial_grid, "axial-channels": rotations.axial_channels,
    "context-extension": rotations.context_extension, "slowdown": rotations.slowdown,
    "unseen-angles": rotations.unseen_angles, "measured": _measured,
    "axes-split": generators.axes_split, "token-grids": generators.token_grids,
    "reference-axes": generators.reference_axes, "row-periods": generators.row_periods,
    "larger-pictures": generators.larger_pictures, "dype-steps": generators.dype_steps,
    "riflex-periods": generators.riflex_periods, "riflex-angle": generators.riflex_angle,
}  # fmt: skip


def figure(name: str) -> Figure:
    """What a name shows: a mechanism of `NAMED`, or what an encoding of the catalogue does.

    Raises:
        ValueError: for another name.

    >>> figure("alibi").across
    'distance (tokens back)'
    """
    return NAMED[name]() if name in NAMED else figure_of(find(name))


def names() -> list[str]:
    """All names."""
    return [*NAMED, *CATALOGUE]


def save(shown: Figure, file: Path) -> list[Path]:
    """Write a figure, and its numbers as CSV next to it; returns the files.

    Args:
        shown: the figure.
        file: with the ending .svg, or .pdf, which needs vl-convert of the extra ``lab``.

    Raises:
        ValueError: for another ending, and for a PDF without vl-convert.
        OSError: for a place that cannot be written to.
    """
    if file.suffix not in KINDS:
        raise ValueError(f"a figure ends in {' or '.join(KINDS)}, got {file.name}")
    drawing, csv_file = alone(shown), file.with_suffix(".csv")
    if file.suffix == ".pdf":
        if find_spec("vl_convert") is None:
            raise ValueError("a PDF needs vl-convert: pip install 'posenc[lab]', in a clone '.[lab]', or write an .svg")
        import vl_convert

        file.write_bytes(vl_convert.svg_to_pdf(drawing))
    else:
        file.write_text(drawing, encoding="utf-8")
    csv_file.write_text(shown.table(), encoding="utf-8")
    return [file, csv_file]
