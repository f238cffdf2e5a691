"""Evaluations of checkpoints: what is read, what a stop loses, and what a table says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig

import posenc_cli
from posenc.evaluation import Document, Evaluation, Reading, generate, token_losses
from posenc.evaluation.likelihood import last_logits
from posenc.evaluation.log import MeasurementLog
from posenc.hf.config.facts import read_facts
from posenc.hf.evaluate import Method, evaluate
from posenc.hf.evaluate.evaluate import trained_by
from posenc.hf.modeling.export import byte_tokenizer
from posenc.search import Settings
from tests.hf.extend.extended import FEW, TRAINED, saved, small

SENTENCES = "A sentence of some words. Another one, with more of them!\n"
ALL = ("as_is", "cut", "chunked", "yarn", "yarn@2", "dynamic_ntk", "self_extend", "streaming_llm", "longrope")


def documents(count: int = 4, length: int = 1500) -> list[Document]:
    texts = [f"Number {n}. " + "".join(SENTENCES[k:] for k in range(n, n + 40)) for n in range(count)]
    return [Document(f"{n}.txt", text[:length], f"{n:064}") for n, text in enumerate(texts)]


def request(**options: Any) -> dict[str, Any]:
    return {
        "tokenizer": byte_tokenizer(), "documents": documents(), "count": 2, "tasks": ["perplexity"], "scored": 8,
        "lengths": [TRAINED, 2 * TRAINED], "trained_length": TRAINED, **options,
    }  # fmt: skip


class Lookup(nn.Module):
    """Answers "… secret number of the KEY is" by what stands after the same words earlier in what it has read.

    It is sure of what it has found and unsure of what it has not, as a model that can copy would be.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.config = LlamaConfig(max_position_embeddings=600)
        self.longest = 0

    def forward(self, input_ids: torch.Tensor, past_key_values: Any = None, use_cache: bool = False) -> Any:
        read = [*(past_key_values or []), *input_ids[0].tolist()]
        self.longest = max(self.longest, len(read))
        text = bytes(read).decode(errors="replace")
        context, _, tail = text.rpartition(" is")
        key = context[context.rindex("secret number of the ") :]
        start = text.find(f"{key} is ", 0, len(context) - len(key))
        value = text[start + len(key) + 4 :].split(".")[0] if start >= 0 else "0000000"
        logits = torch.zeros(1, 1, 256)
        answer = f" {value}.\n"
        logits[0, 0, ord(answer[min(len(tail), len(answer) - 1)])] = 20.0 if start >= 0 else 4.0
        return SimpleNamespace(logits=logits, past_key_values=read)


def test_greedy_decoding_equals_transformers() -> None:
    model = small()
    prompt = torch.randint(1, 256, (40,), generator=torch.Generator().manual_seed(0))
    generated = generate(model, prompt, 12)
    reference = model.generate(prompt[None], max_new_tokens=12, do_sample=False, eos_token_id=None)[0, 40:]
    assert generated.tokens == reference.tolist()
    logits = last_logits(model, torch.cat([prompt, reference])[None], 13)[0, :-1].log_softmax(-1)
    expected = logits.gather(1, reference[:, None])[:, 0].tolist()
    assert generated.log_probabilities == pytest.approx(expected, abs=1e-4)


def test_decoding_ends_where_it_is_told_to() -> None:
    model, prompt = small(), torch.arange(1, 30)
    uninterrupted = generate(model, prompt, 6).tokens
    assert (
        generate(model, prompt, 6, end_tokens=frozenset({uninterrupted[3]})).tokens
        == uninterrupted[: uninterrupted.index(uninterrupted[3])]
    )
    assert generate(model, prompt, 6, stop=lambda tokens: len(tokens) == 2).tokens == uninterrupted[:2]


def test_the_same_tokens_are_scored_at_every_length() -> None:
    model = small()
    evaluation = evaluate(model, **request(methods=["as_is", "cut"]))
    tokenizer = byte_tokenizer()
    for item in range(2):
        document = sorted(documents(), key=lambda d: d.name)[0:4][item]
        tokens = torch.tensor(tokenizer(document.text)["input_ids"][: 2 * TRAINED])
        for length in (TRAINED, 2 * TRAINED):
            value = evaluation.values("perplexity", length, "as_is")[item]
            assert value == pytest.approx(float(token_losses(model, tokens[-length:], 8).mean()), abs=1e-6)
        cut = evaluation.values("perplexity", 2 * TRAINED, "cut")[item]
        assert cut == evaluation.values("perplexity", TRAINED, "as_is")[item]


