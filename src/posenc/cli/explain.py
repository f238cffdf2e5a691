"""``posenc explain``: what a Hugging Face configuration means."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from posenc.hf.config.rope_config import read_rope
from posenc.hf.config.scalings import check_convention
from posenc.hf.explanation.report import as_json as facts_as_json
from posenc.hf.explanation.report import as_text
from posenc.hf.listing import families_json, families_text
from posenc.input_files import naming


def run(
    *,
    path: str | None,
    convention: str,
    head_dim: int | None,
    ignore: Sequence[str],
    as_json: bool,
    families: bool = False,
) -> int:
    """Print base, wavelengths, scaling and lengths of each kind of layers, and what to beware of; or all families.

    Raises:
        ValueError: unless a path is given, or families are asked for, and not both.
    """
    if families == (path is not None):
        raise ValueError("path or --families: give one of the two")
    if path is None:
        sys.stdout.write((families_json() if as_json else families_text()) + "\n")
        return 0
    known = check_convention(convention)
    with naming(path):
        config = read_rope(Path(path), head_dim=head_dim, convention=known, ignore=ignore)
        text = facts_as_json(config) if as_json else as_text(config)
    sys.stdout.write(f"{text}\n")
    return 0
