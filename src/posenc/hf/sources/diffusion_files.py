"""Finds the transformer of diffusers in a file, a folder or a pipeline, for `posenc explain`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from posenc.hf.sources.hub import local_source
from posenc.hf.sources.load import load
from posenc.hf.sources.pipeline import transformer_configs


class DiffusionSource(NamedTuple):
    """A transformer of diffusers, as `posenc explain` reads it.

    Attributes:
        config: its configuration.
        siblings: the further transformers of its pipeline by the names of their parts.
    """

    config: Mapping[str, Any]
    siblings: Mapping[str, Mapping[str, Any]]


def diffusion_config(source: str | Path) -> DiffusionSource | None:
    """The transformer of diffusers in a file or a folder, or on the Hub; None for anything else, read elsewhere.

    Raises:
        ValueError: for a pipeline without a transformer.
        OSError: for a pipeline whose transformer has no config.json.
    """
    path = local_source(source)
    if path.is_dir() and not (path / "config.json").exists():
        configs = {name: load(config, of_diffusers=True) for name, config in transformer_configs(path).items()}
        if not configs:
            return None
        main = next(iter(configs))
        return DiffusionSource(configs.pop(main), configs)
    path = path / "config.json" if path.is_dir() else path
    if not path.exists() or path.suffix != ".json":
        return None
    config = load(path, of_diffusers=True)
    if "_class_name" not in config:
        return None
    from posenc.diffusion.models import TRANSFORMERS  # which only such a file needs

    known = config["_class_name"] in TRANSFORMERS  # Wan's own files have a model_type as well
    return DiffusionSource(config, {}) if known or "model_type" not in config else None
