"""``posenc explain``: the positional encoding of a checkpoint, by kind of layers, layer by layer, or in its modules."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from posenc.hf.config.rope_config import read_rope
from posenc.hf.explanation.report import Explanation, layer_lines
from posenc.hf.families.listing import families_json, families_text
from posenc.hf.sources.load import DiffusionSource, load_any
from posenc.input_files import naming


def run(options: Namespace) -> int:
    """Print base, wavelengths, scaling and lengths of each kind of layers, and what to watch out for.

    Returns:
        The exit code: 1 where a module computes something else than the configuration says.

    Raises:
        ValueError: unless either a path is given or ``families``; for a configuration that cannot be read; and with
            ``live`` for a path that is not the folder of a model.
    """
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
            from posenc.hf.explanation.diffusion import (
                diffusion_json,
                diffusion_text,
            )  # other files need no such models

            sys.stdout.write((diffusion_json if as_json else diffusion_text)(*source) + "\n")
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
