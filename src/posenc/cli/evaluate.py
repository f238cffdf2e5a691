"""`posenc evaluate`."""

from __future__ import annotations

import json
import sys

import torch

from posenc.cli.extend import command_line, print_progress, resumable, search_settings
from posenc.input_files import naming


def run(
    *, path: str, tasks: list[str], lengths: list[int] | None, methods: list[str], documents: list[str], count: int,
    depths: list[float], scored: int, answer_tokens: int | None, trained_length: int | None, out: str | None,
    part: tuple[int, int], dtype: str, device: str, threads: int | None, as_json: bool, search: int | None,
    generations: int, trust_remote_code: bool,
) -> int:  # fmt: skip
    """Evaluate the checkpoint of a folder or a GGUF file, and print the tables.

    Raises:
        ValueError: where the package transformers is not installed, and as `posenc.hf.evaluate.evaluate`.
    """
    try:
        from posenc.hf.evaluate import evaluate
    except ModuleNotFoundError as error:
        raise ValueError(f"evaluate needs {error.name}: pip install 'posenc[hf]', in a clone '.[hf]'") from error
    if threads is not None:
        torch.set_num_threads(threads)
    state = f"every reading that was made is saved in {out}; to continue: {command_line()}"
    with naming(path), resumable(None if out is None else lambda: state):
        evaluation = evaluate(
            path, tasks=tasks, lengths=lengths, methods=methods, documents=documents, count=count, depths=depths,
            scored=scored, answer_tokens=answer_tokens, trained_length=trained_length, out=out, part=part, dtype=dtype,
            device=device, search=search_settings(search, generations), trust_remote_code=trust_remote_code,
            progress=print_progress,
        )  # fmt: skip
    sys.stdout.write(f"{json.dumps(evaluation.record(), indent=1) if as_json else evaluation}\n")
    return 0
