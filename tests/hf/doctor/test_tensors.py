"""Tensors against the config, as transformers loads them: healthy folders are quiet, planted faults have names."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")

from posenc.hf.doctor import Report, examine, fix, loader  # noqa: E402
from posenc.hf.doctor.report import NOT_READ  # noqa: E402
from tests.hf.doctor.weight_folders import change_config, model_types, saved, saved_of_holes, write_holes  # noqa: E402

Tensors = dict[str, Tensor]
OF_HOLES = {"saved-frequencies-differ"}  # what zeros in the place of numbers are


@pytest.mark.parametrize("model_type", ["bart", "llava", "mamba", "gemma3n_text", "wav2vec2-bert", "vit_mae", "mpt"])
def test_saved_models_raise_no_alarm(model_type: str, tmp_path: Path) -> None:
    report = examine(saved_of_holes(model_type, tmp_path / "model"))
    assert report.names() <= OF_HOLES, str(report)
    assert any(line.endswith("as transformers loads them") for line in report.checked), report


@pytest.mark.slow
def test_every_model_type_of_transformers_raises_no_alarm(tmp_path: Path) -> None:
    built = 0
    for model_type in model_types():
        try:
            folder = saved_of_holes(model_type, tmp_path / model_type)
        except Exception:  # a package that is missing, a default config that its own class refuses
            continue
        built += 1
        report = examine(folder)
        assert report.names() <= OF_HOLES, str(report)
        assert not any("names and shapes" in line for line in report.not_checked), report.not_checked
        shutil.rmtree(folder)
    assert built > 540


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
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    safetensors.save_file(contiguous, folder / file, metadata={"format": "pt"})


def alarm(report: Report, name: str) -> Any:
    """The one finding of a name; fails where there are other alarms."""
    assert report.names() == {name}, str(report)
    return next(finding for finding in report.findings if finding.name == name)


DIFFER, MISSING, UNREAD = "tensors-differ", "tensors-missing", "tensors-unread"
# Family and sizes, where the keys stand, keys as planted; the alarm, the correction, whether it is certain.
IN_CONFIGS: list[tuple[str, dict[str, Any], str, dict[str, Any], str, dict[str, Any] | None, bool]] = [
    ("llama", {}, "", {"num_key_value_heads": 4}, DIFFER, None, False),
    ("llama", {}, "", {"num_hidden_layers": 9}, MISSING, {"num_hidden_layers": 8}, False),
    ("llama", {}, "", {"num_hidden_layers": 6}, UNREAD, {"num_hidden_layers": 8}, False),
    ("llama", {"attention_bias": True}, "", {"attention_bias": False}, UNREAD, {"attention_bias": True}, True),
    ("llama", {}, "", {"attention_bias": True}, MISSING, {"attention_bias": False}, True),
    ("qwen3", {}, "", {"model_type": "llama"}, UNREAD, None, False),
    ("glm4_moe", {"use_qk_norm": True}, "", {"use_qk_norm": False}, UNREAD, {"use_qk_norm": True}, True),
    ("gpt2", {}, "", {"n_positions": 80}, DIFFER, None, False),
    ("deberta-v2", {}, "", {"relative_attention": False}, UNREAD, None, False),
    ("clip", {}, "text_config", {"max_position_embeddings": 77}, DIFFER, None, False),
    ("lfm2", {}, "", {"layer_types": ["full_attention", "conv"] * 4}, MISSING, None, False),
]


@pytest.mark.parametrize("case", IN_CONFIGS, ids=[f"{case[0]}-{'-'.join(case[3])}" for case in IN_CONFIGS])
def test_configs_that_contradict_the_weights(case: Any, models: Callable[..., Path]) -> None:
    model_type, sizes, inside, keys, name, corrected, certain = case
    folder = models(model_type, **sizes)
    change_config(folder, *filter(None, [inside]), **keys)
    report = examine(folder)
    finding = next((finding for finding in report.findings if finding.name == name), None)
    assert finding is not None, str(report)
    assert report.names() <= {MISSING, UNREAD, DIFFER, "layer-kinds-exchanged"}
    assert (finding.level, finding.corrected, finding.certain) == ("fault", corrected, certain), finding
    if certain:
        fix(folder, in_place=True)
        assert examine(folder).names() <= {NOT_READ}  # a table by distance is no rotation


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


def _exchanged(first: str, second: str) -> Callable[[Tensors], Tensors]:
    def rename(name: str) -> str:
        return name.replace(first, "*").replace(second, first).replace("*", second)

    return lambda tensors: {rename(name): tensor for name, tensor in tensors.items()}


IN_WEIGHTS: list[tuple[str, Callable[[Tensors], Tensors], str, str, str]] = [  # … alarm, level, a part of the key
    ("gpt_oss", _without("layers.3.self_attn.sinks"), MISSING, "fault", "layers.3.self_attn.sinks"),
    ("llama", _without("layers.3."), MISSING, "fault", "layers.3"),
    ("qwen3", _without("q_norm"), MISSING, "fault", "q_norm"),
    ("qwen2", _without("_proj.bias"), MISSING, "fault", "bias"),
    ("gpt2", _without("wpe"), MISSING, "fault", "wpe"),
    ("t5", _without("relative_attention_bias"), MISSING, "fault", "relative_attention_bias"),
    ("llama", lambda tensors: {f"module.{name}": tensor for name, tensor in tensors.items()}, MISSING, "fault", ""),
    ("qwen3_moe", _without("layers.3.mlp.experts.2.gate_proj"), "experts-incomplete", "fault", ""),
    ("qwen3_moe", _without("layers.3.mlp.experts.2."), DIFFER, "fault", "experts"),
    ("qwen3_moe", _without("layers.3.mlp.experts."), MISSING, "fault", "experts"),
    ("gpt2", _filled("wpe", float("nan"), slice(39, 40)), "values-not-finite", "fault", "wpe"),
    ("qwen3", _cut("q_norm", slice(8)), DIFFER, "fault", "q_norm"),
    ("llama", _exchanged("q_proj", "k_proj"), DIFFER, "fault", "self_attn"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("model_type", "change", "name", "level", "key"), IN_WEIGHTS, ids=[f"{i[0]}-{i[2]}-{i[4]}" for i in IN_WEIGHTS]
)
def test_weights_that_contradict_the_config(
    model_type: str, change: Callable[[Tensors], Tensors], name: str, level: str, key: str, models: Callable[..., Path]
) -> None:
    folder = models(model_type)
    edit(folder, change)
    report = examine(folder)
    assert report.names() - {UNREAD} == {name}, str(report)
    finding = next(finding for finding in report.findings if finding.name == name)
    assert finding.level == level
    assert key in finding.key


def test_values_are_sampled_in_every_type(models: Callable[..., Path]) -> None:
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        folder = models("gpt2")
        edit(folder, lambda tensors, to=dtype: {name: tensor.to(to) for name, tensor in tensors.items()})
        assert examine(folder).healthy
        edit(folder, _filled("wpe", float("nan"), slice(39, 40)))
        assert alarm(examine(folder), "values-not-finite")


def test_frequencies_that_are_no_series_name_tensor_and_file(models: Callable[..., Path]) -> None:
    folder = models("llama")
    edit(folder, lambda tensors: {**tensors, "model.rotary_emb.inv_freq": torch.ones(8)})
    text = alarm(examine(folder), "saved-frequencies-differ").text
    assert "model.rotary_emb.inv_freq" in text
    assert "model.safetensors" in text


def test_code_of_the_folders_own_makes_it_a_suspicion_or_a_note(models: Callable[..., Path]) -> None:
    folder = models("llama")
    change_config(folder, auto_map={"AutoModelForCausalLM": "modeling.Mine"}, num_key_value_heads=4)
    finding = alarm(examine(folder), DIFFER)
    assert (finding.level, finding.corrected) == ("suspicion", None)
    change_config(folder, num_key_value_heads=2, num_hidden_layers=9)
    report = examine(folder)
    assert report.healthy
    assert MISSING in {finding.name for finding in report.findings}


@pytest.mark.parametrize("why", ["no-such-type", "no-transformers"])
def test_what_cannot_be_asked_is_not_checked(
    why: str, models: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = models("llama")
    if why == "no-such-type":
        change_config(folder, model_type="nobody_knows", num_key_value_heads=4)
    else:
        monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    report = examine(folder)
    assert report.healthy
    assert not any("as transformers loads them" in line for line in report.checked)
    assert any(line.startswith("names and shapes") for line in report.not_checked), report.not_checked


def test_the_loader_is_asked_without_a_word(models: Callable[..., Path], capfd: pytest.CaptureFixture[str]) -> None:
    folder = models("llama")
    capfd.readouterr()
    change_config(folder, num_hidden_layers=9)
    examine(folder)
    assert "".join(capfd.readouterr()) == ""


_EXPERTS = ("experts.gate_up_proj", "experts.down_proj")
PUBLISHED: dict[str, tuple[str, dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]], dict[str, str]]] = {
    "scales of FP8": (
        "deepseek_v3",
        {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}},
        lambda shapes: {**shapes, **{f"{n}_scale_inv": (1, 1) for n in shapes if n.endswith("_proj.weight")}},
        {},
    ),
    "a prediction layer": (
        "deepseek_v3",
        {"num_nextn_predict_layers": 1},
        lambda shapes: {
            **shapes,
            **{n.replace("layers.7.", "layers.8."): s for n, s in shapes.items() if "layers.7." in n},
            "model.layers.8.eh_proj.weight": (64, 128), "model.layers.8.enorm.weight": (64,),
        },
        {},
    ),
    "blocks of MXFP4": (
        "gpt_oss",
        {"quantization_config": {"quant_method": "mxfp4"}},
        lambda shapes: {
            **{n: s for n, s in shapes.items() if not n.endswith(_EXPERTS)},
            **{f"{n}_blocks": (4, 64, 2, 16) for n in shapes if n.endswith(_EXPERTS)},
            **{f"{n}_scales": (4, 64, 2) for n in shapes if n.endswith(_EXPERTS)},
        },
        {"_blocks": "U8", "_scales": "U8"},
    ),
    "packed by GPTQ": (
        "llama",
        {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}},
        lambda shapes: {
            **{n: s for n, s in shapes.items() if not n.endswith("_proj.weight")},
            **{f"{n[:-6]}qweight": (8, 64) for n in shapes if n.endswith("_proj.weight")},
            **{f"{n[:-6]}scales": (1, 64) for n in shapes if n.endswith("_proj.weight")},
            **{f"{n[:-6]}qzeros": (1, 8) for n in shapes if n.endswith("_proj.weight")},
        },
        {"qweight": "I32", "qzeros": "I32"},
    ),
    "masks, indices and frequencies of older versions": (
        "gpt2",
        {},
        lambda shapes: {**shapes, "transformer.h.0.attn.bias": (1, 1, 40, 40), "transformer.h.0.attn.masked_bias": ()},
        {},
    ),
    "heads of another task": (
        "bert",
        {},
        lambda shapes: {**shapes, "cls.seq_relationship.weight": (2, 32), "bert.pooler.dense.weight": (32, 32)},
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PUBLISHED)
def test_names_that_published_files_have_are_quiet(what: str, models: Callable[..., Path]) -> None:
    model_type, keys, change, dtypes = PUBLISHED[what]
    folder = models(model_type)
    change_config(folder, **keys)
    tensors = safetensors.load_file(folder / "model.safetensors")
    shapes = change({name: tuple(tensor.shape) for name, tensor in tensors.items()})
    of_name = {name: dtype for name in shapes for ending, dtype in dtypes.items() if name.endswith(ending)}
    write_holes(folder / "model.safetensors", shapes, of_name)
    report = examine(folder)
    assert report.names() <= OF_HOLES, str(report)


def test_weights_larger_than_the_memory(tmp_path: Path) -> None:
    """A shard is read by its header; only the sample of its values, which torch maps, is left out."""
    size = 2 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "hidden_size": 64}))
    try:
        write_holes(tmp_path / "model.safetensors", {"embeddings.position_embeddings.weight": (size // 128, 64)})
    except OSError:
        pytest.skip("no file system for holes of this size")
    assert "weights-unreadable" not in examine(tmp_path).names()


def test_a_layer_that_the_class_takes_for_a_prediction_head_is_told(tmp_path: Path) -> None:
    pattern = r"model\.layers\.61"
    folder = saved("deepseek_v3", tmp_path, num_hidden_layers=62, hidden_size=16, first_k_dense_replace=62,
                   mlp_layer_types=None, intermediate_size=16)  # fmt: skip
    assert examine(folder).healthy
    change_config(folder, num_hidden_layers=61)
    from transformers import DeepseekV3ForCausalLM

    assert any(pattern in left_out for left_out in DeepseekV3ForCausalLM._keys_to_ignore_on_load_unexpected)
    finding = alarm(examine(folder), UNREAD)
    assert finding.key.startswith("model.layers.61.")


def test_a_table_that_another_scheme_replaces_is_told(models: Callable[..., Path]) -> None:
    folder = models("esm", position_embedding_type="absolute")
    assert examine(folder).healthy
    change_config(folder, position_embedding_type="rotary")
    assert [f.key for f in examine(folder).findings if f.name == "table-dropped"] == [
        "esm.embeddings.position_embeddings.weight"
    ]


def test_a_table_without_which_a_model_has_no_positions_is_a_fault(models: Callable[..., Path]) -> None:
    folder = models("deberta-v2", relative_attention=False, position_biased_input=True)
    assert examine(folder).healthy
    change_config(folder, position_biased_input=False)
    finding = alarm(examine(folder), "table-dropped")
    assert (finding.level, finding.corrected) == ("fault", {"position_biased_input": True})
    fix(folder, in_place=True)
    assert examine(folder).healthy


def test_weights_as_files(models: Callable[..., Path]) -> None:
    folder = models("llama", max_shard_size="100KB")
    assert examine(folder).healthy
    _, *rest = sorted(folder.glob("model-*.safetensors"))
    rest[-1].write_bytes(rest[-1].read_bytes()[:-10])
    report = examine(folder)
    assert report.names() == {"weights-unreadable"}, "what a damaged file held is not told twice"
    assert any("which tensors are missing" in line for line in report.not_checked)
    rest[-1].unlink()
    assert "weights-unreadable" in examine(folder).names()


def test_pickled_weights_are_compared_and_never_run(models: Callable[..., Path], tmp_path: Path) -> None:
    folder = models("llama")
    tensors = safetensors.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save({name: torch.nn.Parameter(t) for name, t in tensors.items()}, folder / "pytorch_model.bin")
    assert examine(folder).healthy
    change_config(folder, num_key_value_heads=4)
    assert alarm(examine(folder), DIFFER).level == "fault"

    class Harm:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "harmed",)

    torch.save({"weight": Harm()}, folder / "pytorch_model.bin")
    assert any("pytorch_model.bin" in line for line in examine(folder).not_checked)
    assert not (tmp_path / "harmed").exists()


def test_an_adapter_names_its_base(tmp_path: Path) -> None:
    known = {"peft_type": "LORA", "base_model_name_or_path": "org/base"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(known))
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    safetensors.save_file({name: torch.ones(4, 8)}, tmp_path / "adapter_model.safetensors")
    report = examine(tmp_path)
    assert report.healthy
    assert [finding.name for finding in report.findings] == ["adapter"]


def test_the_class_of_a_config_is_the_one_that_loads_it() -> None:
    assert loader.model_class({"model_type": "llama", "architectures": ["Qwen2ForCausalLM"]}).__name__ == (
        "LlamaForCausalLM"
    )
    assert (
        loader.model_class({"model_type": "bert", "architectures": ["BertForMaskedLM"]}).__name__ == "BertForMaskedLM"
    )
    with pytest.raises(loader.CannotAskError):
        loader.model_class({"model_type": None})
