"""Entries of hook point 5, weights instead of softmax."""

from __future__ import annotations

from posenc.catalogue.entry import Entry
from posenc.weight.sink import AttentionSink
from posenc.weight.stick_breaking import StickBreaking

ENTRIES = (
    Entry(
        name="stick-breaking",
        hook_point="weight",
        encoding=StickBreaking,
        title="Stick-breaking attention",
        formula="a_ij = sigmoid(s_ij) · Π_{j < l < i} (1 − sigmoid(s_il))",
        source="Tan et al., arXiv 2410.17980, section 2",
        parameters="none",
        cost="a running sum over all logits instead of softmax",
        past_training="recent keys keep their weights, farther keys share the rest",
        reads="content",
        extension="none needed by its definition",
        used_in="its paper's own models; no other is known to us",
        exempt={"shuffled_positions": "keys must lie in the order of the text"},
    ),
    Entry(
        name="sink",
        hook_point="weight",
        encoding=AttentionSink,
        title="Attention sink: a logit that takes weight and has no value",
        formula="a_ij = exp(s_ij) / (exp(z_h) + Σ_l exp(s_il))",
        source="gpt-oss, arXiv 2508.10925, section 2.2; softmax off by one, Miller 2023",
        parameters="heads per layer",
        cost="one factor per query, from the log-sum-exp of its logits",
        past_training="the more keys, the less weight the sink gets",
        reads="nothing",
        extension="none of its own",
        used_in="gpt-oss (arXiv 2508.10925); DeepSeek-V4 and MiMo-V2-Flash (as in transformers 5.23)",
    ),
)
