"""check_batch: planted faults in batches of tiny models are found by name, and right batches are quiet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from posenc.testing import check_batch, check_collator

transformers = pytest.importorskip("transformers")

Batch = dict[str, Any]
VOCABULARY, IMAGE = 97, 90
SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "max_position_embeddings": 512, "pad_token_id": 0,
}  # fmt: skip
HYBRIDS = ("bamba", "qwen3_5")
ENCODERS = ("modernbert",)
WITHOUT_IDS = ("bloom",)  # its biases go by the mask; position_ids are taken and not read
TWO_AXES = ("bloom", "posenc-rope", "posenc-learned")  # of a mask: they take no others
MODELS = (
    "llama", "mixtral", "gpt2", "bloom", "bamba", "qwen3_5", "modernbert", "qwen2_vl", "posenc-rope", "posenc-learned",
)  # fmt: skip


def model_of(name: str, implementation: str = "sdpa", dtype: torch.dtype = torch.float32) -> nn.Module:
    """A tiny model of a family, in train mode as a training loop has it."""
    torch.manual_seed(0)
    if name.startswith("posenc"):
        from posenc.hf.modeling import PosencConfig, PosencForCausalLM

        options = {"encodings": name.removeprefix("posenc-"), "max_position_embeddings": 128}
        return PosencForCausalLM(PosencConfig(**(SIZES | options))).to(dtype).train()
    if name == "qwen2_vl":
        model = picture_model().to(dtype)
        model.set_attn_implementation(implementation)  # type: ignore[operator]
        return model
    makers = {
        "llama": lambda: transformers.LlamaConfig(**SIZES),
        "mixtral": lambda: transformers.MixtralConfig(**SIZES, num_local_experts=4),
        "gpt2": lambda: transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4, n_positions=512),
        "bloom": lambda: transformers.BloomConfig(vocab_size=VOCABULARY, hidden_size=64, n_layer=2, n_head=4),
        "bamba": lambda: transformers.BambaConfig(
            **SIZES, attn_layer_indices=[1], mamba_n_heads=8, mamba_d_head=16, mamba_d_state=16, mamba_chunk_size=16
        ),
        "qwen3_5": lambda: transformers.Qwen3_5TextConfig(
            **SIZES, head_dim=16, layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2,
            linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16,
        ),
        "modernbert": lambda: transformers.ModernBertConfig(
            **{key: value for key, value in SIZES.items() if key != "num_key_value_heads"}, local_attention=16
        ),
    }  # fmt: skip
    kind = transformers.AutoModelForMaskedLM if name in ENCODERS else transformers.AutoModelForCausalLM
    return kind.from_config(makers[name](), dtype=dtype, attn_implementation=implementation).train()


def rows_of(seed: int) -> Batch:
    """Three rows of one document each."""
    ids = torch.randint(1, VOCABULARY, (3, 21 + seed), generator=torch.Generator().manual_seed(seed))
    return {"input_ids": ids, "labels": ids.clone()}


def packed(seed: int) -> Batch:
    """Two rows of three documents, whose position ids begin at 0 in each."""
    lengths = (9 + seed, 14, 11)
    ids = torch.randint(1, VOCABULARY, (2, sum(lengths)), generator=torch.Generator().manual_seed(seed))
    where = torch.cat([torch.arange(n) for n in lengths]).expand(2, -1).clone()
    return {"input_ids": ids, "position_ids": where, "labels": ids.masked_fill(where == 0, -100)}


def padded(seed: int, *, left: bool) -> Batch:
    rows = rows_of(seed)
    real = torch.ones_like(rows["input_ids"])
    real[0, -5:], real[1, -9:] = 0, 0
    real = real.flip(1) if left else real
    ids = rows["input_ids"].masked_fill(real == 0, 0)
    return {"input_ids": ids, "attention_mask": real, "labels": ids.masked_fill(real == 0, -100)}


def documents(batch: Batch) -> Tensor:
    return (batch["position_ids"] == 0).cumsum(-1) - 1


def separating(batch: Batch, dtype: torch.dtype) -> Tensor:
    """A causal mask with four axes, which separates documents."""
    numbers = documents(batch)
    same = (numbers[:, :, None] == numbers[:, None, :]).tril()
    return torch.zeros(same.shape, dtype=dtype).masked_fill(~same, torch.finfo(dtype).min)[:, None]


def right_batches(name: str, seed: int, dtype: torch.dtype) -> Iterator[tuple[str, Batch, Tensor | None]]:
    """Batches that are right for a model, with the documents where the batch does not say them."""
    yield "rows", rows_of(seed), None
    yield "padded on the right", padded(seed, left=False), None
    if name != "gpt2":  # whose position ids count padding unless the batch brings its own
        yield "padded on the left", padded(seed, left=True), None
    if name == "qwen2_vl":  # documents are told apart by the text's own ids, before the three of M-RoPE
        four = {"position_ids": packed(seed)["position_ids"].expand(4, -1, -1), "use_cache": False}
        yield "packed, ids of four axes", packed(seed) | four, documents(packed(seed))
    elif name not in (*HYBRIDS, *ENCODERS, *WITHOUT_IDS):
        yield "packed", packed(seed) | {"use_cache": False}, None
    if name not in (*HYBRIDS, *ENCODERS, *TWO_AXES):
        batch = packed(seed)
        yield "packed, four axes", batch | {"attention_mask": separating(batch, dtype)}, documents(batch)


def planted(name: str, seed: int, dtype: torch.dtype) -> Iterator[tuple[str, str, Batch, Tensor | None]]:
    """The verdict that must be found, what was planted, the batch, and its documents where it does not say them."""
    rows, pack, one = rows_of(seed), packed(seed), torch.zeros_like(rows_of(seed)["input_ids"])
    tokens = rows["input_ids"].shape[1]
    if not name.startswith("posenc"):
        yield "leaks", "a mask of ones", pack | {"attention_mask": torch.ones_like(pack["input_ids"])}, None
    alone = {key: value for key, value in pack.items() if key != "position_ids"}
    yield "leaks", "nothing says that there are documents", alone, documents(pack)
    left = padded(seed, left=True)
    without = {key: value for key, value in left.items() if key != "attention_mask"}
    yield "padding counted", "no mask", without, left["attention_mask"] - 1
    if name not in WITHOUT_IDS:
        ids = (torch.arange(tokens) % (tokens // 2)).expand(3, -1).clone()
        yield "positions differ from alone", "a restart within", rows | {"position_ids": ids, "use_cache": False}, one
        ids = (2 * torch.arange(tokens)).expand(3, -1).clone()
        yield "positions differ from alone", "every second id", rows | {"position_ids": ids, "use_cache": False}, one
    if name == "gpt2":
        yield "padding counted", "ids that count padding", left, None
    if name in ("gpt2", "posenc-learned"):
        ids = torch.arange(5, tokens + 5).expand(3, -1).clone()
        yield "positions differ from alone", "not from 0", rows | {"position_ids": ids, "use_cache": False}, one
    if name not in (*ENCODERS, *TWO_AXES):
        mask = torch.zeros(3, 1, tokens, tokens, dtype=dtype)
        yield "causal broken", "a mask without an order", rows | {"attention_mask": mask}, None
    padding = padded(seed, left=False)
    yield "labels cross", "labels of padding", padding | {"labels": padding["input_ids"].clone()}, None
    shifted = torch.cat([rows["input_ids"][:, 1:], torch.full((3, 1), -100)], 1)
    yield "labels cross", "labels shifted twice", rows | {"labels": shifted}, None
    if name not in ENCODERS:
        yield "labels cross", "labels across documents", pack | {"labels": pack["input_ids"].clone()}, None


CASES = [
    pytest.param(
        name, implementation, dtype, id=f"{name}-{implementation}-{str(dtype).removeprefix('torch.')}",
        marks=[pytest.mark.slow] if implementation == "eager" and name not in (*WITHOUT_IDS, "llama", "gpt2") else [],
    )
    for name in MODELS
    for implementation in ("sdpa", "eager")
    for dtype in (torch.float32, torch.bfloat16)
    if implementation == "sdpa" or not name.startswith("posenc")
    if implementation == "eager" or name not in WITHOUT_IDS  # Bloom has no other
]  # fmt: skip


@pytest.mark.parametrize(("name", "implementation", "dtype"), CASES)
def test_planted_faults_are_found_and_right_batches_are_quiet(
    name: str, implementation: str, dtype: torch.dtype
) -> None:
    model = model_of(name, implementation, dtype)
    for seed in range(1 if dtype == torch.float32 else 2):
        for case, batch, numbers in right_batches(name, seed, dtype):
            report = check_batch(model, batch, documents=numbers)
            assert report.verdicts == ("separate",), (case, str(report))
        for kind, case, batch, numbers in planted(name, seed, dtype):
            report = check_batch(model, batch, documents=numbers)
            assert kind in report.verdicts, (case, str(report))
            assert not report.ok
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.training


@pytest.mark.parametrize("name", HYBRIDS)
def test_a_hybrid_leaks_where_its_fused_kernels_are_missing(name: str) -> None:
    report = check_batch(model_of(name), packed(0) | {"use_cache": False})
    (finding,) = [finding for finding in report.findings if finding.row == 0]
    assert finding.kind == "leaks"
    assert finding.other == 8  # the last token of the document before
    assert finding.effect is not None
    assert finding.rounding is not None
    assert finding.effect > 1000 * finding.rounding
    assert "sequence of its own" in finding.remedy


class Decoder(nn.Module):
    """A model of one's own: tokens, an embedding, one layer of attention."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.embed, self.head, self.fused = nn.Embedding(VOCABULARY, 16), nn.Linear(16, VOCABULARY), fused

    def forward(self, input_ids: Tensor, segments: Tensor | None = None) -> Tensor:
        h = self.embed(input_ids)[:, None]
        mask = torch.ones(h.shape[2], h.shape[2], dtype=torch.bool).tril()
        if segments is not None and not self.fused:  # a fused kernel may drop what it cannot take
            mask = mask & (segments[:, None, :, None] == segments[:, None, None, :])
        return self.head(nn.functional.scaled_dot_product_attention(h, h, h, mask)[:, 0])


