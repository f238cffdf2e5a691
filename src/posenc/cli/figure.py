"""``posenc figure``: a figure of a mechanism, and its numbers."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from posenc.cli.columns import labelled, paragraph
from posenc.figures import figure, names, save
from posenc.figures.named import NAMED


def run(options: Namespace) -> int:
    """Write the figure and print its caption; without a name, list all figures.

    Raises:
        ValueError: for an unknown name, and for a file name with another ending.
        OSError: for a file that cannot be written.
    """
    if options.name is None:
        if options.out is not None:
            raise ValueError("--out needs a NAME")
        groups = [("mechanisms", ", ".join(NAMED)), ("encodings", ", ".join(n for n in names() if n not in NAMED))]
        sys.stdout.write("\n".join(labelled(groups, sys.stdout)) + "\n")
        return 0
    shown = figure(options.name)
    files = save(shown, Path(options.out or f"{options.name}.svg"))
    text = f"{', '.join(str(file) for file in files)}: {shown.caption}"
    sys.stdout.write("\n".join(paragraph(text, sys.stdout)) + "\n")
    return 0
