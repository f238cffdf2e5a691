"""``posenc explain``: what a Hugging Face configuration means."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from posenc.hf.config import read_rope
from posenc.hf.inspect import as_json as facts_as_json
from posenc.hf.inspect import as_text
from posenc.hf.scalings import check_convention


def run(*, path: str, convention: str, head_dim: int | None, ignore: Sequence[str], as_json: bool) -> int:
    """Print base, wavelengths, scaling and lengths of each kind of layers, and what to beware of."""
    config = read_rope(Path(path), head_dim=head_dim, convention=check_convention(convention), ignore=ignore)
    sys.stdout.write((facts_as_json(config) if as_json else as_text(config)) + "\n")
    return 0
