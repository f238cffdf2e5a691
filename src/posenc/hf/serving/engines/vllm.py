"""vLLM: ``vllm serve FOLDER``, and --hf-overrides.

Source: vLLM 0.33, config/model.py (_get_and_verify_max_len) for the length that it grants; config/speculative.py:1400:
    "Dict overrides stay target-only" (benchmarks/engines/draft_heads.py, vllm-project/vllm#58080); models/mistral.py,
    which reads the temperature from a top-level ``llama_4_scaling`` alone; dynamic_ntk_scaling_rope.py. Read in the
    released wheel; the temperature and the draft models were not run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from posenc.frequencies.ntk import DynamicNTK
from posenc.hf.serving.lines import Line, Server, Serving, longrope_note, server_line, steps_of_temperature
from posenc.hf.serving.table import VLLM, version_of

COLUMN, VERSION = VLLM, version_of(VLLM)
SERVER = Server("vllm", VERSION, ("vllm", "serve"), "--max-model-len", "--hf-overrides")
_DRAFTS = (
    "a draft model or multi-token prediction (--speculative-config) does not get these overrides: write them into its "
    "config.json"
)


def line(serving: Serving) -> Line:
    """The line of vLLM."""
    drafts = [_DRAFTS] if serving.overridden and serving.changed else []
    read = () if serving.exact else differences(serving)
    return server_line(SERVER, serving, [longrope_note(serving, always=True), *drafts, *read])


def differences(serving: Serving) -> Iterator[str]:
    """What vLLM's code makes of a config otherwise than the file says."""
    for beta, step in steps_of_temperature(serving.facts):
        key = json.dumps({"llama_4_scaling": {"original_max_position_embeddings": step, "beta": beta}})
        yield (
            "vllm does not apply the temperature of llama_4_scaling_beta from rope_parameters: add "
            f"{key[1:-1]} to the config, outside every block"
        )
    for scaling in serving.steps(DynamicNTK, "dynamic"):
        if serving.length is not None and serving.length < scaling.original_length:
            yield (
                f"vllm computes its own dynamic NTK wrong below {scaling.original_length:,} tokens, and no number "
                f"(NaN) below {round(scaling.original_length * (1 - 1 / scaling.factor)):,}: serve the file itself "
                f"with at least {scaling.original_length:,}"
            )