@pytest.mark.parametrize("name", ["llama", "gemma3_text"])
@pytest.mark.parametrize("length", [TRAINED - 4, TRAINED, TRAINED + 20])
def test_a_loss_under_dynamic_ntk_does_not_depend_on_what_was_read_before(name: str, length: int) -> None:
    dynamic: dict[str, Any] = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    options: dict[str, Any] = {"rope_parameters": dynamic}
    if name == "gemma3_text":
        kinds = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}, "full_attention": dynamic}
        options = {"rope_parameters": kinds, "layer_types": list(kinds)}
    model = small(name, **options)
    tokens = torch.randint(1, 256, (2 * TRAINED,), generator=torch.Generator().manual_seed(0))
    first = token_losses(model, tokens[:length], 8)
    long = token_losses(model, tokens, 8)
    assert torch.equal(token_losses(model, tokens[:length], 8), first)
    assert torch.equal(token_losses(model, tokens, 8), long)
    assert generate(model, tokens[:length], 4) == generate(small(name, **options), tokens[:length], 4)


def test_every_method_is_applied_and_taken_back() -> None:
    model, ids = small(), torch.arange(1, 2 * TRAINED)[None]
    with torch.no_grad():
        before = model(ids).logits
    evaluation = evaluate(model, **request(methods=ALL, search=FEW))
    with torch.no_grad():
        assert torch.equal(model(ids).logits, before)
    far = {name: evaluation.values("perplexity", 2 * TRAINED, name).get(0) for name in ALL}
    assert far.pop("chunked") is None
    assert far.pop("yarn") == far["yarn@2"]  # twice the trained length is the longest here
    assert len(set(far.values())) == len(far)
    assert evaluation.values("perplexity", TRAINED, "yarn") != evaluation.values("perplexity", TRAINED, "as_is")


@pytest.mark.parametrize("task", ["niah_single", "niah_multikey"])
def test_cutting_loses_what_is_far_and_chunks_find_it(task: str) -> None:
    model = Lookup()
    evaluation = evaluate(
        model, **request(tasks=[task], trained_length=600, lengths=[600, 1200], scored=8, answer_tokens=16, count=4,
                       methods=["as_is", "cut", "chunked"], depths=[5, 95])
    )  # fmt: skip
    assert list(evaluation.values(task, 1200, "as_is").values()) == [1, 1, 1, 1]
    assert list(evaluation.values(task, 1200, "cut").values()) == [0, 1, 0, 1]  # depths alternate
    assert list(evaluation.values(task, 1200, "chunked").values()) == [1, 1, 1, 1]
    windows = {r.item: r.details["window"] for r in evaluation.readings if r.method == "chunked" and r.length == 1200}
    assert windows[0] < windows[1]


def test_no_chunk_is_longer_than_the_model_was_trained_on() -> None:
    model = Lookup()
    evaluate(
        model, **request(tasks=["niah_single"], trained_length=600, lengths=[1400], answer_tokens=16,
                       methods=["cut", "chunked"])
    )  # fmt: skip
    assert model.longest <= 600


def test_nothing_is_measured_twice_and_parts_make_a_whole(tmp_path: Path) -> None:
    model, lines = small(), list[str]()
    settings = request(methods=["as_is", "yarn"], tasks=["perplexity"], count=3)
    complete = evaluate(model, out=tmp_path / "whole", **settings)
    again = evaluate(model, out=tmp_path / "whole", progress=lines.append, **settings)
    assert not lines
    assert again.record() == complete.record()
    evaluate(model, out=tmp_path / "parts", part=(1, 2), **settings)
    parts = evaluate(model, out=tmp_path / "parts", part=(2, 2), **settings)
    assert [(r.item, r.value) for r in parts.readings] == [(r.item, r.value) for r in complete.readings]
    record = json.loads((tmp_path / "parts" / "record.json").read_text())
    assert len(record["readings"]) == 2 * 2 * 3
    assert (tmp_path / "parts" / "table.md").read_text().startswith("# LlamaForCausalLM")


def test_a_reader_leaves_the_line_that_another_process_is_writing(tmp_path: Path) -> None:
    path, line = tmp_path / "readings.jsonl", b'{"key": "a", "value": 1}\n'
    path.write_bytes(line + b'{"key": "b", ')
    reader = MeasurementLog(path)
    assert reader.known == {"a": 1}
    with path.open("ab") as file:  # the other process goes on
        file.write(b'"value": 2}\n')
    assert MeasurementLog(path).known == {"a": 1, "b": 2}


