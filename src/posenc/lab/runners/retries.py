"""When a job whose process died is taken up again: as long as it gets on, and otherwise a few times."""

from __future__ import annotations

import os
from pathlib import Path

DEATHS = 3  # in a row without a new checkpoint, after which a job has failed


class Retries:
    """Counts the deaths of one job that brought nothing.

    A machine that is taken away now and then ends a long job many times, and that is no fault of the job. A job that
    ends its own process, perhaps for lack of memory, does so again before the next checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        """Begin to count for the job of ``folder``, before it is started."""
        self._checkpoint = folder / "checkpoint.pt"
        self._saved = self._last_saved()
        self._in_vain = 0

    def after_death(self) -> bool:
        """Note that the job's process died; returns whether the job is to be taken up again."""
        saved = self._last_saved()
        self._in_vain = 0 if saved != self._saved else self._in_vain + 1
        self._saved = saved
        return self._in_vain < DEATHS

    def _last_saved(self) -> int:
        """When the checkpoint was written, ns; 0 if there is none. Each one that is written has more steps."""
        try:
            # Opened, because a file system that machines share may answer an old time otherwise.
            with self._checkpoint.open("rb") as file:
                return os.fstat(file.fileno()).st_mtime_ns
        except FileNotFoundError:
            return 0
