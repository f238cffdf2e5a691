"""Advice: every sentence rests on something that can be found, and facts of a checkpoint count."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import random
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from guide.decision import compiled, rules_script

import posenc_cli
from posenc.catalogue import CATALOGUE
from posenc.catalogue.studies import studies
from posenc.hf import read_rope
from posenc.hf.serving.table import SGLANG, engine_result
from posenc.recommend import Answer, Checkpoint, Needs, Sentence, recommend, rules
from posenc.recommend.needs import ALGORITHMIC, DECODERS, ENGINES, KINDS, MODELS, SERVERS, TASKS, read_checkpoint
from posenc.recommend.rule import SECTIONS, features, matches
from posenc.recommend.sources import SOURCES
from posenc_cli import parser_of
from posenc_cli.arguments import QUESTIONS
from tests.golden import configs

ROOT = Path(__file__).parents[1]
PUBLISHED = {line["model"]: line["config"] for line in configs("published_configs")}
LLAMA = {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2,
         "num_hidden_layers": 4, "max_position_embeddings": 8192, "rope_theta": 10000.0}  # fmt: skip
ROPE_CHECKPOINT = Checkpoint("here/my-model", "my-model", read_rope(LLAMA), declared=8192, cache=4096,
                             cached_tokens=(None,) * 32)  # fmt: skip


def all_needs(count: int | None = None) -> list[Needs]:
    """Every possible combination of words, with some lengths and memories; or a sample of them."""
    lengths = ((4096, 1024), (4096, 4096), (8192, 12288), (8192, 32768), (4096, 131072), (2048, 131072))
    grid = itertools.product(MODELS, KINDS, TASKS, ENGINES, (False, True), (None, 1.0, 64.0), lengths)
    needs = []
    for model, kind, task, engine, tune, memory, (train_length, length) in grid:
        if (tune and model == "new") or (task in ALGORITHMIC and kind not in (*DECODERS, "algorithmic")):
            continue
        needs.append(Needs(model, kind, task, train_length, length, engine, tune, memory))
    return needs if count is None else random.Random(0).sample(needs, count)


def texts(answer: Answer, section: str | None = None) -> str:
    return "\n".join(s.text for s in answer.sentences if section in (None, s.section))


def checkpoint_with(**changes: Any) -> Needs:
    """A checkpoint with RoPE of 8,192 tokens, to be used at 32,768, with changes of its facts."""
    if "config" in changes:
        changes["config"] = read_rope(changes["config"])
    checkpoint = dataclasses.replace(ROPE_CHECKPOINT, **changes)
    return Needs("checkpoint", train_length=checkpoint.declared or 8192, length=32768, checkpoint=checkpoint)


def test_every_need_has_one_default_and_a_way_to_check_it() -> None:
    for needs in all_needs(4000):
        answer = recommend(needs)
        sections = [sentence.section for sentence in answer.sentences]
        assert sections[0] == "default", needs
        assert sections.count("default") == 1
        assert sections == sorted(sections, key=list(SECTIONS).index), "sections stand in their order"
        assert "check" in sections, needs
        assert not re.search(r"[{}]", texts(answer)), texts(answer)


def test_every_rule_answers_somebody() -> None:
    cases = [features(needs) for needs in all_needs()]
    facts: tuple[dict[str, Any], ...] = (
        {"config": PUBLISHED["openai-community/gpt2"]}, {"config": PUBLISHED["Qwen/Qwen3-8B"]},
        {"windowed": "Some", "window": 512}, {"cache": None},
    )  # fmt: skip
    for changes in facts:
        needs = checkpoint_with(**changes)
        for tune, memory, length in itertools.product((False, True), (None, 1.0), (4096, 16384, 131072)):
            for engine in ("any", "vllm"):
                changed = dataclasses.replace(needs, tune=tune, memory=memory, length=length, engine=engine)
                cases.append(features(changed))
    cases.append(features(Needs("checkpoint", length=65536, tune=True, tune_tokens=10**8)))
    cases.append(features(dataclasses.replace(checkpoint_with(slowest=4000.0), length=8192)))
    unused = [rule.text for rule in rules() if not any(matches(rule.when, case) for case in cases)]
    assert not unused


def cited() -> list[Sentence]:
    return [Sentence(rule.section, rule.text, rule.basis, rule.sources) for rule in rules()]


def test_every_sentence_of_advice_rests_on_something_that_is_there() -> None:
    for sentence in cited():
        assert sentence.sources, sentence
        for key in sentence.sources:
            if key in SOURCES:
                continue
            page = ROOT / key
            method = re.fullmatch(r"docs/methods/(\w+)\.md", key)
            assert page.exists() or (method and method[1] in CATALOGUE), key
        papers = [key for key in sentence.sources if key in SOURCES]
        if sentence.basis == "practice":
            assert papers, f"practice needs a source outside this project: {sentence}"
        if sentence.basis == "measured here":
            assert any(key.startswith("docs/") for key in sentence.sources), sentence
    used = {key for sentence in cited() for key in sentence.sources}
    assert set(SOURCES) <= used, f"nobody cites {set(SOURCES) - used}"


def test_the_study_of_context_extension_says_what_advice_says_of_it() -> None:
    table = (ROOT / "docs/results/context-study/likelihood/table.md").read_text(encoding="utf-8")
    (row,) = [line.split(" | ") for line in table.splitlines() if line.startswith("| yarn | 12,288 |")]
    assert (row[3], row[5].rstrip(" |")) == ("100", "equivalent")
    needs = Needs("checkpoint", train_length=8192, length=12288)
    assert "100 documents" in texts(recommend(needs), "measured")
    for farther in (dataclasses.replace(needs, length=32768), dataclasses.replace(needs, tune=True)):
        assert not texts(recommend(farther), "measured"), "the study did not go there"


def test_small_text_models_order_nothing() -> None:
    """No advice names an encoding because of its rank among the recorded language models."""
    ranked = {study.name for study in studies() if study.task == "text"}
    for rule in rules():
        assert not ranked & {source.split("/")[2] for source in rule.sources if "docs/results/" in source}, rule.text
    for needs in (Needs(), Needs(length=131072), Needs(kind="encoder")):
        default = recommend(needs).default
        assert default.startswith("RoPE")
        assert not any(name in default for name in ("stick", "T5", "Transformer-XL", "FoX"))


@pytest.mark.parametrize("engine", SERVERS)
def test_an_engine_is_answered_from_its_table(engine: str) -> None:
    for model in MODELS:
        answer = recommend(Needs(model=model, length=16384, engine=engine))
        (sentence, *_) = [s for s in answer.sentences if s.section == "engine"]
        assert sentence.basis == "engine table"
        assert not {"dynamic_ntk", "self_extend"} & {key for s in answer.sentences for key in s.sources}
    sglang = texts(recommend(Needs("checkpoint", length=16384, engine="sglang")), "engine")
    assert engine_result(SGLANG, "dynamic", "v5").right is False
    assert "but not dynamic" in sglang
    streaming = recommend(Needs("checkpoint", task="streaming", length=16384, engine=engine))
    assert not streaming.default.startswith("StreamingLLM")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", MODELS)
def test_engine_task_memory_and_tuning_act_for_every_kind(kind: str, model: str) -> None:
    base = Needs(model, kind, train_length=4096, length=12288)
    changes: list[dict[str, Any]] = [{"engine": "vllm"}, {"task": "retrieval"}, {"task": "streaming"}, {"memory": 0.1}]
    changes += [{"tune": True}] if model == "checkpoint" else []
    for change in changes:
        assert texts(recommend(dataclasses.replace(base, **change))) != texts(recommend(base)), change


def test_the_cache_is_that_of_the_model() -> None:
    assert Needs(length=131072).cache_gib == 16.0, "Llama 3 8B: 128 KiB a token"
    needs = dataclasses.replace(checkpoint_with(), memory=3.9)
    assert needs.cache_gib == 4.0
    assert "4 GiB here, and you have 3.9" in texts(recommend(needs), "memory")
    windows = dataclasses.replace(checkpoint_with(cached_tokens=(None, 1024, 65536)), length=32768)
    assert windows.cache_gib == 4096 * (32768 + 1024 + 32768) / 2**30, "a longer window than the context keeps it"
    assert "could not be read" in texts(
        recommend(dataclasses.replace(checkpoint_with(cache=None), memory=1.0)), "memory"
    )


def test_memory_decides_the_window() -> None:
    """4,096 bytes a token in each of 32 layers: a GiB holds 8,192 tokens, a quarter of it 2,048."""
    needs = dataclasses.replace(checkpoint_with(), task="streaming", memory=0.25)
    assert needs.fitting == 2048
    assert features(needs)["kept"] == 2048
    assert "2,048" in recommend(needs).default
    assert features(dataclasses.replace(needs, memory=64.0))["kept"] == 8192, "no more than the training length"
    assert features(dataclasses.replace(needs, memory=None))["kept"] == 8192
    bounded = dataclasses.replace(checkpoint_with(cached_tokens=(None, 1024)), memory=4096 * 3024 / 2**30)
    assert bounded.fitting == 2000, "a layer with a window keeps no more than it"
    assert Needs(length=131072, memory=1.0).fitting == 8192, "Llama 3 8B: 128 KiB a token"


@pytest.mark.parametrize(
    ("config", "plan"),
    [
        (LLAMA, {"method": "yarn", "factor": 4.0, "original_length": 8192}),
        (PUBLISHED["openai-community/gpt2"], {"refused": "table"}),
        (PUBLISHED["mosaicml/mpt-7b-instruct"], {"refused": "bias"}),
        (PUBLISHED["google-t5/t5-small"], {"refused": "bias"}),
        ({**LLAMA, "model_type": "mistral", "sliding_window": 4096}, {"refused": "windows"}),
        ({**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}, {"method": "linear", "factor": 8.0}),
    ],
)  # fmt: skip
def test_the_facts_of_a_checkpoint_change_the_answer(config: dict[str, Any], plan: dict[str, Any]) -> None:
    answer = recommend(checkpoint_with(config=config))
    assert answer.plan is not None
    assert plan.items() <= answer.plan.items()
    command = "posenc extend here/my-model --length 32768 --config-only"
    assert (command in answer.default) == ("refused" not in plan)
    assert "in training" not in answer.question
    nothing = recommend(dataclasses.replace(checkpoint_with(config=config), length=8192))
    assert nothing.plan is not None
    assert (nothing.plan["method"], "Change nothing" in nothing.default) == (None, True)


CONFIG = {"num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 512, "num_hidden_layers": 4,
          "max_position_embeddings": 4096, "rope_theta": 10000.0}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "facts", "kind"),
    [
        ({**CONFIG, "model_type": "llama"},
         {"windowed": "No", "cache": 2 * 2 * 64 * 2, "cached_tokens": (None,) * 4}, "decoder"),
        ({**CONFIG, "model_type": "mistral", "sliding_window": 1024},
         {"windowed": "All", "window": 1024, "cached_tokens": (1024,) * 4}, "decoder"),
        ({**CONFIG, "model_type": "mistral", "sliding_window": 4096}, {"windowed": "No"}, "decoder"),
        ({**CONFIG, "model_type": "cohere2", "sliding_window": 1024, "sliding_window_pattern": 4},
         {"windowed": "Some", "window": 1024}, "decoder"),
        ({**CONFIG, "num_key_value_heads": None, "model_type": "falcon", "multi_query": True, "rotary": True},
         {"cache": 2 * 64 * 2}, "decoder"),
        ({"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 128},
         {"declared": 128, "cache": 2 * 4 * 16 * 2, "cached_tokens": (None,) * 2},
         "decoder"),
        ({"model_type": "bert", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
          "max_position_embeddings": 512}, {"declared": 512, "cache": None}, "encoder"),
        ({"model_type": "mpt", "d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 2048,
          "attn_config": {"alibi": True}}, {"declared": 2048}, "decoder"),
        ({"model_type": "whisper", "d_model": 64, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
          "encoder_layers": 2, "decoder_layers": 2, "max_target_positions": 448}, {}, "speech"),
        ({"model_type": "t5", "d_model": 64, "d_kv": 16, "num_heads": 4, "num_layers": 2},
         {"declared": None}, "encoder-decoder"),
        ({**CONFIG, "model_type": "llama", "rope_scaling": {"rope_type": "yarn", "factor": 8.0,
                                                            "original_max_position_embeddings": 1024}},
         {"declared": 4096}, "decoder"),
    ],
)  # fmt: skip
def test_a_configuration_is_read(config: dict[str, Any], facts: dict[str, Any], kind: str, tmp_path: Path) -> None:
    path = tmp_path / "my-model" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(config))
    checkpoint, found_kind = read_checkpoint(path)
    assert checkpoint.name == "my-model"
    assert {name: getattr(checkpoint, name) for name in facts} == facts
    assert found_kind == kind
    trained = [] if checkpoint.declared is not None else ["--train-length", "512"]
    assert posenc_cli.run(["recommend", str(path), "--length", "16384", *trained]) == 0


@pytest.mark.parametrize(
    ("needs", "name"),
    [
        ({"model": "old"}, "model"),
        ({"kind": "poem"}, "kind"),
        ({"task": "poems"}, "task"),
        ({"engine": "mine"}, "engine"),
        ({"length": 0}, "length"),
        ({"train_length": True}, "train_length"),
        ({"memory": 0}, "memory"),
        ({"memory": float("nan")}, "memory"),
        ({"tune": True}, "tune"),
        ({"checkpoint": ROPE_CHECKPOINT}, "model"),
        ({"kind": "vision", "task": "sorting"}, "task"),
    ],
)
def test_invalid_needs_are_refused(needs: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        Needs(**needs)


def test_the_page_has_the_rules_that_need_no_configuration() -> None:
    data = compiled()
    assert 60 < len(data["rules"]) < len(rules())
    assert "</" not in rules_script()
    assert not any("{name}" in rule["text"] for rule in data["rules"])


def test_the_command_tells_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert posenc_cli.run(["recommend", "--model", "checkpoint", "--length", "32768", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    answer = recommend(Needs(model="checkpoint", length=32768))
    assert [sentence["text"] for sentence in printed["sentences"]] == [s.text for s in answer.sentences]
    assert posenc_cli.run(["recommend", "--kind", "video"]) == 0
    out = capsys.readouterr().out
    assert "Sources" in out
    assert posenc_cli.run(["recommend", "--tune", "--length", "8192"]) == 0
    assert "fine-tun" in capsys.readouterr().out, "tune is for a checkpoint, so one is meant"
    assert posenc_cli.run(["recommend", "--length", "0"]) == 2
    assert "length" in capsys.readouterr().err
    assert posenc_cli.run(["recommend", "no-such-folder"]) == 2
    known = {"model": MODELS, "kind": tuple(KINDS), "task": tuple(TASKS), "engine": ENGINES}
    assert {name: answers for name, (_, answers) in QUESTIONS.items()} == known


def problems_of_commands(text: str) -> list[str]:
    """Options, methods and encodings of a sentence's commands that do not exist."""
    problems = []
    commands = re.findall(r"posenc (evaluate|extend|compare) (.*?)(?=,? then posenc|,? fine-tune| {3}|$)", text)
    for command, words_of in commands:
        named = re.findall(r"--[\w-]+", words_of)
        if command == "compare":
            problems += [o for o in named if o not in ("--task", "--seeds", "--data")]  # seen in its help
            specs = [spec for spec in words_of.partition("--")[0].split() if not spec.isupper()]
            problems += [name for spec in specs for name in spec.split("+") if name not in CATALOGUE]
            continue
        actions = {option: action for action in parser_of(command)._actions for option in action.option_strings}
        problems += [option for option in named if option not in actions]
        for option, value in re.findall(r"(--method|--methods) ([\w,]+)", words_of):
            problems += [name for name in value.split(",") if name not in (actions[option].help or "")
                         and name not in ("as_is", "cut", "chunked", "yarn", "streaming_llm")]  # fmt: skip
    return problems