@pytest.mark.parametrize("fused", [False, True])
def test_a_callable_of_ones_own(fused: bool) -> None:
    batch = packed(0)
    fields = {"input_ids": batch["input_ids"], "segments": documents(batch)}
    report = check_batch(Decoder(fused), fields)
    assert report.source == "segments"
    assert report.verdicts == (("leaks",) if fused else ("separate",))


@pytest.mark.parametrize("name", ["llama", "bamba"])
def test_without_gradients_changed_tokens_decide(name: str) -> None:
    model = model_of(name)

    def call(**batch: Any) -> Tensor:
        with torch.no_grad():
            logits: Tensor = model(**batch).logits
        return logits

    assert check_batch(call, packed(0)).verdicts == ("leaks",)
    report = check_batch(call, rows_of(0))
    assert report.ok
    assert any("no gradients" in line for line in report.checked)


@pytest.mark.parametrize(
    ("options", "use_cache", "verdict"),
    [({}, None, "leaks"), ({}, False, "separate"), ({"return_position_ids": False}, False, "leaks")],
)
def test_collators_are_checked_by_the_samples_that_went_in(
    options: dict[str, bool], use_cache: bool | None, verdict: str
) -> None:
    collator = transformers.DataCollatorWithFlattening(**options)
    samples = [{"input_ids": torch.randint(1, VOCABULARY, (n,)).tolist()} for n in (9, 14, 11)]

    def collate(features: list[Any]) -> Batch:
        return dict(collator(features)) | ({} if use_cache is None else {"use_cache": use_cache})

    report = check_collator(model_of("llama"), collate, samples)
    assert report.documents[0].bincount().tolist() == [9, 14, 11]
    assert report.verdicts == (verdict,)
    with pytest.raises(ValueError, match="samples"):
        check_collator(model_of("llama"), lambda features: rows_of(0), [{"input_ids": [1] * 30}])


