"""``posenc serve-flags``: the RoPE flags for the command lines of vLLM, SGLang and llama.cpp."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from posenc.hf.config.rope_argument import parse_rope_argument
from posenc.hf.config.rope_config import RopeConfig, read_rope
from posenc.hf.explanation.report import facts
from posenc.hf.serving.flags import serve_flags
from posenc.input_files import naming


def run(
    *, path: str, rope: str | None, exact: bool, length: int | None, engine_versions: list[str], as_json: bool
) -> int:
    """Print a line for each engine."""
    versions = _versions(engine_versions)
    with naming(path):
        config = read_rope(Path(path))
    target = config if rope is None else parse_rope_argument(rope, config)
    with naming(path):
        flags = serve_flags(target, exact=exact, length=length, engine_versions=versions)
        reach = None if length is None else _reach(target)
    if length is not None and reach is not None and length > reach:
        sys.stderr.write(
            f"note: this rotation is meant for {reach:,} tokens, and {length:,} are to be served: positions beyond "
            "have angles that training did not. Extend it first (posenc extend, or --rope with a scaling)\n"
        )
    lines = [json.dumps([engine._asdict() for engine in flags], indent=2)] if as_json else map(str, flags)
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _versions(words: list[str]) -> dict[str, str]:
    """Versions by engine, from ``ENGINE=VERSION``."""
    for word in words:
        if not all(word.partition("=")):
            raise ValueError(f"--engine-version must be ENGINE=VERSION, such as vllm=0.33.0, got {word!r}")
    return dict(word.split("=", 1) for word in words)


def _reach(config: RopeConfig) -> int | None:
    """The longest context that the rotation is meant for; None where no layer says one."""
    lengths = [layer["longest_length"] for layer in facts(config)["layers"].values() if layer is not None]
    return max((length for length in lengths if length is not None), default=None)
