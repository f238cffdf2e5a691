"""Findings on a checkpoint's positions, and the errors of a configuration that cannot be read."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from posenc.input_files import printable

Level = Literal["note", "suspicion", "fault"]
CONFIG = "config.json"
LABEL = 14  # columns of the labels of a report
_COLUMNS = 118

COSTS = {
    "version-5-spelling": "0.765 nats a token (Open-Athena/MarinFold#184)",
    "base-lost": "perplexity 13.8 became 11,316 at position 7,800 (unslothai/unsloth#7028); gibberish "
    "(vllm-project/vllm#44158, keras-team/keras-hub#2729, microsoft/onnxruntime-genai#2311)",
    "linear-over-llama3": "perplexity 10 became 166 at position 65,000 (unslothai/unsloth#7028)",
    "scaling-lost": "a cosine of 0.76 between right and wrong queries at 8,192 tokens, 0.50 at 60,000 "
    "(Blaizzy/mlx-vlm#1710)",
    "share-lost": "13.1 nats of divergence a token (huggingface/transformers#48241)",
    "yarn-on-short-prompts": "users report worse answers to short prompts (vllm-project/vllm#18728, "
    "sgl-project/sglang#6030)",
    "yarn-gain-in-engines": "a gain of 1.28 or 1.42 instead of 1 (vllm-project/vllm#48621 and #48351, "
    "sgl-project/sglang#22711)",
    "gguf-scaling-lost": "quality past the training length (ggml-org/llama.cpp#13322, ikawrakow/ik_llama.cpp#402)",
    "rotation-of-another-configuration": "a silent no-op: the loss is the unchanged model's (MakazhanAlpamys/Soup#793)",
    "attention-without-mask": "wrong attention wherever a batch is padded (huggingface/transformers#45811)",
    "sinks-ignored": "another softmax in every layer (huggingface/transformers#43120, unslothai/unsloth#3142)",
    "frequencies-rounded": "an error of 180 degrees at 4,096 tokens (Modalities/modalities#462), 0.011 nats of "
    "divergence (NVIDIA-NeMo/Automodel#2549)",
    "frequencies-uninitialised": "training loss 5 to 11 times higher (unslothai/unsloth#4112), 11.08 instead of "
    "3.63 (pytorch/torchtitan#4783)",
    "saved-frequencies-differ": "the base of a configuration that nobody reads goes wrong unseen (Zymrael/vortex#73)",
    "weights-of-another-layout": "fluent-looking nonsense after some 20 tokens (karpathy/llama2.c#286, "
    "nurl-lang/nurl#584)",
    "factor-and-lengths-differ": "engines take the one or the other (huggingface/transformers#38224)",
    "tokenizer-length-beyond": "none: it says nothing of the model (QwenLM/Qwen3#342)",
}
"""What a fault cost where somebody measured it, with the thread, by the name of the finding."""


class Finding(NamedTuple):
    """One finding on a checkpoint: a key of its configuration, or a part of its model, and what to know about it.

    `posenc.hf.read_rope` finds them in a configuration, `posenc.hf.doctor` also in weights, other files and live
    models, and adds corrections.

    Attributes:
        key: of the configuration, or the part of a model.
        text: what is said of the key; a sentence whose subject is the key.
        name: the same for every finding of one kind, whatever its numbers: "base-lost".
        level: "note": a fact such as a default, no cause for alarm; "suspicion": probably wrong, but the files alone
            cannot decide; "fault": the files decide that something is wrong.
        corrected: keys to write instead (null: the key is removed); None where nothing can be written.
        certain: whether `posenc.hf.doctor.fix` writes them; else somebody who knows the model must check the numbers.
        file: the file that the corrected keys belong to.
        inside: the path of the part of that file where they belong; "" for the top level.
    """

    key: str
    text: str
    name: str = ""
    level: Level = "note"
    corrected: dict[str, Any] | None = None
    certain: bool = False
    file: str = CONFIG
    inside: str = ""

    @property
    def alarms(self) -> bool:
        """Whether it is a suspicion or a fault."""
        return self.level != "note"

    @property
    def cost(self) -> str:
        """What it cost where it was measured, with the thread; "" where nobody did."""
        return COSTS.get(self.name, "")

    def summary(self) -> dict[str, str]:
        """Key, text, name and level, ready for JSON: a finding without its correction."""
        return {"key": self.key, "text": self.text, "name": self.name, "level": self.level}

    def as_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        first = {"name": self.name, "level": self.level, "key": self.key, "text": self.text}
        return {**first, **self._asdict(), "cost": self.cost}

    def __str__(self) -> str:
        lines = [labelled(self.level.upper(), f"{printable(self.key)} {printable(self.text)} [{self.name}]")]
        if not self.alarms:
            return lines[0]
        lines += [labelled("", f"Cost: {self.cost}")] if self.cost else []
        if self.corrected is not None:
            where = f"{self.file}, in {self.inside}" if self.inside else self.file
            check = "" if self.certain else ", after a look at its numbers"
            lines += [f"{'':<{LABEL}}Fix in {where}{check}: {json.dumps(self.corrected, default=str)}"]
        return "\n".join(lines)


def labelled(label: str, text: str) -> str:
    """A label and a text to the right of it, in lines of at most `_COLUMNS` characters unless a word is longer."""
    return textwrap.fill(
        text, _COLUMNS, initial_indent=f"{label:<{LABEL}}", subsequent_indent=" " * LABEL, break_long_words=False,
        break_on_hyphens=False, drop_whitespace=True,
    )  # fmt: skip


class NotReadError(ValueError):
    """A configuration that may well be right, but whose rotation posenc cannot read: no fault of the checkpoint."""


class MalformedError(ValueError):
    """A malformed block of a configuration.

    Attributes:
        problems: what is wrong with each key, by the key's path.
        inside: the path of the text part, "" where it is the whole configuration.
    """

    def __init__(self, text: str, problems: Mapping[str, str], inside: str) -> None:
        super().__init__(text)
        self.problems, self.inside = dict(problems), inside
