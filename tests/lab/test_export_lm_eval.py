"""lm-eval runs an exported model without a network, and scores what the model itself says."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("lm_eval")

import lm_eval
from lm_eval.tasks import TaskManager
from tests.lab.test_export import job_of, written
from transformers import AutoModelForCausalLM

TASKS = Path(__file__).parents[2] / "examples" / "lm_eval"
pytestmark = [pytest.mark.slow, pytest.mark.reference]


@torch.no_grad()
def bits_per_byte(model: torch.nn.Module, window: int) -> float:
    """Windows side by side, the last one moved back so that it is as long as the others; byte 0 before the first."""
    nats, count = 0.0, 0
    for line in (TASKS / "texts.jsonl").read_text().splitlines():
        text = list(json.loads(line)["text"].encode())
        tokens = torch.tensor([[0, *text]])
        for start in range(0, len(text), window):
            end = min(start + window, len(text))
            first = max(0, end - window)
            losses = model(tokens[:, first:end]).logits[0].log_softmax(-1)
            new = losses.gather(1, tokens[0, first + 1 : end + 1, None])[start - end :]
            nats, count = nats - new.sum().item(), count + end - start
    return nats / count / math.log(2)


@pytest.mark.parametrize(("spec", "plain_llama"), [("rope", True), ("t5", False), ("fox", False)])
def test_lm_eval_scores_an_exported_model(spec: str, plain_llama: bool, tmp_path: Path) -> None:
    out = tmp_path / "out"
    written(job_of(tmp_path / "run", spec), out, plain_llama=plain_llama)
    results = lm_eval.simple_evaluate(
        model="hf", model_args=f"pretrained={out}", tasks=["posenc_bytes"], device="cpu", batch_size=4,
        task_manager=TaskManager(include_path=str(TASKS), include_defaults=False),
    )  # fmt: skip
    score = results["results"]["posenc_bytes"]["bits_per_byte,none"]
    expected = bits_per_byte(AutoModelForCausalLM.from_pretrained(out).eval(), window=16)
    assert score == pytest.approx(expected, abs=1e-4)
