"""transformers: the reference itself, by the forward of its rotary module, so that its own rounding is a column too."""

from __future__ import annotations

from benchmarks.engines.adapters import Adapter, Question, Rows, installed
from benchmarks.engines.adapters._configs import loaded, rows_of


def measure(question: Question) -> Rows:
    """cos and sin of the module's call on the whole text."""
    import torch
    from benchmarks.engines.transformers_rotary import rotary_module

    module = rotary_module(loaded(question.config))
    positions = torch.arange(question.length)[None]
    if "mrope" in repr(module.config):
        positions = positions.expand(3, 1, -1)
    more = {"layer_type": question.kind} if hasattr(module, f"{question.kind}_inv_freq") else {}
    cos, sin = (table[0] if table.dim() == 3 else table[0, 0] for table in module(torch.zeros(1), positions, **more))
    at = torch.tensor(question.positions)
    cos, sin = cos[at], sin[at]
    if torch.equal(cos[:, : cos.shape[-1] // 2], cos[:, cos.shape[-1] // 2 :]):  # halves are repeated
        half = cos.shape[-1] // 2
        return rows_of(cos[:, :half], sin[:, :half])
    if torch.equal(cos[:, ::2], cos[:, 1::2]):  # neighbours are repeated
        return rows_of(cos[:, ::2], sin[:, ::2])
    return rows_of(cos, sin)


ADAPTER = Adapter(
    "transformers", "pip install 'transformers>=5'", installed("transformers"), "cos and sin", measure,
    "modeling_*.py: the rotary module of the model type",
    route="cos and sin of the module's own forward",
)  # fmt: skip
