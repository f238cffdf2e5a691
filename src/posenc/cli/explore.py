"""``posenc explore``: a page with sliders that show what encodings do with positions."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from posenc.explorer import page


def run(options: Namespace) -> int:
    """Write the page, with the configurations that are given.

    Raises:
        OSError: for a configuration that cannot be read, or a file that cannot be written.
    """
    text = page([Path(path) for path in options.paths])
    Path(options.out).write_text(text, encoding="utf-8")
    sys.stdout.write(f"{options.out}: open it in a browser; it needs no network\n")
    return 0
