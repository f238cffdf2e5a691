"""LLaMA-Factory: a YAML file; the model is loaded by transformers.

Source: llamafactory 0.9.5, model/model_utils/rope.py (configure_rope): its rope_scaling is a name alone, and writes a
    block with factor ceil(cutoff_len / original length) over the file's. Read in the released wheel, not run.
"""

from __future__ import annotations

import json

from posenc.hf.serving.lines import WRITE_FIRST, Line, Serving

VERSION, INSTEAD = "0.9.5", WRITE_FIRST


def line(serving: Serving) -> Line:
    """The settings of LLaMA-Factory."""
    if serving.overridden:
        raise ValueError("its rope_scaling is a name, which makes a block without gain or betas of its own")
    settings = json.dumps({"model_name_or_path": serving.folder, "cutoff_len": serving.length})
    text = "not run: leave rope_scaling out, which would write a block of its own over the file's"
    return Line("llama-factory", VERSION, settings, None, text)
