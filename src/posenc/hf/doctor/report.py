"""Findings, with what a fault costs where it was measured, and a report of them as text and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from posenc.hf.remark import Level
from posenc.hf.sources.load import Config
from posenc.input_files import printable
from posenc_cli.exit_codes import code_of

COSTS = {
    "version-5-spelling": "0.765 nats a token (Open-Athena/MarinFold#184)",
    "base-lost": "perplexity 13.8 became 11,316 at position 7,800 (unslothai/unsloth#7028); gibberish "
    "(vllm-project/vllm#44158, keras-team/keras-hub#2729, microsoft/onnxruntime-genai#2311)",
    "linear-over-llama3": "perplexity 10 became 166 at position 65,000 (unslothai/unsloth#7028)",
    "scaling-lost": "a cosine of 0.76 between right and turned queries at 8,192 tokens, 0.50 at 60,000 "
    "(Blaizzy/mlx-vlm#1710)",
    "share-lost": "13.1 nats of divergence a token (huggingface/transformers#48241)",
    "yarn-on-short-prompts": "quality of short prompts (vllm-project/vllm#18728, sgl-project/sglang#6030)",
    "yarn-gain-in-engines": "a gain of 1.28 or 1.42 in the place of 1 (vllm-project/vllm#48621 and #48351, "
    "sgl-project/sglang#22711)",
    "gguf-scaling-lost": "quality past the trained length (ggml-org/llama.cpp#13322, ikawrakow/ik_llama.cpp#402)",
    "rotation-of-another-configuration": "a silent no-op: the loss stays that of the model before "
    "(MakazhanAlpamys/Soup#793)",
    "attention-without-mask": "wrong attention wherever a batch is padded (huggingface/transformers#45811)",
    "sinks-ignored": "another softmax in every layer (huggingface/transformers#43120, unslothai/unsloth#3142)",
    "frequencies-rounded": "an error of 180 degrees at 4,096 tokens (Modalities/modalities#462), 0.011 nats of "
    "divergence (NVIDIA-NeMo/Automodel#2549)",
    "frequencies-uninitialised": "training loss 5 to 11 times higher (unslothai/unsloth#4112), 11.08 in the place of "
    "3.63 (pytorch/torchtitan#4783)",
    "saved-frequencies-differ": "the base of a configuration that nobody reads goes wrong unseen (Zymrael/vortex#73)",
    "weights-of-another-layout": "fluent-looking nonsense after some 20 tokens (karpathy/llama2.c#286, "
    "nurl-lang/nurl#584)",
    "factor-and-lengths-differ": "engines take the one or the other (huggingface/transformers#38224)",
    "tokenizer-length-beyond": "none: it says nothing of the model (QwenLM/Qwen3#342)",
}


CONFIG = "config.json"
_ORDER: dict[Level, int] = {"fault": 0, "suspicion": 1, "note": 2}


class Finding(NamedTuple):
    """One thing that was found.

    Attributes:
        name: of the check, the same for every finding of one kind: "base-lost".
        level: as that of a `posenc.hf.Remark`; "note" is no cause for alarm.
        key: of the configuration, or the part of a model.
        text: what it says of that key, to be read after it.
        corrected: keys to write in their place (null: the key goes); None where nothing can be written.
        certain: whether `fix` writes them; else the numbers need somebody who knows the model.
        file: where they go.
        inside: the part of that file where they go, by its path; "" for the whole.
    """

    name: str
    level: Level
    key: str
    text: str
    corrected: Config | None = None
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

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**self._asdict(), "cost": self.cost}

    def __str__(self) -> str:
        lines = [f"{self.level:<10}{self.name}: {printable(self.key)} {printable(self.text)}"]
        if not self.alarms:
            return lines[0]
        lines += [f"        cost: {self.cost}"] if self.cost else []
        if self.corrected is not None:
            where = f"{self.file}, in {self.inside}" if self.inside else self.file
            check = "" if self.certain else ", after a look at its numbers"
            lines += [f"        write in {where}{check}: {json.dumps(self.corrected, default=str)}"]
        return "\n".join(lines)


class Report(NamedTuple):
    """What was found in one source, the worst first. Print it.

    Attributes:
        source: what was examined.
        findings: each of them.
        checked: what was looked at: files with what was read of them, modules of a live model.
        not_checked: what was not, and could hold a fault of positions; "healthy" says nothing of these.
    """

    source: str
    findings: tuple[Finding, ...]
    checked: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether there is nothing but notes."""
        return not any(one.alarms for one in self.findings)

    def exit_code(self, *, strict: bool = False) -> int:
        """The code with which a command ends that reports this, as `posenc_cli.exit_codes` has them."""
        return code_of((one.level for one in self.findings), strict=strict)

    def names(self) -> set[str]:
        """The names of what is a suspicion or a fault."""
        return {one.name for one in self.findings if one.alarms}

    def accepting(self, names: set[str]) -> Report:
        """The same without the findings of these names."""
        return self._replace(findings=tuple(one for one in self.findings if one.name not in names))

    def as_json(self) -> str:
        """All of it as JSON."""
        known: dict[str, Any] = {"source": self.source, "healthy": self.healthy}
        known |= {"checked": list(self.checked), "not_checked": list(self.not_checked)}
        known["findings"] = [one.as_dict() for one in self.findings]
        return json.dumps(_finite(known), indent=2, default=str, allow_nan=False)

    def __str__(self) -> str:
        faults, suspicions = (sum(one.level == level for one in self.findings) for level in ("fault", "suspicion"))
        lines = [printable(self.source)]
        lines += [f"checked       {', '.join(self.checked)}"] if self.checked else []
        lines += [f"not checked   {', '.join(self.not_checked)}"] if self.not_checked else []
        lines += ["", *map(str, self.findings)] if self.findings else []
        if self.healthy:
            return "\n".join([*lines, "", "healthy in what was checked"])
        return "\n".join([*lines, "", f"{_several(faults, 'fault')}, {_several(suspicions, 'suspicion')}"])


def _several(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"


def _finite(value: Any) -> Any:
    """The same with NaN and infinities as text, since JSON has no such numbers and a config in Python's JSON may."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def report_of(
    source: str, findings: list[Finding], checked: Iterable[str] = (), not_checked: Iterable[str] = ()
) -> Report:
    """A report of these, each once, the worst first, with what was looked at and what was not."""
    once: dict[tuple[str, str, str], Finding] = {}
    for one in findings:
        once.setdefault((one.name, one.key, one.text), one)
    ordered = tuple(sorted(once.values(), key=lambda one: _ORDER[one.level]))
    return Report(source, ordered, tuple(checked), tuple(not_checked))
