"""``posenc explore`` and ``posenc figure``: a page with sliders about encodings, and a drawing of one mechanism."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from posenc.cli.columns import labelled, paragraph


def explore(options: Namespace) -> int:
    """Write the page, with the configurations that are given.

    Raises:
        OSError: for a configuration that cannot be read, or a file that cannot be written.
    """
    from posenc.explorer import page

    text = page([Path(path) for path in options.paths])
    Path(options.out).write_text(text, encoding="utf-8")
    sys.stdout.write(f"{options.out}: open it in a browser; it needs no network\n")
    return 0


def figure(options: Namespace) -> int:
    """Write the figure and print its caption; without a name, list all figures.

    Raises:
        ValueError: for an unknown name, and for a file name with another ending.
        OSError: for a file that cannot be written.
    """
    from posenc.figures import figure, names, save
    from posenc.figures.named import NAMED

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
