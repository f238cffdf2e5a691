"""verl: arguments of its trainers; the actor is transformers' or Megatron's, the rollout is vLLM or SGLang.

Source: verl 0.9.1, workers/config/model.py (override_config is set on the actor's config) and
    workers/rollout/vllm_rollout/vllm_async_server.py, sglang_rollout/async_sglang_server.py (the rollout's overrides
    hold keys of quantisation alone). Read in the released wheel, not run.
"""

from __future__ import annotations

import shlex

from posenc.hf.serving.lines import WRITE_FIRST, Line, Serving

VERSION, INSTEAD = "0.9.1", WRITE_FIRST


def line(serving: Serving) -> Line:
    """The arguments of verl."""
    if serving.overridden:
        raise ValueError("actor and rollout must have one rotation, and override_config reaches the actor alone")
    words = [f"actor_rollout_ref.model.path={serving.folder}"]
    words += [f"actor_rollout_ref.rollout.max_model_len={serving.length}"] if serving.length else []
    text = "not run: actor and rollout read one file; posenc serve says which engine computes it correctly"
    return Line("verl", VERSION, shlex.join(words), None, text, words=tuple(words))
