"""Evaluation of language models by the length of their context: likelihood, retrieval, and paired statistics.

    likelihood.py      loss on the last tokens of a text, the same tokens at every length
    retrieval.py       facts hidden in documents, in the manner of RULER;  generate.py: greedy decoding
    needles.py         documents of which one hidden number is scored, for LongRoPE2's search
    documents.py       whole documents;  log.py: measurements that survive a kill
    statistics.py      intervals, paired tests, equivalence;  report.py: tables and verdicts

`posenc.hf.evaluate` runs them on checkpoints, under any method of context extension.
"""

from posenc.evaluation.documents import Document, read_documents
from posenc.evaluation.generate import Generation, generate
from posenc.evaluation.likelihood import token_losses
from posenc.evaluation.needles import ScoredText, needle_documents
from posenc.evaluation.report import Contrast, Evaluation, Reading
from posenc.evaluation.retrieval import Prompt, Task, build_prompt, draw_task, score
from posenc.evaluation.statistics import (
    Comparison,
    Interval,
    holm,
    mean_interval,
    paired_means,
    paired_shares,
    share_interval,
)  # fmt: skip

__all__ = [
    "Document", "read_documents", "token_losses", "ScoredText", "needle_documents", "Generation", "generate", "Task",
    "Prompt", "draw_task", "build_prompt", "score", "Interval", "Comparison", "mean_interval", "paired_means",
    "share_interval", "paired_shares", "holm", "Reading", "Contrast", "Evaluation",
]  # fmt: skip
