"""``python -m guide [FOLDER]``: build the site, from the root of a clone."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from guide.build import build

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m guide", description="Build the site, from the root of a clone.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("site"), help="is replaced (default: site)")
    folder = parser.parse_args().folder
    try:
        build(folder)
    except RuntimeError as problem:
        sys.exit(str(problem))
    sys.stdout.write(f"open {folder / 'index.html'}\n")
