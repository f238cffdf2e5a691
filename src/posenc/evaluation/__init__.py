"""Evaluation of language models by the length of their context: likelihood, retrieval, and paired statistics.

    likelihood.py      loss on the last tokens of a text, the same tokens at every length
    retrieval.py       facts hidden in documents, in the manner of RULER;  generate.py: greedy decoding
    needles.py         documents of which one hidden number is scored, for LongRoPE2's search
    documents.py       whole documents;  log.py: measurements that survive a kill
    statistics.py      intervals, paired tests, equivalence;  report.py: tables and verdicts

`posenc.hf.evaluate` runs them on checkpoints, under any method of context extension.
"""

from posenc.evaluation.documents import Document as Document
from posenc.evaluation.documents import read_documents as read_documents
from posenc.evaluation.generate import Generation as Generation
from posenc.evaluation.generate import generate as generate
from posenc.evaluation.likelihood import token_losses as token_losses
from posenc.evaluation.needles import ScoredText as ScoredText
from posenc.evaluation.needles import needle_documents as needle_documents
from posenc.evaluation.report import Contrast as Contrast
from posenc.evaluation.report import Evaluation as Evaluation
from posenc.evaluation.report import Reading as Reading
from posenc.evaluation.retrieval import Prompt as Prompt
from posenc.evaluation.retrieval import Task as Task
from posenc.evaluation.retrieval import build_prompt as build_prompt
from posenc.evaluation.retrieval import draw_task as draw_task
from posenc.evaluation.retrieval import score as score
from posenc.evaluation.statistics import Comparison as Comparison
from posenc.evaluation.statistics import Interval as Interval
from posenc.evaluation.statistics import holm as holm
from posenc.evaluation.statistics import mean_interval as mean_interval
from posenc.evaluation.statistics import paired_means as paired_means
from posenc.evaluation.statistics import paired_shares as paired_shares
from posenc.evaluation.statistics import share_interval as share_interval

__all__ = [
    "Document", "read_documents", "token_losses", "ScoredText", "needle_documents", "Generation", "generate", "Task",
    "Prompt", "draw_task", "build_prompt", "score", "Interval", "Comparison", "mean_interval", "paired_means",
    "share_interval", "paired_shares", "holm", "Reading", "Contrast", "Evaluation",
]  # fmt: skip
