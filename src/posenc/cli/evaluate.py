"""`posenc evaluate`."""

from __future__ import annotations

import json
import sys
from argparse import Namespace

from posenc.cli.extend import command_line, print_progress, resumable, search_settings
from posenc.input_files import naming


def run(options: Namespace) -> int:
    """Evaluate the checkpoint of a folder or a GGUF file, and print the tables.

    Raises:
        ValueError: as `posenc.hf.evaluate.evaluate`.
    """
    from posenc.hf.evaluate import evaluate  # transformers

    state = f"every reading that was made is saved in {options.out}; to continue: {command_line()}"
    left = ("path", "as_json", "search", "generations")
    rest = {name: value for name, value in vars(options).items() if name not in left}
    with naming(options.path), resumable(None if options.out is None else lambda: state):
        evaluation = evaluate(
            options.path, search=search_settings(options.search, options.generations), progress=print_progress, **rest
        )
    sys.stdout.write(f"{json.dumps(evaluation.record(), indent=1) if options.as_json else evaluation}\n")
    return 0
