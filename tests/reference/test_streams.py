"""Position ids of transformers' vision models compared with posenc's: equal, except for text behind long videos."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from posenc.positions import following, from_token_ids, padded

pytestmark = pytest.mark.reference
START, IMAGE, VIDEO, AUDIO, END, AUDIO_START, AUDIO_END = 9, 1, 2, 4, 8, 6, 7
T = 3
RATE = 4


def by_transformers(family, ids, mask, **options):
    """``get_rope_index`` of a model without its weights; (batch, tokens, 3), and the deltas."""
    pytest.importorskip("transformers")
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLModel
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLModel
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5Model
    from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel

    cls = {
        "qwen2-vl": Qwen2VLModel, "qwen2.5-vl": Qwen2_5_VLModel, "qwen3-vl": Qwen3VLModel, "qwen3.5": Qwen3_5Model,
    }[family]  # fmt: skip
    vision = SimpleNamespace(spatial_merge_size=2, tokens_per_second=RATE)
    model = SimpleNamespace(config=SimpleNamespace(vision_config=vision))
    model.get_vision_position_ids = lambda *args, **words: cls.get_vision_position_ids(model, *args, **words)
    kinds = torch.where(ids == IMAGE, 1, torch.where(ids == VIDEO, 2, 0))
    ids_of, delta = cls.get_rope_index(model, ids, mm_token_type_ids=kinds, attention_mask=mask, **options)
    return ids_of.permute(1, 2, 0), delta


def by_posenc(family, ids, mask, **options):
    options["seconds_per_grid"] = options.pop("second_per_grid_ts", None)
    rate = RATE if family == "qwen2.5-vl" else None
    return from_token_ids(
        ids, family=family, image_token=IMAGE, video_token=VIDEO, mask=mask, tokens_per_second=rate, **options
    )


def rows(*result, side="left"):
    ids, mask = padded([torch.tensor(row) for row in result], side=side)
    return ids, mask.long()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", ["qwen2-vl", "qwen2.5-vl", "qwen3-vl"])
def test_pictures(family, side):
    first = [T, START, *[IMAGE] * 6, END, T, START, *[IMAGE] * 2, END]
    ids, mask = rows(first, [START, *[IMAGE] * 4, END, T, T, T], [T, T], side=side)
    grids = {"image_grid_thw": torch.tensor([[1, 4, 6], [1, 2, 4], [1, 8, 2]])}
    expected, delta = by_transformers(family, ids, mask, **grids)
    got = by_posenc(family, ids, mask, **grids)
    assert torch.equal(got[mask.bool()], expected[mask.bool()])
    assert torch.equal(following(got)[:, 0, :1] - mask.sum(-1, keepdim=True), delta)


@pytest.mark.parametrize("seconds", [0.1, 0.25, 0.3, 0.5])
@pytest.mark.parametrize("family", ["qwen2-vl", "qwen2.5-vl"])
def test_short_videos(family, seconds):
    """As long as no frame's time lies beyond the rows and columns, both rules for the text behind it agree."""
    ids, mask = rows([T, START, *[VIDEO] * 27, END, T], [START, *[VIDEO] * 12, END, START, *[IMAGE] * 2, END, T])
    grids = {"image_grid_thw": torch.tensor([[1, 2, 4]]), "video_grid_thw": torch.tensor([[3, 6, 6], [3, 2, 8]])}
    if family == "qwen2.5-vl":
        grids["second_per_grid_ts"] = torch.tensor([0.25, seconds])
    expected, delta = by_transformers(family, ids, mask, **grids)
    got = by_posenc(family, ids, mask, **grids)
    if seconds * 2 * RATE < 4 or family == "qwen2-vl":
        assert torch.equal(got[mask.bool()], expected[mask.bool()])
        assert torch.equal(following(got)[:, 0, :1] - mask.sum(-1, keepdim=True), delta)
    else:
        sight = (ids == VIDEO) & mask.bool()
        assert torch.equal(got[sight], expected[sight])
        assert not torch.equal(got[1], expected[1])


def test_text_behind_a_long_video():
    """Theirs begins on ids of the video's frames; ours behind all of them."""
    ids, mask = rows([T, START, *[VIDEO] * 5, END, T])
    grids = {"video_grid_thw": torch.tensor([[5, 2, 2]])}
    expected, _ = by_transformers("qwen2-vl", ids, mask, **grids)
    got = by_posenc("qwen2-vl", ids, mask, **grids)
    assert torch.equal(got[0, :7], expected[0, :7])
    assert expected[0, 7, 0] <= expected[0, 6, 0] < got[0, 7, 0] == 7