def test_a_cut_off_line_is_measured_again(tmp_path: Path) -> None:
    model = small()
    complete = evaluate(model, out=tmp_path, **request(methods=["as_is"]))
    path = tmp_path / "readings.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    lines: list[str] = []
    again = evaluate(model, out=tmp_path, progress=lines.append, **request(methods=["as_is"]))
    assert [r.value for r in again.readings] == [r.value for r in complete.readings]
    assert sum("nats" in line or "perplexity" in line for line in lines) == 1


def test_a_log_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "readings.jsonl").write_text('{"key": 1}\n')
    with pytest.raises(ValueError, match="line 1 is not a measurement"):
        evaluate(small(), out=tmp_path, **request(methods=["as_is"]))


def test_models_without_a_rotation_are_read_as_they_are() -> None:
    config = GPT2Config(n_layer=1, n_embd=32, n_head=2, n_positions=2 * TRAINED, vocab_size=256, bos_token_id=0,
                        eos_token_id=0)  # fmt: skip
    evaluation = evaluate(GPT2LMHeadModel(config).eval(), **request(methods=["as_is", "cut"], trained_length=TRAINED))
    assert len(evaluation.readings) == 8
    with pytest.raises(ValueError, match="position_embeddings"):
        evaluate(GPT2LMHeadModel(config).eval(), **request(methods=["yarn"]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": ["squad"]}, "tasks: perplexity"),
        ({"methods": ["progressive"]}, "examples.long_context.progressive"),
        ({"methods": ["longrope2"]}, "posenc extend does that"),
        ({"methods": ["cut@2"]}, "takes no factor"),
        ({"methods": ["yarn@1"]}, "factor above 1"),
        ({"methods": ["yran"]}, "did you mean yarn"),
        ({"lengths": [4]}, "above 8"),
        ({"depths": [101]}, "percentages"),
        ({"part": (3, 2)}, "part"),
        ({"count": 5}, "5 of at least"),
        ({"tokenizer": None}, "tokenizer"),
        ({"methods": ["as_is", "cut"], "scored": TRAINED, "lengths": [2 * TRAINED]}, "cut reads 64 tokens"),
        ({"methods": ["as_is", "cut"], "tasks": ["niah_single"], "lengths": [900]}, "leave -.* of 64 tokens for the"),
        ({"tasks": ["perplexity", "niah_single"], "lengths": [900, 300]}, "300 tokens have no room for niah_single"),
    ],
)
def test_requests_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    lines: list[str] = []
    with pytest.raises(ValueError, match=message):
        evaluate(small(), progress=lines.append, **request(**options))
    assert not lines  # refused before anything is measured


def test_lengths_are_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lengths: whole numbers of tokens above 512"):
        evaluate(tmp_path / "nothing-is-here", lengths=[2048, 512])


def test_a_folder_without_a_tokenizer_is_refused_before_its_model_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    for command in (["evaluate", str(tmp_path)], ["extend", str(tmp_path), "--length", "512"]):
        assert posenc_cli.run(command) == 2
    with pytest.raises(ValueError, match=r"no tokenizer.*copy tokenizer\.json"):
        evaluate(tmp_path)


@pytest.mark.parametrize(
    ("block", "trained"),
    [
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}, 2048),
        ({"rope_type": "llama3", "factor": 4.0, "original_max_position_embeddings": 2048, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0}, 8192),
        ({"rope_type": "linear", "factor": 4.0}, 8192), (None, 8192),
    ],
)  # fmt: skip
def test_an_extended_checkpoint_was_trained_at_the_original_length(block: Any, trained: int) -> None:
    config = {"model_type": "llama", "head_dim": 64, "rope_theta": 1e4, "max_position_embeddings": 8192}
    assert trained_by(read_facts({**config, "rope_scaling": block})) == trained


def test_methods_by_name() -> None:
    assert str(Method.parse("yarn@2")) == "yarn@2"
    assert Method.parse("yarn@1.5").target(1000, 4000) == 1500
    assert Method.parse("yarn").target(1000, 4000) == 4000
    names = ["linear@2", "dynamic", "pi+resonance"]
    assert [str(Method.parse(name)) for name in names] == ["pi@2", "dynamic_ntk", "pi+resonance"]


