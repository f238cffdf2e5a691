"""Entries of hook point 4 that multiply the scores of a query."""

from __future__ import annotations

from posenc.catalogue.entry import Entry
from posenc.score.temperature import LogN, PowerTemperature, SSMax, StepTemperature

ENTRIES = (
    Entry(
        name="ssmax",
        hook_point="score",
        encoding=SSMax,
        title="SSMax: scalable softmax",
        formula="s_ij ← s_ij · (scale_h · ln n_i + bias_h),  n_i keys that query i sees",
        source="Nakanishi, arXiv 2501.19399, figure 1",
        parameters="heads per layer, twice that with bias",
        cost="one factor per query",
        past_training="logits keep growing with the logarithm of the length",
        reads="lengths",
        extension="is itself one: scores are sharpened as rows grow",
        used_in="its paper's own models; no other is known to us",
        exempt={"positions_matter": "the number of keys is read, not where they are"},
    ),
    Entry(
        name="log_n",
        hook_point="score",
        encoding=LogN,
        title="Log-n scaling of attention",
        formula="s_ij ← s_ij · (1 + strength · ln max(1, n_i / original_length)),  n_i = p_i + 1 or keys that i sees",
        source="Chiang and Cholak, arXiv 2202.12172; Qwen's use_logn_attn, arXiv 2309.16609",
        parameters="none",
        cost="one factor per query",
        past_training="logits grow with the logarithm of the length, so that weights do not flatten further",
        reads="positions",
        extension="is itself one: scores are sharpened past the training length",
        used_in="Qwen (arXiv 2309.16609)",
        exempt={"common_shift": "reads where a query is, not how far from its keys"},
    ),
    Entry(
        name="step_temperature",
        hook_point="score",
        encoding=StepTemperature,
        title="A temperature that grows in steps of the position",
        formula="s_ij ← s_ij · (1 + strength · ln(1 + floor((p_i + offset) / step)))",
        source="Llama 4, Ministral 3 and Mistral 4, as in transformers 5.23, after arXiv 2501.19399",
        parameters="none",
        cost="one factor per query",
        past_training="logits grow with the logarithm of the length, in steps",
        reads="positions",
        extension="is itself one: scores are sharpened step by step",
        used_in="Llama 4, Ministral 3 and Mistral 4 (as in transformers 5.23)",
        exempt={"common_shift": "reads where a query is, not how far from its keys"},
    ),
    Entry(
        name="power_temperature",
        hook_point="score",
        encoding=PowerTemperature,
        title="A temperature that grows as a power of the position",
        formula="s_ij ← s_ij · (1 + (p_i + 1) / step) ^ power",
        source="Beam in transformers 5.23, after arXiv 2501.19399",
        parameters="none",
        cost="one factor per query",
        past_training="logits keep growing by the same power",
        reads="positions",
        extension="is itself one: scores are sharpened by a power of the position",
        used_in="Beam (as in transformers 5.23)",
        exempt={"common_shift": "reads where a query is, not how far from its keys"},
    ),
)
