"""``posenc inspect``: what each layer of a checkpoint does with positions."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from posenc.hf.explanation.describe import layer_lines
from posenc.input_files import naming


def run(*, path: str, live: bool, as_json: bool, trust_remote_code: bool) -> int:
    """Print a line for each layer; with ``live`` what its modules compute beside it. 1 where the two differ.

    Raises:
        ValueError: for a configuration that cannot be read, and with ``live`` for what is no folder of a model.
    """
    if not live:
        with naming(path):
            lines = layer_lines(Path(path))
        sys.stdout.write((json.dumps(lines, indent=2) if as_json else "\n".join(lines)) + "\n")
        return 0
    from posenc.hf.attach.checkpoint import init_model
    from posenc.hf.attach.live_model import inspect

    with naming(path):
        found = inspect(init_model(Path(path), trust_remote_code=trust_remote_code))
    layers: list[dict[str, Any]] = [
        {**layer._asdict(), "differs": [one._asdict() for one in layer.differs]} for layer in found.layers
    ]
    sys.stdout.write((json.dumps(layers, indent=2) if as_json else str(found)) + "\n")
    return 0 if found.agrees else 1
