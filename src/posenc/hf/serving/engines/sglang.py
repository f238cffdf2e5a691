"""SGLang: ``python -m sglang.launch_server``, and --json-model-override-args.

No environment variable lifts its limit here: the written config, or the override, declares the length.
Source: SGLang 0.5.23, hf_transformers/common.py (get_context_length) for the length that it grants;
    models/qwen3_vl.py:1342, which builds the text model from the outer config; models/ministral3.py, whose step of the
    temperature is ``max_position_embeddings``. Read in the released wheel.
"""

from __future__ import annotations

from collections.abc import Iterator

from posenc.hf.config.text_config import max_length
from posenc.hf.serving.lines import Line, Server, Serving, longrope_note, server_line, steps_of_temperature
from posenc.hf.serving.table import SGLANG, version_of

COLUMN, VERSION = SGLANG, version_of(SGLANG)
SERVER = Server(
    "sglang", VERSION, ("python", "-m", "sglang.launch_server", "--model-path"), "--context-length",
    "--json-model-override-args", merges=True, from_outer=("qwen3_vl_text",),
)  # fmt: skip


def line(serving: Serving) -> Line:
    """The line of SGLang."""
    read = () if serving.exact else differences(serving)
    return server_line(SERVER, serving, [longrope_note(serving, always=False), *read])


def differences(serving: Serving) -> Iterator[str]:
    """What SGLang's code makes of a config otherwise than the file says."""
    declared = max_length(serving.facts.text)
    for _, step in steps_of_temperature(serving.facts):
        if declared is not None and declared != step:
            yield (
                f"sglang computes the step of the temperature from max_position_embeddings ({declared:,} tokens), not "
                f"from {step:,}"
            )
