"""Runs one engine in a process of its own: ``python -m benchmarks.engines.worker ADAPTER``, a JSON line per question.

The first line of output has the engine's version (null: not installed). Each line of input is a `Question`; the output
is {"rows": …} or {"granted": tokens}, {"refused": the engine's error} or {"not_run": why the adapter does not test it}.
What the engine prints goes to stderr, so it cannot end up among the answers.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from benchmarks.engines.adapters import Adapter, NotRunError, Question, load_adapter

from posenc.arguments import one_line


def answer(adapter: Adapter, question: Question) -> dict[str, Any]:
    """What an engine says to one question."""
    try:
        if question.about == "length":
            if adapter.granted is None:
                raise NotRunError("the adapter does not ask for the granted length")
            return {"granted": adapter.granted(question.config)}
        return {"rows": adapter.measure(question)}
    except NotRunError as error:
        return {"not_run": one_line(str(error))}
    except ImportError as error:  # a package that is missing here says nothing about the engine
        return {"not_run": one_line(f"{type(error).__name__}: {error}")[:240]}
    except Exception as error:  # whatever an engine raises is a cell of the table
        return {"refused": one_line(f"{type(error).__name__}: {error}")[:240]}


def main() -> None:
    """Serve one adapter until stdin ends."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    adapter = load_adapter(sys.argv[1])

    def write(content: dict[str, Any]) -> None:
        channel.write(json.dumps(content) + "\n")
        channel.flush()

    try:
        write({"version": adapter.version()})
    except Exception as error:  # an engine that cannot be imported is not installed, and says why
        write({"version": None, "reason": one_line(f"{type(error).__name__}: {error}")})
    for line in sys.stdin:
        message = json.loads(line)
        lists = {key: tuple(message[key]) for key in ("positions", "tokens")}
        write(answer(adapter, Question(**{**message, **lists})))


if __name__ == "__main__":
    main()
