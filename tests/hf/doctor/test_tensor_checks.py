"""Tensors against the config: healthy models of many families raise no alarm, planted faults are found by name."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")
from transformers import AutoModelForCausalLM  # noqa: E402

from posenc.hf.doctor import Report, examine, fix  # noqa: E402
from tests.hf.doctor.saved_models import FAMILIES, change_config, saved  # noqa: E402

Tensors = dict[str, Tensor]


@pytest.mark.parametrize("model_type", FAMILIES)
def test_saved_models_raise_no_alarm(model_type: str, tmp_path: Path) -> None:
    report = examine(saved(model_type, tmp_path))
    assert report.healthy, str(report)
    assert any(line.startswith("names and shapes of ") for line in report.checked), report.checked


def test_there_are_enough_families() -> None:
    assert len(FAMILIES) >= 100


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Path]]:
    """A function that gives a fresh copy of a saved model, which is built once."""
    root = tmp_path_factory.mktemp("models")
    copies = iter(range(10**6))

    def copy(model_type: str, **more: Any) -> Path:
        source = root / f"{model_type}-{abs(hash(json.dumps(more, sort_keys=True)))}"
        if not source.exists():
            saved(model_type, source, **more)
        return Path(shutil.copytree(source, root / f"copy-{next(copies)}"))

    yield copy
    shutil.rmtree(root)


def edit(folder: Path, change: Callable[[Tensors], Tensors], file: str = "model.safetensors") -> None:
    """Write other tensors into a file of weights."""
    tensors = change(safetensors.load_file(folder / file))
    safetensors.save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()}, folder / file, metadata={"format": "pt"}
    )


def alarm(report: Report, name: str) -> Any:
    """The one finding of a name; fails where there are other alarms."""
    assert report.names() == {name}, str(report)
    return next(finding for finding in report.findings if finding.name == name)


# Family and sizes, where the keys stand, keys as planted; the alarm, what it tells, the correction, whether certain.
IN_CONFIGS: list[tuple[str, dict[str, Any], str, dict[str, Any], str, tuple[str, ...], dict[str, Any] | None, bool]] = [
    (
        "llama",
        {},
        "",
        {"num_key_value_heads": 4},
        "key-value-heads-differ",
        ("is 4", "32 rows = 2 heads of 16", "layers 0-7"),
        {"num_key_value_heads": 2},
        True,
    ),
    (
        "llama",
        {},
        "",
        {"num_key_value_heads": 1},
        "key-value-heads-differ",
        ("is 1", "32 rows"),
        {"num_key_value_heads": 2},
        True,
    ),
    ("llama", {}, "", {"head_dim": 8}, "head-dim-differs", ("is 8", "4 heads of 16"), {"head_dim": 16}, True),
    (
        "mistral",
        {"head_dim": 32},
        "",
        {"head_dim": None},
        "head-dim-differs",
        ("not given", "4 heads of 32"),
        {"head_dim": 32},
        True,
    ),
    (
        "llama",
        {},
        "",
        {"num_attention_heads": 8},
        "heads-differ",
        ("is 8", "64 rows = 4 heads of 16"),
        {"num_attention_heads": 4},
        True,
    ),
    (
        "llama",
        {},
        "",
        {"hidden_size": 128},
        "hidden-size-differs",
        ("is 128", "64 channels"),
        {"hidden_size": 64},
        True,
    ),
    (
        "qwen3",
        {},
        "",
        {"head_dim": 32, "num_attention_heads": 2},
        "head-dim-differs",
        ("16 numbers", "4 heads of 16"),
        {"head_dim": 16, "num_attention_heads": 4},
        True,
    ),
    (
        "llama",
        {},
        "",
        {"num_hidden_layers": 9},
        "layers-missing",
        ("is 9", "8 layers", "layer 8"),
        {"num_hidden_layers": 8},
        False,
    ),
    (
        "llama",
        {},
        "",
        {"num_hidden_layers": 6},
        "layers-unread",
        ("is 6", "layers 6-7"),
        {"num_hidden_layers": 8},
        False,
    ),
    (
        "llama",
        {"attention_bias": True},
        "",
        {"attention_bias": False},
        "biases-unread",
        ("false",),
        {"attention_bias": True},
        True,
    ),
    ("llama", {}, "", {"attention_bias": True}, "biases-missing", ("true",), {"attention_bias": False}, True),
    (
        "qwen2",
        {},
        "",
        {"model_type": "llama", "attention_bias": None},
        "biases-unread",
        ("not given",),
        {"attention_bias": True},
        True,
    ),
    ("qwen3", {}, "", {"model_type": "llama"}, "norms-unread", ("k_norm", "layers 0-7"), None, False),
    (
        "phi3",
        {},
        "",
        {"num_key_value_heads": 4},
        "key-value-heads-differ",
        ("128 = 4 query heads and 2",),
        {"num_key_value_heads": 2},
        True,
    ),
    (
        "falcon",
        {},
        "",
        {"multi_query": False},
        "key-value-heads-differ",
        ("is false", "48"),
        {"multi_query": True},
        True,
    ),
    (
        "gpt_bigcode",
        {},
        "",
        {"multi_query": False},
        "key-value-heads-differ",
        ("is false", "48"),
        {"multi_query": True},
        True,
    ),
    ("deepseek_v3", {}, "", {"kv_lora_rank": 32}, "latent-width-differs", ("32",), {"kv_lora_rank": 16}, True),
    ("deepseek_v2", {}, "", {"v_head_dim": 16}, "latent-width-differs", ("v_head_dim 16",), None, False),
    ("gpt2", {}, "", {"n_positions": 80}, "position-table-differs", ("is 80", "has 40"), {"n_positions": 40}, True),
    (
        "roberta",
        {},
        "",
        {"max_position_embeddings": 38},
        "position-table-differs",
        ("is 38", "has 40"),
        {"max_position_embeddings": 40},
        True,
    ),
    ("opt", {}, "", {"max_position_embeddings": 42}, "position-table-differs", ("rows in front",), None, False),
    (
        "bart",
        {},
        "",
        {"max_position_embeddings": 64},
        "position-table-differs",
        ("adds 2", "has 42"),
        {"max_position_embeddings": 40},
        True,
    ),
    (
        "whisper",
        {},
        "",
        {"max_target_positions": 60},
        "position-table-differs",
        ("is 60", "has 30"),
        {"max_target_positions": 30},
        True,
    ),
    (
        "led",
        {},
        "",
        {"max_encoder_position_embeddings": 32},
        "position-table-differs",
        ("has 64",),
        {"max_encoder_position_embeddings": 64},
        True,
    ),
    (
        "t5",
        {},
        "",
        {"relative_attention_num_buckets": 32},
        "buckets-differ",
        ("is 32", "16 rows"),
        {"relative_attention_num_buckets": 16},
        True,
    ),
    (
        "mpnet",
        {},
        "",
        {"relative_attention_num_buckets": 16},
        "buckets-differ",
        ("is 16", "32 rows"),
        {"relative_attention_num_buckets": 32},
        True,
    ),
    ("deberta-v2", {}, "", {"position_buckets": 16}, "relative-table-differs", ("makes 32", "has 16"), None, False),
    (
        "wav2vec2-bert",
        {},
        "",
        {"left_max_position_embeddings": 64},
        "relative-table-differs",
        ("68", "10"),
        None,
        False,
    ),
    ("swin", {}, "", {"window_size": 3}, "relative-table-differs", ("25", "49"), None, False),
    (
        "vit",
        {},
        "",
        {"image_size": 64},
        "position-table-differs",
        ("17 = 4 × 4 patches and 1",),
        {"image_size": 32},
        True,
    ),
    ("vit", {}, "", {"patch_size": 4, "image_size": 16}, "patch-size-differs", ("8 × 8",), None, False),
    ("clip", {}, "vision_config", {"image_size": 64}, "position-table-differs", ("17",), {"image_size": 32}, True),
    (
        "clip",
        {},
        "text_config",
        {"max_position_embeddings": 77},
        "position-table-differs",
        ("has 20",),
        {"max_position_embeddings": 20},
        True,
    ),
    (
        "llava",
        {},
        "text_config",
        {"num_key_value_heads": 4},
        "key-value-heads-differ",
        ("2 heads of 16",),
        {"num_key_value_heads": 2},
        True,
    ),
    (
        "gpt_oss",
        {},
        "",
        {"num_attention_heads": 8, "head_dim": 8, "num_key_value_heads": 4},
        "sinks-differ",
        ("4 numbers", "is 8"),
        None,
        False,
    ),
]


@pytest.mark.parametrize("case", IN_CONFIGS, ids=[f"{case[0]}-{'-'.join(case[3])}" for case in IN_CONFIGS])
def test_configs_that_contradict_the_weights(case: Any, models: Callable[..., Path]) -> None:
    model_type, sizes, inside, keys, name, numbers, corrected, certain = case
    folder = models(model_type, **sizes)
    assert examine(folder).healthy
    change_config(folder, *filter(None, [inside]), **keys)
    finding = alarm(examine(folder), name)
    assert finding.level == "fault"
    assert all(number in f"{finding.key} {finding.text}" for number in numbers), finding
    assert finding.corrected == corrected, finding
    assert (finding.certain, finding.inside) == (certain, inside), finding
    if certain:
        fix(folder, in_place=True)
        assert examine(folder).healthy


def _without(*parts: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: t for name, t in tensors.items() if not any(part in name for part in parts)}


def _filled(part: str, value: float, rows: slice = slice(None)) -> Callable[[Tensors], Tensors]:
    def change(tensors: Tensors) -> Tensors:
        for name, tensor in tensors.items():
            if part in name:
                tensor[rows] = value
        return tensors

    return change


def _cut(part: str, rows: slice) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: tensor[rows] if part in name else tensor for name, tensor in tensors.items()}


IN_WEIGHTS: list[tuple[str, Callable[[Tensors], Tensors], str, str]] = [
    ("gpt_oss", _without("sinks"), "sinks-missing", "fault"),
    ("llama", _without("layers.3."), "layers-missing", "fault"),
    ("llama", _without("layers.3.self_attn.k_proj"), "projection-missing", "fault"),
    ("qwen3", _without("q_norm", "k_norm"), "norms-missing", "fault"),
    ("qwen2", _without("_proj.bias"), "biases-missing", "fault"),
    ("gpt2", _without("wpe"), "position-table-missing", "fault"),
    ("gpt2", _filled("wpe", float("nan"), slice(39, 40)), "values-not-finite", "fault"),
    ("bert", _filled("position_embeddings", float("inf"), slice(0, 1)), "values-not-finite", "fault"),
    ("gpt2", _filled("wpe", 0.0), "values-zero", "suspicion"),
    ("opt", _filled("embed_positions", 0.0, slice(12, None)), "values-zero", "suspicion"),
    ("gpt_oss", _filled("sinks", 0.0), "values-zero", "suspicion"),
    ("qwen3", _filled("q_norm", 0.0), "values-zero", "suspicion"),
    ("vit", _filled("position_embeddings", 0.0), "values-zero", "suspicion"),
    ("opt", _cut("embed_positions", slice(2, None)), "position-table-differs", "fault"),
    ("qwen3", _cut("q_norm", slice(8)), "norm-width-differs", "fault"),
    ("llama", _cut("layers.5.self_attn.o_proj", slice(32)), "projection-differs", "fault"),
    ("qwen2", _cut("layers.2.self_attn.q_proj.bias", slice(32)), "projection-differs", "fault"),
    ("deepseek_v3", _cut("q_a_proj", slice(8)), "latent-width-differs", "fault"),
    ("clip", _cut("vision_model.embeddings.position_embedding", slice(1, None)), "position-table-differs", "fault"),
    ("bart", _cut("decoder.layers.1.encoder_attn.k_proj.", slice(16)), "projection-differs", "fault"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("model_type", "change", "name", "level"), IN_WEIGHTS, ids=[f"{i[0]}-{i[2]}" for i in IN_WEIGHTS]
)
def test_weights_that_contradict_the_config(
    model_type: str, change: Callable[[Tensors], Tensors], name: str, level: str, models: Callable[..., Path]
) -> None:
    folder = models(model_type)
    edit(folder, change)
    assert alarm(examine(folder), name).level == level


def test_values_are_sampled_in_every_type(models: Callable[..., Path]) -> None:
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        folder = models("gpt2")
        edit(folder, lambda tensors, to=dtype: {name: tensor.to(to) for name, tensor in tensors.items()})
        assert examine(folder).healthy
        edit(folder, _filled("wpe", float("nan"), slice(39, 40)))
        assert "sampled" in alarm(examine(folder), "values-not-finite").text


def test_code_of_the_folders_own_makes_it_a_suspicion(models: Callable[..., Path]) -> None:
    folder = models("llama")
    change_config(folder, auto_map={"AutoModelForCausalLM": "modeling.Mine"}, num_key_value_heads=4)
    finding = alarm(examine(folder), "key-value-heads-differ")
    assert (finding.level, finding.corrected) == ("suspicion", None)
    change_config(folder, num_key_value_heads=2, num_hidden_layers=9)
    assert examine(folder).healthy, "names alone are a note then"


def test_what_no_rule_covers_is_told(models: Callable[..., Path]) -> None:
    folder = models("llama")
    change_config(folder, model_type="nobody_knows", num_key_value_heads=4)
    report = examine(folder)
    assert report.healthy
    assert any("no rules for model type 'nobody_knows'" in line for line in report.not_checked), report.not_checked


def test_quantised_projections_are_left_alone(models: Callable[..., Path]) -> None:
    folder = models("llama")

    def packed(tensors: Tensors) -> Tensors:
        for name in [name for name in tensors if name.endswith("_proj.weight")]:
            weight = tensors.pop(name)
            tensors[name.replace(".weight", ".qweight")] = torch.zeros(
                weight.shape[1] // 8, weight.shape[0], dtype=torch.int32
            )
            tensors[name.replace(".weight", ".bias")] = torch.zeros(weight.shape[0])
        return tensors

    edit(folder, packed)
    change_config(folder, quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 128})
    report = examine(folder)
    assert report.healthy, str(report)
    assert any("56 quantised tensors" in line for line in report.not_checked), report.not_checked
    folder = models("llama")
    edit(folder, lambda tensors: {
        name: torch.zeros(tensor.numel() // 2, 1, dtype=torch.uint8) if name.endswith("_proj.weight") else tensor
        for name, tensor in tensors.items()
    })  # fmt: skip
    assert examine(folder).healthy


@pytest.mark.parametrize("prefix", ["", "base_model.model.", "module."])
def test_prefixes_of_names_do_not_matter(prefix: str, models: Callable[..., Path]) -> None:
    for model_type, base_prefix in (("llama", "model."), ("bert", "bert."), ("gpt2", "transformer."), ("vit", "")):
        folder = models(model_type)
        edit(
            folder,
            lambda tensors, base=base_prefix: {prefix + name.removeprefix(base): t for name, t in tensors.items()},
        )
        assert examine(folder).healthy
        key = {"llama": "num_key_value_heads", "gpt2": "n_positions", "vit": "image_size"}.get(
            model_type, "max_position_embeddings"
        )
        change_config(folder, **{key: 4 if model_type == "llama" else 160})
        assert not examine(folder).healthy, (model_type, prefix)


def sharded(models: Callable[..., Path]) -> Path:
    folder = models("llama", max_shard_size="100KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    assert examine(folder).healthy
    return folder


def test_shards_and_what_is_left_over(models: Callable[..., Path]) -> None:
    folder = sharded(models)
    first, *rest = sorted(folder.glob("model-*.safetensors"))
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    shutil.copy(first, folder / "model.safetensors")
    assert "weights-left-over" in examine(folder).names()
    (folder / "model.safetensors").unlink()
    shutil.copy(first, folder / "model-00001-of-00099.safetensors")
    assert "left over" in alarm(examine(folder), "weights-left-over").text
    (folder / "model-00001-of-00099.safetensors").unlink()
    assert examine(folder).healthy
    name = next(name for name, file in index["weight_map"].items() if file == first.name)
    tensors = safetensors.load_file(rest[0])
    safetensors.save_file({**tensors, name: torch.ones(1)}, rest[0], metadata={"format": "pt"})
    assert "tensor-twice" in examine(folder).names()
    safetensors.save_file({**tensors, "further": torch.ones(1)}, rest[0], metadata={"format": "pt"})
    assert alarm(examine(folder), "tensors-unlisted")
    safetensors.save_file(tensors, rest[0], metadata={"format": "pt"})
    rest[-1].write_bytes(rest[-1].read_bytes()[:-10])
    assert "weights-unreadable" in examine(folder).names()


def test_shards_without_an_index(models: Callable[..., Path]) -> None:
    folder = sharded(models)
    (folder / "model.safetensors.index.json").unlink()
    assert alarm(examine(folder), "index-missing").level == "fault"
    with pytest.raises(OSError, match="no file named"):
        AutoModelForCausalLM.from_pretrained(folder)
    sorted(folder.glob("model-*.safetensors"))[1].unlink()
    report = examine(folder)
    assert report.names() == {"shards-missing"}, "what a missing file held is not told twice"
    assert any("which tensors are missing" in line for line in report.not_checked)


def test_pickled_weights_are_compared_and_never_run(models: Callable[..., Path], tmp_path: Path) -> None:
    folder = models("llama")
    tensors = safetensors.load_file(folder / "model.safetensors")
    torch.save(tensors, folder / "pytorch_model.bin")
    assert examine(folder).healthy, "a copy in the older format"
    torch.save({**tensors, "model.norm.weight": torch.ones(128)}, folder / "pytorch_model.bin")
    assert "model.norm.weight" in alarm(examine(folder), "weights-left-over").text
    (folder / "model.safetensors").unlink()
    torch.save({name: torch.nn.Parameter(t) for name, t in tensors.items()}, folder / "pytorch_model.bin")
    assert examine(folder).healthy
    change_config(folder, num_key_value_heads=4)
    assert alarm(examine(folder), "key-value-heads-differ").corrected == {"num_key_value_heads": 2}

    class Harm:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "harmed",)

    torch.save({"weight": Harm()}, folder / "pytorch_model.bin")
    report = examine(folder)
    assert not (tmp_path / "harmed").exists()
    assert any("pytorch_model.bin" in line for line in report.not_checked), report.not_checked
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Harm()))
    assert any("pytorch_model.bin" in line for line in examine(folder).not_checked)
    assert not (tmp_path / "harmed").exists()


def test_an_adapter_names_its_base(tmp_path: Path) -> None:
    known = {"peft_type": "LORA", "base_model_name_or_path": "org/base"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(known))
    safetensors.save_file({"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": torch.ones(4, 8)},
                          tmp_path / "adapter_model.safetensors")  # fmt: skip
    report = examine(tmp_path)
    assert report.healthy
    assert [finding.name for finding in report.findings] == ["adapter"]
    assert "LORA" in str(report)
    assert "org/base" in str(report)
