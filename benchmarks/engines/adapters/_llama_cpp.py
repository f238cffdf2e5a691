"""A GGUF file in llama.cpp, through llama_cpp_python's own build of it: what its adapters run."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.engines.adapters import Question, Rows

_CALLBACKS: list[object] = []


def run_gguf(
    path: Path, question: Question, flags: Mapping[str, Any] | None = None, overrides: Mapping[str, float] | None = None
) -> Rows:
    """Logits of a GGUF file in llama.cpp, in float32 without flash attention.

    Args:
        path: of the file.
        question: text and positions.
        flags: fields of llama.cpp's context parameters that a command line sets, but for the length, which the text
            decides.
        overrides: keys of the file, of float values, as ``--override-kv`` sets them.
    """
    import llama_cpp as engine  # type: ignore[import-not-found, unused-ignore]
    import numpy as np

    silent = engine.llama_log_callback(
        lambda *a: None
    )  # llama.cpp calls it until it is replaced, so it must outlive it
    engine.llama_log_set(silent, ctypes.c_void_p(0))
    _CALLBACKS.append(silent)
    loading, overrides = engine.llama_model_default_params(), overrides or {}
    replaced = (engine.llama_model_kv_override * (len(overrides) + 1))()  # an empty key ends it
    for entry, (key, value) in zip(replaced, overrides.items(), strict=False):
        entry.tag, entry.key, entry.value.val_f64 = engine.LLAMA_KV_OVERRIDE_TYPE_FLOAT, key.encode(), value
    if overrides:
        loading.kv_overrides = replaced
    model = engine.llama_model_load_from_file(str(path).encode(), loading)
    if not model:
        raise RuntimeError("llama.cpp does not load the file")
    parameters = engine.llama_context_default_params()
    parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = max(len(question.tokens), 256)
    parameters.type_k = parameters.type_v = parameters.flash_attn_type = 0
    for name, value in (flags or {}).items():
        setattr(parameters, name, value)
    parameters.n_threads = parameters.n_threads_batch = 1
    running = engine.llama_init_from_model(model, parameters)
    batch = engine.llama_batch_init(len(question.tokens), 0, 1)
    batch.n_tokens = len(question.tokens)
    for place, token in enumerate(question.tokens):
        batch.token[place], batch.pos[place], batch.n_seq_id[place] = token, place, 1
        batch.seq_id[place][0], batch.logits[place] = 0, 1
    if engine.llama_decode(running, batch) != 0:
        raise RuntimeError("llama_decode failed")
    count = engine.llama_vocab_n_tokens(engine.llama_model_get_vocab(model))
    logits = np.ctypeslib.as_array(engine.llama_get_logits(running), shape=(len(question.tokens) * count,))
    rows: Rows = logits.reshape(-1, count)[list(question.positions)].tolist()
    engine.llama_batch_free(batch)
    engine.llama_free(running)
    engine.llama_model_free(model)
    return rows
