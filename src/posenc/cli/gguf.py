"""``posenc gguf``: a copy of a GGUF file with other RoPE settings."""

from __future__ import annotations

import sys
from argparse import Namespace
from functools import partial

from posenc.arguments import one_line
from posenc.hf.config.rope_argument import parse_rope_argument
from posenc.hf.gguf import write_gguf
from posenc.input_files import naming


def run(options: Namespace) -> int:
    """Write the copy; print the changed keys and tensors, and the rotation as read back from the copy."""
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
