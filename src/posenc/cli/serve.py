"""``posenc serve``: the command that serves a model in each engine, or the flags for another rotation."""

from __future__ import annotations

import json
import shlex
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from posenc.hf.config.rope_argument import parse_rope_argument
from posenc.hf.config.rope_config import RopeConfig, read_rope
from posenc.hf.plan.plan import Plan, plan_or_refusal
from posenc.hf.serving.lines import reach_of, serve_flags
from posenc.input_files import naming


def run(options: Namespace) -> int:
    """Print a line for each engine, or the command that extends a config whose own rotation does not reach a length."""
    path, length = options.path, options.length
    with naming(path):
        config = read_rope(Path(path))
    target = config
    if options.rope is not None:
        target = parse_rope_argument(options.rope, config)
        if target.rotations.keys() == config.rotations.keys():  # under the config that the engine reads
            target = config.with_rope(dict(target.rotations))
    folder = path if Path(path).is_dir() else "DIR"
    with naming(path):
        lines = serve_flags(target, exact=options.exact, length=length, folder=folder, program=options.program)
        reach = reach_of(target)
        beyond = length is not None and reach is not None and length > reach and options.rope is None
        extension, text = _extension(path, config, length) if beyond and length else ({}, "")
    if options.as_json:
        text = json.dumps([{**line._asdict(), **extension} for line in lines], indent=2)
    elif beyond:
        text = f"{path}: its rotation reaches {reach:,} tokens, and {length:,} are to be served.\n{text}"
    else:
        text = "\n".join(map(str, lines))
    sys.stdout.write(f"{text}\n")
    return 0


def _extension(path: str, config: RopeConfig, length: int) -> tuple[dict[str, Any], str]:
    """The plan of a longer context as plain data, with the words of its command; and both as text."""
    plan = plan_or_refusal(config.facts, length)
    if not isinstance(plan, Plan):
        return plan.record(), str(plan)
    command = plan.command(path)
    return {**plan.record(), "extend": shlex.split(command)}, f"{plan.title}\n{command}"
