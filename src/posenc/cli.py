"""The ``posenc`` command. Importing it needs nothing but Python; running it needs the extra ``posenc[lab]``."""

from __future__ import annotations

import sys
from importlib import import_module

EXTRA = {"typer", "rich", "accelerate", "submitit", "filelock", "matplotlib", "plotly", "numpy", "datasets"}


def main() -> None:
    """Entry point of the command line: exits with 0, 1 (a job failed), 2 (bad input) or 130 (stopped)."""
    try:
        commands = import_module("posenc.lab.commands")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in EXTRA:
            raise
        sys.stderr.write(f"error: the command line needs {error.name}: pip install 'posenc[lab]'\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(commands.run(sys.argv[1:]))


if __name__ == "__main__":
    main()
