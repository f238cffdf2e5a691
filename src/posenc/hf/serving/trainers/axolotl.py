"""axolotl: a YAML file; the model is loaded by transformers.

Source: axolotl 0.19.0, loaders/utils.py (each key of overrides_of_model_config is set on the loaded config),
    utils/schemas/deprecated.py (rope_scaling at the top is refused). Read in the released wheel, not run.
"""

from __future__ import annotations

import json

from posenc.hf.config.rope_keys import ALL
from posenc.hf.serving.lines import WRITE_FIRST, Line, Serving, block_in

VERSION, INSTEAD = "0.19.0", WRITE_FIRST


def line(serving: Serving) -> Line:
    """The settings of axolotl."""
    settings = {"base_model": serving.folder, "sequence_len": serving.length}
    if not serving.overridden:
        return Line("axolotl", VERSION, json.dumps(settings), None, "not run: transformers reads the file as it is")
    text_config, rope = serving.facts.text, serving.rope
    if text_config.path or list(serving.facts.rotations) != [ALL]:
        raise ValueError("its overrides are set on the whole config, and not on a part of it")
    block = block_in("transformers", rope, serving.length)
    overrides = {"rope_parameters": block, text_config.length_key: serving.length}
    settings["overrides_of_model_config"] = overrides  # type: ignore[assignment]
    return Line("axolotl", VERSION, json.dumps(settings), None, "not run")