def test_commands_that_advice_gives_exist() -> None:
    checks = {s.text for needs in all_needs(3000) for s in recommend(needs).sentences if "posenc " in s.text}
    assert len(checks) > 20
    assert not [problem for text in checks for problem in problems_of_commands(text)]
    wrong = "posenc extend X --lenght 4 --method yarrn, then posenc compare rope aliby --task text"
    assert problems_of_commands(wrong) == [
        "--lenght", "yarrn", "aliby",
    ]  # fmt: skip


def test_a_command_that_measures_gets_the_folder_of_a_config_file(tmp_path: Path) -> None:
    """posenc evaluate and the measured posenc extend take no config.json."""
    folder = tmp_path / "my model"
    folder.mkdir()
    path = folder / "config.json"
    path.write_text(json.dumps(PUBLISHED["Qwen/Qwen3-8B"]))
    for given in (path, folder):
        checkpoint, kind = read_checkpoint(given)
        needs = Needs("checkpoint", kind, train_length=40960, length=131072, checkpoint=checkpoint)
        check, _, _ = texts(recommend(needs), "check").partition(", then ")
        assert shlex.split(check)[2] == str(folder)


@pytest.mark.parametrize("name", ["", "Qwen/Qwen3-8B"])
def test_a_check_names_no_folder_that_has_no_weights(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lone config.json, and a name of the Hub, are nothing that posenc extend could measure."""
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps(PUBLISHED["Qwen/Qwen3-8B"]))
    checkpoint, _ = read_checkpoint(Path("config.json"), name)
    assert checkpoint.weights == "MODEL"
    Path("model.safetensors").touch()
    assert read_checkpoint(Path("config.json"))[0].weights == "."


def test_a_terminal_is_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answers = iter(["checkpoint", "", "", "vllm", "4,096", "16384"])
    monkeypatch.setattr("builtins.input", lambda question: next(answers))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert posenc_cli.run(["recommend"]) == 0
    assert "YaRN with factor 4" in capsys.readouterr().out
    assert next(answers, None) is None


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "t5", "num_heads": 6, "d_model": 64, "d_kv": 16, "num_layers": 2},
        {**CONFIG, "model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2.0}},
    ],
)
def test_a_length_that_no_config_declares_is_not_made_up(
    config: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {key: value for key, value in config.items() if key != "max_position_embeddings"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    command = ["recommend", str(tmp_path / "config.json"), "--length"]
    assert posenc_cli.run([*command, "2048"]) == 2
    assert "--train-length" in capsys.readouterr().err
    for length in ("256", "512", "1024"):
        assert posenc_cli.run([*command, length, "--train-length", "512"]) == 0
        answer = capsys.readouterr().out
        assert "None" not in answer
        assert "declares" not in answer


def _cited(**more: Any) -> set[str]:
    needs = Needs("checkpoint", train_length=8192, length=65536, tune=True, **more)
    return {source for sentence in recommend(needs).sentences if sentence.section == "practice"
            for source in sentence.sources}  # fmt: skip


def test_a_budget_of_fine_tuning_leaves_out_what_it_does_not_reach() -> None:
    """A raised base takes billions of tokens, LongRoPE2 and DroPE at least ten."""
    assert {"abf", "longrope2", "drope"} <= _cited()
    assert {"abf", "longrope2", "drope"} <= _cited(tune_tokens=10**10)
    assert {"abf", "longrope2", "drope"} & _cited(tune_tokens=2 * 10**9) == {"abf"}
    assert not {"abf", "longrope2", "drope"} & _cited(tune_tokens=10**8)
    assert "longlora" in _cited(tune_tokens=10**8), "adapters are answered with any budget"
    needs = Needs("checkpoint", length=65536, tune=True, tune_tokens=65536 * 1000)
    assert features(needs)["tune_texts"] == 1000
    for wrong in ({"tune_tokens": 1000, "tune": True}, {"tune_tokens": 10**8}):
        with pytest.raises(ValueError, match="tune_tokens"):
            Needs("checkpoint", length=65536, **wrong)


@pytest.mark.parametrize(("base", "small"), [(1e4, True), (5e5, False)])
def test_a_base_too_small_for_the_length_that_is_declared(base: float, small: bool, tmp_path: Path) -> None:
    """Of 64 channels under base 10,000 the slowest pair turns once in 47,000 tokens."""
    config = {"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 2,
              "max_position_embeddings": 131072, "rope_theta": base}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    checkpoint, kind = read_checkpoint(tmp_path)
    assert checkpoint.slowest == pytest.approx(2 * math.pi * base ** (62 / 64))
    needs = Needs("checkpoint", kind, train_length=131072, length=131072, checkpoint=checkpoint)
    said = next(rule for rule in rules() if rule.when.get("turns")).sentence(features(needs))
    assert (said in recommend(needs).sentences) == small
