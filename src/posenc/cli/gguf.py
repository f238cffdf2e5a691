"""``posenc gguf``: a copy of a GGUF file with other RoPE settings."""

from __future__ import annotations

import sys

from posenc.arguments import one_line
from posenc.hf.config.rope_argument import parse_rope_argument
from posenc.hf.gguf import write_gguf
from posenc.input_files import naming


def run(*, source: str, target: str, rope: str, replace: bool) -> int:
    """Write the copy; print the changed keys and tensors, and the rotation as read back from the copy."""
    with naming(source):
        written = write_gguf(source, target, lambda config: parse_rope_argument(rope, config), replace=replace)
    lines = [f"{name}: {'removed' if value is None else value}" for name, value in written.keys.items()]
    lines += [
        f"{name}: {'removed' if count is None else f'{count} factors'}" for name, count in written.tensors.items()
    ]  # fmt: skip
    lines += [f"{kind} layers: {one_line(rotation)}" for kind, rotation in written.config.layers.items()]
    sys.stdout.write("\n".join([f"{target}: everything else is byte for byte as in {source}", *lines]) + "\n")
    return 0