def picture_model() -> nn.Module:
    torch.manual_seed(0)
    text = SIZES | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}}
    vision = {
        "embed_dim": 32, "hidden_size": 64, "depth": 1, "num_heads": 2, "patch_size": 4, "in_channels": 3,
        "spatial_merge_size": 2, "temporal_patch_size": 2,
    }  # fmt: skip
    config = transformers.Qwen2VLConfig(
        text_config=text, vision_config=vision, image_token_id=IMAGE, video_token_id=91, vision_start_token_id=92
    )
    return transformers.Qwen2VLForConditionalGeneration(config).train()


def picture_batch(model: Any) -> Batch:
    """Two documents in two rows, with a picture of 4 × 6 patches each, and the ids of the model's own rule."""
    ids = torch.randint(1, 80, (2, 16), generator=torch.Generator().manual_seed(0))
    ids[0, 3:9], ids[1, 5:11] = IMAGE, IMAGE
    grids = torch.tensor([[1, 4, 6], [1, 4, 6]])
    kinds = (ids == IMAGE).int()
    where, _ = model.model.get_rope_index(ids, mm_token_type_ids=kinds, image_grid_thw=grids)
    return {
        "input_ids": ids, "position_ids": where, "image_grid_thw": grids, "pixel_values": torch.randn(48, 96),
        "attention_mask": torch.ones_like(ids), "mm_token_type_ids": kinds,
    }  # fmt: skip


