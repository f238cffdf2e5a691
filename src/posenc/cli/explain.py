"""``posenc explain``: the positional encoding of a checkpoint, by kind of layers, layer by layer, or in its modules."""

from __future__ import annotations

import argparse
import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from posenc.input_files import naming
from posenc_cli.parsing import PATH, Parser

CONVENTIONS = ("transformers", "deepseek", "vllm", "sglang")  # of `posenc.hf.config.rotation.Convention`
_WIDEST_HEAD = 2**16  # channels


def run_parser() -> Parser:
    """The options of the command."""
    parser = Parser(
        "explain",
        "By default: base, wavelengths, scaling and lengths for each kind of layers, and what to watch out for.",
        epilog="Exit code with --live: 1 where the model's modules compute something else than the config says.",
    )
    parser.add_argument("path", nargs="?", help=PATH)
    views = parser.add_mutually_exclusive_group()
    views.add_argument("--layers", action="store_true", help="print one line for each layer")
    views.add_argument(
        "--live", action="store_true",
        help="build the model (with the folder's weights, if it has any) and compare each layer's modules with the "
        "config; needs posenc[hf]",
    )  # fmt: skip
    views.add_argument("--families", action="store_true", help="list all known model types")
    parser.add_argument(
        "--convention", default="transformers", metavar="NAME",
        help=f"whose reading of YaRN's keys: {', '.join(CONVENTIONS)} (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--head-dim", type=_head_dim, metavar="CHANNELS", help="channels of a head, if the file does not say"
    )
    parser.add_argument("--ignore", action="append", default=[], metavar="KEY", help="a key to ignore; repeatable")
    parser.add_shared("--json", "--trust-remote-code")
    return parser


def _head_dim(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= _WIDEST_HEAD:
        raise argparse.ArgumentTypeError(f"a whole number from 1 to {_WIDEST_HEAD} is needed, got {text[:24]}")
    return int(text)


def run(options: Namespace) -> int:
    """Print base, wavelengths, scaling and lengths of each kind of layers, and what to watch out for.

    Returns:
        The exit code: 1 where a module computes something else than the configuration says.

    Raises:
        ValueError: unless either a path is given or ``families``; for a configuration that cannot be read; and with
            ``live`` for a path that is not the folder of a model.
    """
    from posenc.hf.config.rope_config import read_rope
    from posenc.hf.explanation.report import Explanation, layer_lines
    from posenc.hf.families.listing import families_json, families_text
    from posenc.hf.sources.load import DiffusionSource, load_any

    path, as_json = options.path, options.as_json
    if options.families == (path is not None):
        raise ValueError("path or --families: give one of the two")
    if path is None:
        sys.stdout.write((families_json() if as_json else families_text()) + "\n")
        return 0
    with naming(path):
        source = load_any(path)
        if isinstance(source, DiffusionSource):
            if options.live or options.layers:
                raise ValueError("--live and --layers: not for a transformer of diffusers, whose blocks are all alike")
            from posenc.hf.explanation.diffusion import diffusion_facts, diffusion_text  # others need no such models

            json_text = json.dumps(diffusion_facts(*source), indent=2, ensure_ascii=False) if as_json else ""
            sys.stdout.write((json_text or diffusion_text(*source)) + "\n")
            return 0
    if options.live:
        return _compare_modules(path, as_json=as_json, trust_remote_code=options.trust_remote_code)
    with naming(path):
        config = read_rope(source, head_dim=options.head_dim, convention=options.convention, ignore=options.ignore)
        if options.layers:
            lines = layer_lines(config)
            text = json.dumps(lines, indent=2) if as_json else "\n".join(lines)
        else:
            text = Explanation(config).json() if as_json else str(Explanation(config))
    sys.stdout.write(f"{text}\n")
    return 0


def _compare_modules(path: str, *, as_json: bool, trust_remote_code: bool) -> int:
    from posenc.hf.attach.live_model import inspect
    from posenc.hf.attach.loading import load_model  # transformers

    with naming(path):
        inspection = inspect(load_model(Path(path), weights=False, complete=False, trust_remote_code=trust_remote_code))
    layers: list[dict[str, Any]] = [
        {**layer._asdict(), "differs": [difference._asdict() for difference in layer.differs]}
        for layer in inspection.layers
    ]
    sys.stdout.write((json.dumps(layers, indent=2) if as_json else str(inspection)) + "\n")
    return 0 if inspection.agrees else 1
