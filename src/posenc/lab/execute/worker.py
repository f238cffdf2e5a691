"""The process of a job: python -m posenc.lab.execute.worker FOLDER --rows rope --parent PID --classes mine:Steep …"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path

from posenc.lab.files import UnwritableError
from posenc.lab.plugins import ImportAllowlist, allow_imports
from posenc.lab.run.run_job import run_job
from posenc.lab.run.train import StoppedError

STOPPED, BAD_INPUT, UNWRITABLE = 143, 2, 74  # exit codes


def main() -> int:
    """Run one job; stop at the next step on SIGTERM or when the parent has died."""
    parser = argparse.ArgumentParser(prog="posenc.lab.execute.worker")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", required=True, help="separated by commas")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--classes", default="", help="own classes that may be imported, separated by commas")
    parser.add_argument("--classes-from", type=Path, default=Path(), help="the folder with their modules")
    parser.add_argument("--track", default="", help="trackers, separated by commas")
    options = parser.parse_args()
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    try:
        with allow_imports(ImportAllowlist(frozenset(filter(None, options.classes.split(","))), options.classes_from)):
            rows = [row for row in options.rows.split(",") if row]
            trackers = [name for name in options.track.split(",") if name]
            stop = lambda: bool(stopping) or os.getppid() != options.parent  # noqa: E731  (an expression is all it is)
            run_job(options.folder, rows, trackers=trackers, should_stop=stop)
    except StoppedError:
        return STOPPED
    except (ValueError, OSError) as error:
        with suppress(OSError):  # on a full disk the log is full too
            traceback.print_exc()
            print(f"error: {error}", file=sys.stderr, flush=True)  # noqa: T201  (the last line of log.txt)
        return UNWRITABLE if isinstance(error, UnwritableError) else BAD_INPUT
    return 0


if __name__ == "__main__":
    sys.exit(main())
