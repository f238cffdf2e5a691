"""``python docs/build.py [FOLDER]``: build the site. ``--pages`` instead rewrites the generated files of a clone."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path[:1] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]  # the package guide, and benchmarks

if __name__ == "__main__":
    from guide.build import build, write

    parser = argparse.ArgumentParser(prog="python docs/build.py", description="Build the site.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("site"), help="is replaced (default: site)")
    parser.add_argument(
        "--pages", action="store_true", help="rewrite the generated files that a clone has, and no site"
    )
    arguments = parser.parse_args()
    try:
        if arguments.pages:
            sys.stdout.writelines(f"{file}\n" for file in write())
        else:
            build(arguments.folder)
            sys.stdout.write(f"open {arguments.folder / 'index.html'}\n")
    except RuntimeError as problem:
        sys.exit(str(problem))