def pictures_in_one_row(model: Any) -> Batch:
    """The two documents of `picture_batch` in one row, without ids."""
    rows = picture_batch(model)
    ids = rows["input_ids"].reshape(1, -1)
    images = {key: rows[key] for key in ("image_grid_thw", "pixel_values")}
    return images | {"input_ids": ids, "mm_token_type_ids": (ids == IMAGE).int()}


def ids_in_one_row(model: Any, attention_mask: Tensor | None = None) -> Tensor:
    """Ids of the text and of M-RoPE, ``(4, 1, 32)``: by document, or by what a mask over the whole row says."""
    row = pictures_in_one_row(model)
    text = torch.arange(16).repeat(2)[None, None]
    if attention_mask is None:
        return torch.cat([text, picture_batch(model)["position_ids"].reshape(3, 1, -1)])
    by_mask, _ = model.model.get_rope_index(
        row["input_ids"], mm_token_type_ids=row["mm_token_type_ids"], image_grid_thw=row["image_grid_thw"],
        attention_mask=attention_mask,
    )  # fmt: skip
    return torch.cat([text, by_mask])


def roberta() -> nn.Module:
    torch.manual_seed(0)
    sizes = {key: value for key, value in SIZES.items() if key not in ("num_key_value_heads", "pad_token_id")}
    return transformers.XLMRobertaForMaskedLM(transformers.XLMRobertaConfig(**sizes, pad_token_id=1)).train()


