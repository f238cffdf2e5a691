"""``posenc convert``, ``gguf`` and ``serve``: the RoPE settings of a config, a GGUF file, or a serving command."""

from __future__ import annotations

import json
import shlex
import sys
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.input_files import naming
from posenc_cli.parsing import PATH, Parser, tokens

if TYPE_CHECKING:
    from posenc.hf.config.rope_config import RopeConfig


def convert_parser() -> Parser:
    """The options of the command."""
    parser = Parser("convert", "The rotation stays the same; no weights are loaded.")
    parser.add_argument("path", help=PATH.replace(" a GGUF file,", ""))
    parser.add_argument(
        "--spelling", default="both", choices=("both", "v4", "v5"),
        help="both: transformers 4 and 5 read the same rotation; v4: rope_theta and rope_scaling; v5: rope_parameters "
        "(default: %(default)s)",
    )  # fmt: skip
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--out", metavar="FOLDER", help="new folder for the result (default: print the diff only)")
    where.add_argument(
        "--in-place", action="store_true", help="change config.json; the old one is kept as config.json.original"
    )
    parser.add_shared("--json")
    return parser


def convert(options: Namespace) -> int:
    """Print the diff of a config whose rope keys old readers, new readers, or both understand; write it if asked to.

    Raises:
        ValueError: as `posenc.hf.config.convert.convert_config`.
    """
    from posenc.hf.config.convert import convert_config

    with naming(options.path):
        conversion = convert_config(options.path, options.spelling, out=options.out, in_place=options.in_place)
    sys.stdout.write(f"{json.dumps(conversion.record(), indent=1) if options.as_json else conversion}\n")
    return 0


def gguf_parser() -> Parser:
    """The options of the command."""
    parser = Parser("gguf", "The weights are copied unchanged.")
    parser.add_argument("source", metavar="SOURCE", help="a GGUF file")
    parser.add_argument("target", metavar="TARGET", help="the copy to write")
    parser.add_argument(
        "--rope", required=True, metavar="ROPE",
        help="the new settings: a block of rope_parameters as JSON, or a config.json, a folder or a GGUF file",
    )  # fmt: skip
    parser.add_argument("--replace", action="store_true", help="overwrite TARGET, which may then be SOURCE")
    return parser


def gguf(options: Namespace) -> int:
    """Write a copy of a GGUF file with other settings; print what changed, and the rotation as read from the copy."""
    from posenc.arguments import one_line
    from posenc.hf.config.convert import parse_rope_argument
    from posenc.hf.gguf import write_gguf  # numpy

    with naming(options.source):
        block = partial(parse_rope_argument, options.rope)
        written = write_gguf(options.source, options.target, block, replace=options.replace)
    lines = [f"{name}: {'removed' if value is None else value}" for name, value in written.keys.items()]
    lines += [
        f"{name}: {'removed' if count is None else f'{count} factors'}" for name, count in written.tensors.items()
    ]  # fmt: skip
    lines += [f"{kind} layers: {one_line(rotation)}" for kind, rotation in written.config.layers.items()]
    first = f"{options.target}: everything else is byte for byte as in {options.source}"
    sys.stdout.write("\n".join([first, *lines]) + "\n")
    return 0


def serve_parser() -> Parser:
    """The options of the command."""
    parser = Parser(
        "serve",
        "A model is served as it is; --rope and --exact print the flags for another rotation.",
    )
    parser.add_argument("path", metavar="PATH", help="a config.json, or the folder of a checkpoint that has one")
    parser.add_argument(
        "--rope", metavar="ROPE", help="other RoPE settings to serve it with, as for posenc gguf (default: its own)"
    )
    parser.add_argument(
        "--for", dest="program", metavar="NAME",
        help="one engine, such as vllm, llama.cpp or mlx-vlm, or what to set in a trainer, such as trl, axolotl or "
        "verl; another name prints all of them (default: every engine)",
    )  # fmt: skip
    parser.add_argument(
        "--exact", action="store_true", help="use posenc's plug-in: exact angles, and spectra without a rope type"
    )
    parser.add_argument(
        "--length", type=tokens, metavar="TOKENS",
        help="context length to serve (default: what the config declares, or what --rope reaches)",
    )  # fmt: skip
    parser.add_shared("--json")
    return parser


def serve(options: Namespace) -> int:
    """Print a line for each engine, or the command that extends a config whose own rotation does not reach a length."""
    from posenc.hf.config.convert import parse_rope_argument
    from posenc.hf.config.rope_config import read_rope
    from posenc.hf.serving.lines import reach_of, serve_flags

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
        reach = reach_of(target.facts)
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
    from posenc.hf.plan.plan import Plan, plan_or_refusal

    plan = plan_or_refusal(config.facts, length)
    if not isinstance(plan, Plan):
        return plan.record(), str(plan)
    command = plan.command(path)
    return {**plan.record(), "extend": shlex.split(command)}, f"{plan.title}\n{command}"
