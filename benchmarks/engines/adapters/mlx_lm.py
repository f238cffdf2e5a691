"""mlx-lm: whole models, loaded from the checkpoint by its own loader, on a CPU."""

from __future__ import annotations

from pathlib import Path

from benchmarks.engines.adapters import Adapter, Question, Rows, installed


def measure(question: Question) -> Rows:
    """Logits of the whole text."""
    import mlx.core as mx  # type: ignore[import-not-found, unused-ignore]
    from mlx_lm.utils import load_model  # type: ignore[import-not-found, unused-ignore]

    model, _ = load_model(Path(question.folder))
    logits = model(mx.array([list(question.tokens)])).astype(mx.float32)[0]
    rows: Rows = logits[mx.array(list(question.positions))].tolist()
    return rows


ADAPTER = Adapter(
    "mlx_lm", "pip install --no-deps mlx-lm==0.32.2 && pip install 'mlx[cpu]'", installed("mlx-lm"), "logits", measure,
    "mlx_lm.utils.load_model and the model's own call",
    ("llama", "qwen2", "qwen3", "mistral", "phi3", "stablelm", "glm4", "olmo2", "granite",
     "cohere", "gemma", "gemma2", "qwen3_moe"),
    route="logits of the whole model on a CPU in float32",
)  # fmt: skip