def test_a_table_says_what_was_shown() -> None:
    def readings(method: str, shift: float, length: int = 200) -> list[Reading]:
        return [Reading(method, "perplexity", length, n, 2 + n / 10 + shift * (1 + n % 2 / 10), 1.0) for n in range(12)]

    def shares(method: str, right: int) -> list[Reading]:
        return [Reading(method, "niah_single", 200, n, float(n < right), 1.0) for n in range(12)]

    evaluation = Evaluation(
        {"model": "m", "trained_length": 100},
        (*readings("cut", 0), *readings("yarn", 0.3), *readings("self_extend", 0.001), *shares("chunked", 12),
         *shares("yarn", 2), *shares("cut", 11)),
    )  # fmt: skip
    verdicts = {(c.task, c.method): c.verdict for c in evaluation.contrasts()}
    assert verdicts == {
        ("perplexity", "yarn"): "worse", ("perplexity", "self_extend"): "equivalent",
        ("niah_single", "yarn"): "worse", ("niah_single", "cut"): "inconclusive",
    }  # fmt: skip
    short = Evaluation({"model": "m", "trained_length": 200}, (*readings("cut", 0), *readings("as_is", 0)))
    assert not short.contrasts()  # the same text in the same model
    assert "| yarn | 17 [2, 48] (n 12) |" in str(evaluation)


def test_a_stopped_command_goes_on(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = small()
    saved(tmp_path / "model", model)
    (tmp_path / "texts").mkdir()
    for document in documents(6, 1400):
        (tmp_path / "texts" / document.name).write_text(document.text)
    command = [
        "evaluate", str(tmp_path / "model"), "--tasks", "perplexity,niah_single", "--lengths", "600,1200", "--methods",
        "as_is,yarn", "--count", "6", "--scored", "8", "--answer-tokens", "16", "--trained-length", "600",
        "--documents", str(tmp_path / "texts"), "--out",
    ]  # fmt: skip
    assert posenc_cli.run([*command, str(tmp_path / "whole")]) == 0
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    program = [sys.executable, "-m", "posenc", *command, str(tmp_path / "cut")]
    stopped = subprocess.Popen(program, stderr=subprocess.DEVNULL, env=environment)
    log = tmp_path / "cut" / "readings.jsonl"
    while stopped.poll() is None and (not log.exists() or log.read_bytes().count(b"\n") < 7):
        time.sleep(0.01)
    os.kill(stopped.pid, signal.SIGKILL)
    stopped.wait()
    assert posenc_cli.run([*command, str(tmp_path / "cut")]) == 0

    def values(name: str) -> list[tuple[Any, ...]]:
        record = json.loads((tmp_path / name / "record.json").read_text())
        return [(r["method"], r["task"], r["length"], r["item"], round(r["value"], 5)) for r in record["readings"]]

    assert values("cut") == values("whole")


def test_one_search_serves_any_number_of_documents(tmp_path: Path) -> None:
    model = small()
    evaluate(model, out=tmp_path, **request(methods=["longrope"], search=FEW, count=1))
    searched = (tmp_path / "search.jsonl").read_text()
    assert searched.count(", search ") == FEW.population + FEW.generations * (FEW.mutations + FEW.crossovers)
    lines: list[str] = []
    evaluate(model, out=tmp_path, progress=lines.append, **request(methods=["longrope"], search=FEW, count=2))
    assert len(lines) == 3  # one announcement and the second document at two lengths: no search
    assert (tmp_path / "search.jsonl").read_text() == searched
    with pytest.raises(ValueError, match="3 of at least 128 tokens and 2 others"):  # two of the four were searched on
        evaluate(model, out=tmp_path, **request(methods=["longrope"], search=FEW, count=3))


@pytest.mark.parametrize("changed", ["weights", "search", "scored", "documents"])
def test_factors_of_another_search_are_not_taken(changed: str, tmp_path: Path) -> None:
    first, model = request(methods=["longrope"], search=FEW, count=1), small()
    second = dict(first)
    if changed == "weights":
        with torch.no_grad():
            model.model.layers[0].self_attn.q_proj.weight.mul_(3.0)
    elif changed == "search":
        second["search"] = Settings(population=12, mutations=4, crossovers=4, parents=6, generations=3)
    elif changed == "scored":
        second["scored"] = 24
    else:
        second["documents"] = [*documents()[:2], *documents(8)[6:]]  # those that are searched on
    evaluate(small(), out=tmp_path / "both", **first)
    both = evaluate(model, out=tmp_path / "both", **second)
    fresh = evaluate(model, out=tmp_path / "fresh", **second)
    assert [reading.value for reading in both.readings] == [reading.value for reading in fresh.readings]
