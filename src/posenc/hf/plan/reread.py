"""What transformers makes of a config that posenc writes: its config classes convert keys, each in its own way."""

from __future__ import annotations

import copy
from importlib.util import find_spec

from posenc.arguments import one_line
from posenc.hf.config.rope_config import read_rope
from posenc.hf.config.rotation import equivalent
from posenc.hf.findings import NotReadError
from posenc.hf.sources.load import Config


def misread_by_transformers(config: Config) -> str:
    """How the installed transformers reads a config otherwise than posenc; "" where both agree.

    "" too where nothing can be asked: without transformers, for a model type that it does not have, for a repository's
    own code (auto_map), and where its class adds sizes that posenc does not read.
    """
    if config.get("auto_map") or find_spec("transformers") is None:
        return ""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    model_type = config.get("model_type")
    if model_type not in CONFIG_MAPPING:
        return ""
    try:
        keys = {key: value for key, value in copy.deepcopy(config).items() if key not in ("model_type", "posenc")}
        converted = CONFIG_MAPPING[model_type](**keys).to_dict()
        theirs, ours = read_rope(converted).rotations, read_rope(config).rotations
    except NotReadError:
        return ""
    except Exception as error:  # config classes raise what they like: KeyError, their own validation errors
        return f"{type(error).__name__}: {one_line(error)[:200]}"
    wrong = [kind for kind in {**ours, **theirs} if not equivalent(ours.get(kind), theirs.get(kind))]
    return f"another rotation in {', '.join(wrong)}" if wrong else ""
