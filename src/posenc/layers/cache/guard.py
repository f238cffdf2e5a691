"""`Guard`: what keeps a cache from answering wrongly after an interrupted change, or from two threads at once.

A step writes its tokens where no query looks and counts them last. Changes that overwrite what is kept (moving the
sinks up, putting rows together, `select`) cannot be undone: one that an exception or Ctrl-C ends halfway leaves the
cache torn, and a torn cache refuses everything but `clear`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from posenc.tracing import tracing


class Guard:
    """Of one cache; ``with guard:`` around a call refuses a second thread. Copies have a lock of their own."""

    def __init__(self, *, torn: bool = False) -> None:
        self.torn = torn
        self._lock = threading.RLock()  # that of a thread which is interrupted as it enters is still its own

    def __getstate__(self) -> dict[str, bool]:
        return {"torn": self.torn}

    def __setstate__(self, state: dict[str, bool]) -> None:
        Guard.__init__(self, torn=state["torn"])

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("cache: another thread is in a call with this cache; give each thread one of its own")

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def check(self) -> None:
        """Raise a RuntimeError for a torn cache."""
        if self.torn:
            raise RuntimeError(
                "cache: a call was interrupted while it changed this cache, which then holds neither what it held "
                "before nor what it should: clear() it and read the text again"
            )

    def changing(self) -> AbstractContextManager[None]:
        """Around a change that cannot be undone: unless it comes to its end, the cache is torn."""
        return nullcontext() if tracing() else self._changing()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self:
            self.check()
            self.torn = True
            yield
            self.torn = False


def one_thread(cache: object) -> AbstractContextManager[None]:
    """Around a call with a cache, or without one: None. Graphs of a compiler know no threads."""
    guard = None if tracing() else getattr(cache, "guard", None)
    return nullcontext() if guard is None else guard