def thread_cases() -> Iterator[tuple[str, nn.Module, Batch, Tensor | None, str, str]]:
    """Batches of public threads: where, the model, the batch, its documents, the verdict, a word of the remedy."""
    llama, pack = model_of("llama"), packed(0)
    numbers, bare = documents(pack), {"input_ids": pack["input_ids"]}
    apart = bare | {"attention_mask": separating(pack, torch.float32)}
    yield "huggingface/nanoVLM#201", llama, bare, numbers, "leaks", "position_ids"
    yield "huggingface/nanoVLM#204, alex-hh/profam#495", llama, pack, None, "leaks", "use_cache=False"
    ones = {"attention_mask": torch.ones_like(pack["input_ids"]), "use_cache": False}
    yield "huggingface/transformers#46634", llama, pack | ones, None, "leaks", "Leave attention_mask out"
    yield "huggingface/trl#1230", llama, bare | {"use_cache": False}, numbers, "leaks", "position_ids"
    yield "hiyouga/LlamaFactory#7318", model_of("gpt2"), apart, numbers, "positions differ from alone", "begin at 0"
    yield "hiyouga/LlamaFactory#7318 under RoPE", llama, apart, numbers, "separate", ""
    yield "ndif-team/nnsight#672", model_of("gpt2"), padded(0, left=True), None, "padding counted", "position_ids"
    mask = padded(0, left=True)["attention_mask"]
    ids = {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    yield "ndif-team/nnsight#673", model_of("gpt2"), padded(0, left=True) | ids, None, "separate", ""
    rows = {"input_ids": rows_of(0)["input_ids"].clamp(min=2)}
    from_zero = {"position_ids": torch.arange(21).expand(3, -1)}
    yield (
        "huggingface/sentence-transformers#3879",
        roberta(),
        rows | from_zero,
        None,
        ("positions differ from alone"),
        "Leave position_ids out",
    )
    from_two = {"position_ids": torch.arange(2, 23).expand(3, -1)}
    yield "huggingface/transformers#47525", roberta(), rows | from_two, None, "separate", ""
    pictures = picture_model()
    row, halves = pictures_in_one_row(pictures), torch.arange(32)[None] // 16
    two_axes = {"position_ids": torch.arange(16).repeat(2)[None], "use_cache": False}
    yield "axolotl-ai-cloud/axolotl#3817", pictures, row | two_axes, None, "leaks", "(4, sequences, tokens)"
    mended = {"position_ids": ids_in_one_row(pictures), "use_cache": False}
    yield "axolotl-ai-cloud/axolotl#3817, mended", pictures, row | mended, halves, "separate", ""
    first_alone = {"position_ids": ids_in_one_row(pictures, (halves == 0).long()), "use_cache": False}
    yield (
        "hiyouga/LlamaFactory#7754",
        pictures,
        row | first_alone,
        halves,
        "positions differ from alone",
        ("get_rope_index"),
    )
    flat = {"position_ids": torch.arange(16).repeat(2).expand(4, 1, -1).clone(), "use_cache": False}
    yield "NVIDIA-NeMo/Automodel#2172", pictures, row | flat, halves, "positions differ from alone", "get_rope_index"
    batch = picture_batch(pictures)
    yield "areal-project/AReaL#1093", pictures, batch | {"input_ids": batch["input_ids"].int()}, None, "separate", ""


@pytest.mark.parametrize(
    ("model", "batch", "numbers", "verdict", "remedy"),
    [pytest.param(*case, id=where.replace("/", " ")) for where, *case in thread_cases()],
)
def test_batches_of_public_threads_get_the_verdict_of_the_thread(
    model: nn.Module, batch: Batch, numbers: Tensor | None, verdict: str, remedy: str
) -> None:
    report = check_batch(model, batch, documents=numbers)
    assert report.verdicts == (verdict,), str(report)
    assert all(remedy in finding.remedy for finding in report.findings), str(report)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "mixtral", "modernbert"])
def test_flex_attention_which_has_no_pass_backward_on_a_cpu(name: str) -> None:
    model = model_of(name, "flex_attention")
    for case, batch, numbers in right_batches(name, 0, torch.float32):
        report = check_batch(model, batch, documents=numbers)
        assert report.verdicts == ("separate",), (case, str(report))
    for kind, case, batch, numbers in planted(name, 0, torch.float32):
        assert kind in check_batch(model, batch, documents=numbers).verdicts, case


def test_a_long_row_is_cut_after_its_second_document_begins() -> None:
    lengths = (5000, 3000, 2000)
    where = torch.cat([torch.arange(n) for n in lengths])[None]
    ids = torch.randint(1, VOCABULARY, where.shape, generator=torch.Generator().manual_seed(0))
    labels = ids.masked_fill(where == 0, -100)
    labels[0, 8000] = 5
    bounds = torch.tensor([0, 5000, 8000, 10000], dtype=torch.int32)
    batch = {"input_ids": ids, "position_ids": where, "labels": labels, "cu_seq_lens_q": bounds, "max_length_q": 5000}
    model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**SIZES | {"hidden_size": 16}))
    report = check_batch(model.train(), batch)
    assert report.verdicts == ("leaks", "labels cross")
    assert (report.findings[0].token, report.findings[0].other) == (5000, 4999)
    assert report.findings[-1].token == 8000  # beyond what the model was asked about
    assert any("5,064" in line for line in report.checked)


def test_wrong_arguments() -> None:
    model = model_of("llama")
    with pytest.raises(ValueError, match="input_ids"):
        check_batch(model, {"labels": torch.zeros(2, 3)})
    with pytest.raises(ValueError, match="documents"):
        check_batch(model, rows_of(0), documents=torch.zeros(2, 3))