@pytest.mark.parametrize("seconds", [0.25, 0.5, 2.0])
@pytest.mark.parametrize("family", ["qwen2-vl", "qwen2.5-vl"])
def test_ids_as_transformers_counts_them_on_demand(family, seconds):
    ids, mask = rows([T, START, *[VIDEO] * 27, END, T], [START, *[VIDEO] * 12, END, START, *[IMAGE] * 2, END, T])
    grids = {"image_grid_thw": torch.tensor([[1, 2, 4]]), "video_grid_thw": torch.tensor([[3, 6, 6], [3, 2, 8]])}
    if family == "qwen2.5-vl":
        grids["second_per_grid_ts"] = torch.tensor([0.25, seconds])
    expected, _ = by_transformers(family, ids, mask, **grids)
    got = by_posenc(family, ids, mask, after="side", **grids)
    assert torch.equal(got[mask.bool()], expected[mask.bool()])


@pytest.mark.parametrize("family", ["qwen3-vl", "qwen3.5"])
def test_frames_and_their_times(family):
    frame = [START, *[VIDEO] * 6, END]
    ids, mask = rows([T, 11, *frame, 12, 13, *frame, 12, *frame, T], [START, *[IMAGE] * 4, END, T, *frame])
    grids = {"image_grid_thw": torch.tensor([[1, 4, 4]]), "video_grid_thw": torch.tensor([[3, 4, 6], [1, 6, 4]])}
    expected, delta = by_transformers(family, ids, mask, **grids)
    got = by_posenc(family, ids, mask, **grids)
    assert torch.equal(got[mask.bool()], expected[mask.bool()])
    assert torch.equal(following(got)[:, 0, :1] - mask.sum(-1, keepdim=True), delta)


def test_ernie_merges_frames():
    """ERNIE 4.5 VL: two frames make one; as long as a video has no more of them than rows or columns."""
    pytest.importorskip("transformers")
    from transformers.models.ernie4_5_vl_moe.modeling_ernie4_5_vl_moe import Ernie4_5_VLMoeModel as Ernie

    model = SimpleNamespace(config=SimpleNamespace(vision_config=SimpleNamespace(
        spatial_merge_size=2, temporal_merge_size=2)))  # fmt: skip
    model.get_vision_position_ids = lambda *args, **words: Ernie.get_vision_position_ids(model, *args, **words)
    ids, mask = rows([T, START, *[VIDEO] * 12, END, T], [START, *[IMAGE] * 6, END, T, *[VIDEO] * 8, T])
    grids = {"image_grid_thw": torch.tensor([[1, 4, 6]]), "video_grid_thw": torch.tensor([[4, 4, 6], [4, 4, 4]])}
    kinds = torch.where(ids == IMAGE, 1, torch.where(ids == VIDEO, 2, 0))
    expected, delta = Ernie.get_rope_index(model, ids, mm_token_type_ids=kinds, attention_mask=mask, **grids)
    got = by_posenc("ernie-4.5-vl", ids, mask, **grids)
    assert torch.equal(got[mask.bool()], expected.permute(1, 2, 0)[mask.bool()])
    assert torch.equal(following(got)[:, 0, :1] - mask.sum(-1, keepdim=True), delta)


@pytest.mark.parametrize("seconds", [0.5, 0.7, 1.0, 2.0])
def test_omni(seconds):
    """Qwen2.5-Omni: sound as text, videos at 25 ids a second, each in marks of its own."""
    pytest.importorskip("transformers")
    from transformers.models.qwen2_5_omni import modeling_qwen2_5_omni as omni

    model = SimpleNamespace(
        spatial_merge_size=2,
        config=SimpleNamespace(
            image_token_id=IMAGE, video_token_id=VIDEO, audio_token_id=AUDIO, vision_start_token_id=START,
            audio_start_token_id=AUDIO_START, position_id_per_seconds=25, seconds_per_chunk=2,
        ),
    )  # fmt: skip
    cls = omni.Qwen2_5OmniPreTrainedModelForConditionalGeneration
    model.get_llm_pos_ids_for_vision = lambda *args: cls.get_llm_pos_ids_for_vision(model, *args)
    first = [T, T, AUDIO_START, *[AUDIO] * 5, AUDIO_END, T, START, *[VIDEO] * 12, END, T]
    two = [T, START, *[IMAGE] * 6, END, T, T, AUDIO_START, *[AUDIO] * 3, AUDIO_END]
    ids, mask = rows(first, two)
    expected, delta = cls.get_rope_index(
        model,
        ids,
        torch.tensor([[1, 4, 6]]),
        torch.tensor([[3, 4, 4]]),
        mask,
        audio_seqlens=torch.tensor([20, 12]),
        second_per_grids=torch.tensor([seconds]),
    )
    got = from_token_ids(
        ids, family="qwen2.5-omni", image_token=IMAGE, video_token=VIDEO, mask=mask,
        image_grid_thw=[[1, 4, 6]], video_grid_thw=[[3, 4, 4]], seconds_per_grid=[seconds],
    )  # fmt: skip
    assert torch.equal(got[mask.bool()], expected.permute(1, 2, 0)[mask.bool()])
    assert torch.equal(following(got)[:, 0, :1] - mask.sum(-1, keepdim=True), delta.long())
