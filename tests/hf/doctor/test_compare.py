"""`compare` finds what a step changed in a model's positions, and nothing where only the spelling changed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import posenc_cli
from posenc.hf import preset, read_rope
from posenc.hf.config.rotation import text_rope
from posenc.hf.doctor import compare
from tests.golden import configs
from tests.hf.doctor.planted import (
    DEEPSEEK,
    FACTORS,
    GEMMA,
    GEMMA_3,
    GPT_OSS,
    LLAMA_3,
    LLAMA_4,
    LLAMA_31,
    PHI,
    QWEN,
    VISION,
    YARN,
    Config,
    llama,
    without,
)  # fmt: skip

LAYERS: Config = {**QWEN, "num_hidden_layers": 4, "num_attention_heads": 32, "rope_scaling": YARN}
LLAMA: Config = {**LLAMA_31, "rope_theta": 5e5, "rope_scaling": LLAMA_3, "num_hidden_layers": 32}
GEMMA_2: Config = {
    "model_type": "gemma2", "head_dim": 256, "num_hidden_layers": 4, "sliding_window": 4096, "rope_theta": 1e4,
    "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0, "max_position_embeddings": 8192,
}  # fmt: skip
T5: Config = {"model_type": "t5", "d_model": 64, "num_heads": 4, "num_layers": 2}
SLIDING, FULL = "sliding_attention", "full_attention"
DRIFT: list[tuple[set[str], str, Config, Config]] = [  # aspects that differ, what was changed, before, after
    ({"rotation"}, "a YaRN block dropped", LAYERS, without(LAYERS, "rope_scaling")),
    ({"rotation"}, "llama3 dropped", LLAMA, without(LLAMA, "rope_scaling")),
    ({"rotation"}, "linear over llama3", LLAMA, {**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    ({"rotation"}, "linear scaling lost in a conversion (NVIDIA-NeMo/Megatron-Bridge#5097)",
     llama({"rope_type": "linear", "factor": 8.0}), without(llama({}), "rope_scaling")),
    ({"rotation"}, "another factor", LAYERS, {**LAYERS, "rope_scaling": {**YARN, "factor": 2.0}}),
    ({"rotation"}, "beta_fast", LAYERS, {**LAYERS, "rope_scaling": {**YARN, "beta_fast": 16}}),
    ({"rotation"}, "the gain alone", LAYERS, {**LAYERS, "rope_scaling": {**YARN, "attention_factor": 1.0}}),
    ({"rotation"}, "the base", LLAMA, {**LLAMA, "rope_theta": 1e4}),
    ({"rotation"}, "the share of a head", {**LAYERS, "rope_scaling": None},
     {**LAYERS, "rope_scaling": None, "head_dim": 64}),
    ({"rotation"}, "long factors, which act beyond the original length",
     {**PHI, "rope_scaling": FACTORS}, {**PHI, "rope_scaling": {**FACTORS, "long_factor": [3.0] * 48}}),
    ({"rotation"}, "the base of sliding layers", GEMMA, {**GEMMA, "rope_local_base_freq": 1e5}),
    ({"rotation", "softmax scale"}, "mscale_all_dim", DEEPSEEK,
     {**DEEPSEEK, "rope_scaling": {**DEEPSEEK["rope_scaling"], "mscale_all_dim": 0.5}}),
    ({"layout"}, "interleaved pairs", {**DEEPSEEK, "rope_interleave": True}, {**DEEPSEEK, "rope_interleave": False}),
    ({"axes of M-RoPE"}, "the sections", VISION,
     {**VISION, "text_config": {**VISION["text_config"],
                                "rope_scaling": {"type": "mrope", "mrope_section": [24, 20, 20]}}}),
    ({"window"}, "the window", GEMMA, {**GEMMA, "sliding_window": 512}),
    ({"window", "rotation"}, "the kinds of layers", GEMMA, {**GEMMA, "layer_types": [FULL] + [SLIDING] * 5}),
    ({"rotation", "temperature"}, "layers without rotation", {**LLAMA_4, "no_rope_layers": [1, 1, 1, 0] * 2},
     {**LLAMA_4, "no_rope_layers": [1] * 8}),
    ({"temperature"}, "the temperature", LLAMA_4, {**LLAMA_4, "attn_temperature_tuning": False}),
    ({"softmax scale"}, "the softmax scale", GEMMA_2, {**GEMMA_2, "query_pre_attn_scalar": 224}),
    ({"softcap"}, "the softcap", GEMMA_2, {**GEMMA_2, "attn_logit_softcapping": None}),
    ({"direction", "window"}, "a decoder made bidirectional", GEMMA, {**GEMMA, "use_bidirectional_attention": True}),
    ({"sink"}, "another family's code", GPT_OSS, {**GPT_OSS, "model_type": "mistral", "sliding_window": 128}),
    ({"declared length"}, "the declared length", LLAMA, {**LLAMA, "max_position_embeddings": 8192 * 20}),
    ({"position encoding", "declared length"}, "rows of a table",
     {"model_type": "bert", "max_position_embeddings": 512}, {"model_type": "bert", "max_position_embeddings": 1024}),
    ({"position encoding"}, "buckets of T5", T5, {**T5, "relative_attention_max_distance": 256}),
    ({"vision_config.patch_size"}, "patches of a vision tower", {**VISION, "vision_config": {"patch_size": 14}},
     {**VISION, "vision_config": {"patch_size": 16}}),
    ({"layers"}, "layers removed", LAYERS, {**LAYERS, "num_hidden_layers": 3}),
    ({"attached encodings"}, "encodings attached by posenc", llama({}),
     llama({}, posenc={"encodings": [{"name": "alibi"}]})),
]  # fmt: skip
SAME: list[tuple[str, Config, Config]] = [  # what was changed in the spelling alone
    ("version 4 and version 5", LAYERS, read_rope(LAYERS).to_config(version=5)),
    ("a local base outside and inside", GEMMA, read_rope(GEMMA).to_config(version=5)),
    ("type and rope_type", LAYERS, {**LAYERS, "rope_scaling": {**without(YARN, "rope_type"), "type": "yarn"}}),
    ("both spellings", LAYERS, {**LAYERS, "rope_parameters": {**YARN, "rope_theta": 1e6}}),
]


def codes(a: Any, b: Any) -> tuple[int, set[str]]:
    comparison = compare(a, b)
    return comparison.exit_code(), {difference.aspect for difference in comparison.differences}


@pytest.mark.parametrize(("aspects", "what", "before", "after"), DRIFT, ids=[what for _, what, _, _ in DRIFT])
def test_a_changed_number_is_drift(aspects: set[str], what: str, before: Config, after: Config) -> None:
    for a, b in ((before, after), (after, before)):
        comparison = compare(a, b)
        assert comparison.drifted
        assert comparison.exit_code() == 1
        drift = {difference.aspect for difference in comparison.differences if difference.kind == "drift"}
        assert aspects <= drift <= aspects | {"window", "softmax scale"}, str(comparison)
        assert "drift in positions" in str(comparison)


@pytest.mark.parametrize(("what", "before", "after"), SAME, ids=[line[0] for line in SAME])
def test_another_spelling_is_no_drift(what: str, before: Config, after: Config) -> None:
    comparison = compare(before, after)
    assert comparison.differences == (), str(comparison)
    assert comparison.exit_code() == 0


def test_the_layers_and_the_missing_side_are_named() -> None:
    text = str(compare(LAYERS, without(LAYERS, "rope_scaling")))
    assert "rotation (layers 0-3)" in text
    assert "the scaling is missing in B" in text
    (local,) = compare(GEMMA, {**GEMMA, "rope_local_base_freq": 1e5}).differences
    assert local.layers == (0, 1, 2, 3, 4), "the global layer keeps its base"


@pytest.mark.parametrize("line", configs("published_configs"), ids=lambda line: str(line["model"]))
def test_a_published_file_does_not_drift_from_itself(line: dict[str, Any]) -> None:
    try:
        comparison = compare(line["config"], dict(line["config"]))
    except ValueError:
        pytest.skip("not read")
    assert comparison.differences == (), str(comparison)


def test_gguf_metadata_against_a_config() -> None:
    keys = {"context_length": 131072, "embedding_length": 4096, "attention.head_count": 32, "vocab_size": 128256}
    gguf: Config = {"general.architecture": "llama", "llama.block_count": 32, "llama.rope.freq_base": 5e5}
    gguf |= {f"llama.{key}": value for key, value in keys.items()} | {"llama.rope.dimension_count": 128}
    config = {**LLAMA, "num_key_value_heads": 8}
    theta = text_rope(read_rope(config).rope).spectrum().theta
    unscaled = text_rope(read_rope({**config, "rope_scaling": None}).rope).spectrum().theta
    factors = (unscaled / theta).float().tolist()
    assert codes(config, {**gguf, "rope_freqs.weight": factors}) == (0, set())
    assert codes(config, {**gguf, "tensors.without_factors": True})[1] == {"rotation"}


def test_what_a_gguf_file_cannot_say_is_named() -> None:
    """gpt-oss has truncate false; llama.cpp computes its YaRN with rounded bounds."""
    keys = {"block_count": 36, "embedding_length": 2880, "attention.head_count": 64, "attention.head_count_kv": 8,
            "attention.key_length": 64, "attention.sliding_window": 128, "context_length": 131072,
            "rope.freq_base": 150000.0, "rope.scaling.type": "yarn", "rope.scaling.factor": 32.0,
            "rope.scaling.original_context_length": 4096}  # fmt: skip
    gguf = {"general.architecture": "gpt-oss", "tensors.without_factors": True}
    (difference,) = compare(GPT_OSS, gguf | {f"gpt-oss.{key}": value for key, value in keys.items()}).differences
    assert difference.aspect == "rotation"
    assert "GGUF has no key for truncate" in difference.text


def folder(path: Path, **files: Any) -> Path:
    path.mkdir()
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return path


def test_limits_of_other_files_are_no_drift(tmp_path: Path) -> None:
    a = folder(tmp_path / "a", config=LAYERS, tokenizer_config={"model_max_length": 131072})
    b = folder(tmp_path / "b", config=LAYERS, tokenizer_config={"model_max_length": 8192}, generation_config={})
    comparison = compare(a, b)
    assert [(item.kind, item.aspect) for item in comparison.differences] == [
        ("limit", "tokenizer_config.json model_max_length")
    ]
    assert (comparison.exit_code(), comparison.exit_code(strict=True)) == (3, 1)
    assert "tokenizer_config.json" in comparison.compared
    assert "generation_config.json (in one of the two)" in comparison.not_compared


def test_an_adapter_stands_for_its_base(tmp_path: Path) -> None:
    base = folder(tmp_path / "base", config=LAYERS)
    lora = {"peft_type": "LORA", "r": 8, "target_modules": ["q_proj", "v_proj"]}
    adapter = folder(tmp_path / "adapter", adapter_config={**lora, "base_model_name_or_path": str(base)})
    comparison = compare(adapter, base)
    assert comparison.differences == ()
    assert comparison.exit_code() == 0
    lost = folder(tmp_path / "lost", adapter_config={**lora, "base_model_name_or_path": "org/model"})
    with pytest.raises(ValueError, match="'org/model' is no local folder"):
        compare(lost, base)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {"a": LAYERS, "b": without(LAYERS, "rope_scaling"), "c": read_rope(LAYERS).to_config(version=5)}
    a, b, c = (str(folder(tmp_path / name, config=config)) for name, config in names.items())
    assert posenc_cli.run(["doctor", "--compare", a, b]) == 1
    assert "drift     rotation (layers 0-3): base 1e+06, YaRN(" in capsys.readouterr().out
    assert posenc_cli.run(["doctor", "--compare", a, c, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["drifted"] is False
    for wrong in (["--compare", a, str(tmp_path / "nowhere")], [a, "--compare", a, b], [], [f"--compare={a}", b]):
        assert posenc_cli.run(["doctor", *wrong]) == 2
    for more in (["--in-place"], ["--fix", str(tmp_path / "out")], ["--weights"], ["--accept", "base-lost"]):
        assert posenc_cli.run(["doctor", "--compare", a, b, *more]) == 2
    (tmp_path / "b" / "config.json").write_text("{")
    assert posenc_cli.run(["doctor", "--compare", a, b]) == 2
    assert str(tmp_path / "b") in capsys.readouterr().err


def test_configurations_are_examined_and_compared_without_torch(tmp_path: Path) -> None:
    a = folder(tmp_path / "a", config=LAYERS, tokenizer_config={"model_max_length": 131072}, generation_config={})
    b = folder(tmp_path / "b", config={**LAYERS, "rope_theta": 1e5})
    code = "import sys\nfor name in ('torch', 'transformers', 'numpy'): sys.modules[name] = None\n"
    code += f"import posenc_cli\nprint(posenc_cli.run(['doctor', {str(a)!r}]), "
    code += f"posenc_cli.run(['doctor', '--compare', {str(a)!r}, {str(b)!r}]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["0 1"], done.stdout + done.stderr


def test_presets_differ_where_their_models_do() -> None:
    assert "rotation" in codes(preset("llama-3.1"), preset("llama-3.2"))[1]
    assert codes(GEMMA_3, GEMMA_3) == (0, set())


def by_peft(base: Path) -> Any:
    """A few steps of LoRA by hand."""
    import peft
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base)
    lora = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    optimizer = torch.optim.AdamW((p for p in lora.parameters() if p.requires_grad), lr=1e-2)
    tokens = torch.arange(96).remainder(26).add(4).expand(2, -1)
    losses = []
    for _ in range(8):
        loss = lora(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0], "it learns"
    return lora


@pytest.mark.slow
def test_a_lora_fine_tune_merged_saved_and_converted_does_not_drift(tmp_path: Path) -> None:
    """Trains a small Llama with YaRN by LoRA, merges, saves, writes GGUF; then loses the block in two of the steps."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    tokenizers = pytest.importorskip("tokenizers")
    for name in ("peft", "gguf"):
        pytest.importorskip(name)
    from posenc.hf import write_gguf
    from tests.hf.gguf.files import as_gguf

    torch.manual_seed(0)
    block = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 1e4}
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=32, max_position_embeddings=256, rope_parameters=block, pad_token_id=0, bos_token_id=1,
        eos_token_id=2,
    )  # fmt: skip
    base = tmp_path / "base"
    transformers.LlamaForCausalLM(config).save_pretrained(base)
    words = {word: n for n, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", *"abcdefghijklmnopqrstuvwxyz"])}
    words_tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    words_tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words_tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>",
        model_max_length=256,
    ).save_pretrained(base)  # fmt: skip

    lora = by_peft(base)
    lora.save_pretrained(tmp_path / "adapter")
    merged = lora.merge_and_unload().float()
    merged.save_pretrained(tmp_path / "merged")
    before = transformers.AutoModelForCausalLM.from_pretrained(base).state_dict()
    assert any(not torch.equal(weight, before[name]) for name, weight in merged.state_dict().items())
    source = as_gguf(merged, tmp_path / "plain.gguf", base=1e4)
    write_gguf(source, tmp_path / "merged.gguf", read_rope(tmp_path / "merged"))

    for step in ("adapter", "merged", "merged.gguf"):
        comparison = compare(base, tmp_path / step)
        assert not comparison.drifted, str(comparison)
    lost = compare(base, source)
    assert lost.exit_code() == 1
    assert [difference.aspect for difference in lost.differences] == ["rotation"]
    assert lost.differences[0].layers == (0, 1)
    assert "the scaling is missing in B" in str(lost)

    merged.config.rope_parameters = {"rope_type": "default", "rope_theta": 1e4}  # a trainer that rebuilds the config
    merged.save_pretrained(tmp_path / "rebuilt")
    rebuilt = compare(base, tmp_path / "rebuilt")
    assert [difference.aspect for difference in rebuilt.differences if difference.kind == "drift"] == ["rotation"]
