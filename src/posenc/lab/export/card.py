"""The README.md of an exported model: what it is, how to load it, what it scored, and how it was made."""

from __future__ import annotations

from posenc.lab import words
from posenc.lab.export.trained import TrainedJob
from posenc.lab.report.markdown import markdown_table
from posenc.lab.text.table import Row, rows_of

_FRONT = """---
library_name: transformers
pipeline_tag: text-generation
tags:
- posenc
- positional-encoding
- byte-level
---
"""
_LOAD = """```python
{needed}from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{folder}")
tokenizer = AutoTokenizer.from_pretrained("{folder}")
prompt = tokenizer("def ", return_tensors="pt")
print(tokenizer.decode(model.generate(**prompt, max_new_tokens=64)[0]))
```"""
_POSENC = "import posenc.hf.modeling  # pip install 'posenc[hf]'; or give trust_remote_code=True\n"


def model_card(trained: TrainedJob, name: str, *, plain_llama: bool, difference: float) -> str:
    """The card.

    Args:
        trained: what was exported.
        name: of its folder.
        plain_llama: whether it was exported as a Llama.
        difference: the largest one between its logits and those of the lab's model.
    """
    job, s = trained.job, trained.settings
    total, own = trained.decoder.parameter_counts()
    kind = "a plain `LlamaForCausalLM`" if plain_llama else "a `PosencForCausalLM`"
    bare = "" if plain_llama else _POSENC
    return "\n".join(
        [
            f"{_FRONT}\n# {job.spec}, a byte-level language model of posenc compare\n",
            f"A small decoder for the comparison of positional encodings: {s.layers} layers of width {s.dim} with "
            f"{s.heads} heads, {total:,} parameters, {own:,} of them the encoding's, trained on pieces of "
            f"{s.train_length} bytes. Its tokens are the 256 bytes; byte 0 stands between documents. It is a subject "
            "of measurements, not a model to rely on.\n",
            f"Here it is {kind}. On bytes drawn at random its logits differ from those of the lab's model by at most "
            f"{difference:.1e}.\n",
            _LOAD.format(needed=bare, folder=name),
            "\n## Bits per byte\n",
            *_numbers(trained),
            "\n## How it was made\n",
            f"Seed {job.seed}. Settings: {'; '.join(f'{key} {value}' for key, value in s.shown().items())}.  ",
            f"Corpus: {'; '.join(f'{key} {value}' for key, value in job.corpus.items())}.  ",
            f"Versions: {', '.join(f'{key} {value}' for key, value in job.versions.items())}.  ",
            *_machine(trained),
            "",
        ]
    )


def _numbers(trained: TrainedJob) -> list[str]:
    if trained.result is None:
        return ["Not measured yet."]
    training = trained.result["training"]
    measured = {spec: [{**row, "training": training}] for spec, row in trained.result["rows"].items()}
    lengths = trained.settings.lengths
    heads = ["encoding", *(f"{k}×" for k in lengths), f"change at {lengths[-1]}×", "verdict"]
    rows = rows_of(measured)
    return [
        *markdown_table(heads, [_cells(row) for row in rows]),
        "",
        words.protocol_text(trained.settings) + (f" {words.WINDOW_NOTE}" if any(row.control for row in rows) else ""),
        "",
        *markdown_table(words.TRAINING_HEADS, [words.training_cells(row) for row in rows if not row.control]),
    ]


def _cells(row: Row) -> list[str]:
    return [row.spec, *map(words.number, row.bits), words.change_text(row.changes[-1]), row.verdict]


def _machine(trained: TrainedJob) -> list[str]:
    if trained.result is None or "machine" not in trained.result:
        return []
    return [f"Machine: {', '.join(f'{key} {value}' for key, value in trained.result['machine'].items())}."]
