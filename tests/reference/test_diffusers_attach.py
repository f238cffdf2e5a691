"""posenc's rotation in tiny models of diffusers: the same outputs, others under a scaling, and the model's own back."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

from posenc import AxialRoPE, PositionInterpolation, YaRN
from posenc.diffusers import KNOWN, AttachedPositions, attach, detach, dype, riflex
from posenc.frequencies import identify_k
from posenc.hf.families.diffusion import DIFFUSION
from tests.samples import gap

pytestmark = pytest.mark.reference
diffusers = pytest.importorskip("diffusers")

from tests.reference import tiny_diffusers as tiny  # noqa: E402
from tests.reference.tiny_diffusers import MODELS, Make, built, output  # noqa: E402

FOLDER = Path(__file__).parents[1] / "golden" / "diffusion"
GOLDEN = json.loads((FOLDER / "manifest.json").read_text())


# whose own angles are float32 of large numbers: of seconds and pixels times up to 15,700, or times learned numbers
OFF: dict[Make, float] = {tiny.ltx: 2e-5, tiny.ltx_2: 5e-4, tiny.ltx_2_split: 5e-4}


def attached_to(model: nn.Module) -> list[AttachedPositions]:
    return [module for module in model.children() if isinstance(module, AttachedPositions)]


def halved(model: nn.Module) -> Any:
    """Rows and columns at half their coordinates, for a model of two, three or four axes, or of one list of pairs."""
    kind, unscaled = attached_to(model)[0].kind, attached_to(model)[0]._plain
    half = PositionInterpolation(2.0)
    if kind.scales == "pairs":
        return half
    axes = 3 if kind.scales == "positions" else cast(AxialRoPE, unscaled).axes
    return (half, half) if axes == 2 else (None, half, half, *[None] * (axes - 3))


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_outputs_stay_the_same_and_detach_restores_bit_for_bit(make: Make) -> None:
    model, inputs = built(make)
    before, keys = output(model, inputs), list(model.state_dict())
    assert attach(model) is model
    assert gap(output(model, inputs), before) < OFF.get(make, 2e-6)
    assert list(model.state_dict()) == keys
    attach(model, halved(model))
    assert gap(output(model, inputs), before) > 1e-4
    assert torch.equal(output(detach(model), inputs), before)
    assert torch.equal(output(detach(model), inputs), before)
    assert not model._forward_pre_hooks
    assert not attached_to(model)


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_the_model_rotates_by_the_attached_tables(make: Make) -> None:
    """A table of ones and zeros gives another output: what is attached is what the model rotates by."""
    model, inputs = built(make)
    before = output(attach(model), inputs)
    for attached in attached_to(model):
        attached._table = lambda tokens, table=attached._table: tuple(  # type: ignore[method-assign, misc]
            torch.full_like(part, value) for part, value in zip(table(tokens), (1, 0), strict=True)
        )
    assert gap(output(model, inputs), before) > 1e-4


def test_ltx_is_attached_with_the_seconds_and_pixels_of_its_tokens() -> None:
    model, inputs = built(tiny.ltx)
    coordinates = torch.randn(1, 3, 24).abs() * 10
    with_coordinates = {**inputs, "video_coords": coordinates}
    before = output(model, with_coordinates)
    assert gap(output(attach(model), with_coordinates), before) < 1e-4
    slower = {**inputs, "video_coords": coordinates / torch.tensor([2.0, 1.0, 1.0])[:, None]}
    attach(model, (PositionInterpolation(2.0), None, None))
    assert gap(output(model, with_coordinates), output(detach(model), slower)) < 1e-4


@pytest.mark.parametrize("make", [tiny.ltx_2, tiny.ltx_2_split])
def test_seconds_of_ltx_2_are_divided_for_video_and_sound_alike(make: Make) -> None:
    model, inputs = built(make)
    rope = cast(Any, model)
    video = rope.rope.prepare_video_coords(2, 2, 3, 4, torch.device("cpu"), fps=24.0)
    sound = rope.audio_rope.prepare_audio_coords(2, 5, torch.device("cpu"))
    slower = video / torch.tensor([2.0, 1.0, 1.0])[:, None, None]
    expected = output(model, {**inputs, "video_coords": slower, "audio_coords": sound / 2})
    attach(model, (PositionInterpolation(2.0), None, None))
    assert len(attached_to(model)) == 4
    assert gap(output(model, inputs), expected) < OFF[make]
    rows = torch.stack([video[0], 2 * video[1]])  # each row of a batch has its own coordinates
    expected = output(attach(model), {**inputs, "video_coords": rows})
    assert gap(output(detach(model), {**inputs, "video_coords": rows}), expected) < OFF[make]


@pytest.mark.parametrize("name", [name for name in GOLDEN if "dype" in name])
def test_tables_of_dype_are_the_authors(name: str) -> None:
    golden = GOLDEN[name]
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as file:
        positions, cos, sin = (torch.from_numpy(file[key]) for key in ("positions", "cos", "sin"))
    if golden["axes_dims"] != [16, 56, 56]:
        pytest.skip("of other sizes, in tests/rotary/test_axes_dims.py")
    scaling = dype(golden["base_patches"], method=golden.get("method_", "yarn"), dynamic=golden["dype"])
    is_qwen = "video_fhw" in golden
    model, _ = built(lambda: (tiny.qwen_image if is_qwen else tiny.flux)(128))
    attach(model, scaling)
    attached = cast(AttachedPositions, model.pos_embed)
    attached.timestep = golden["timestep"]
    if is_qwen:
        _, height, width = golden["video_fhw"]
        waves, words = attached([[(1, height, width)]], max_txt_seq_len=2, device=torch.device("cpu"))
        first = positions[:, 1:] + torch.tensor([(height + 1) // 2, (width + 1) // 2])
        rows = (first[:, 0] * width + first[:, 1]).long()
        assert gap(waves.real[rows], cos) < 2e-5
        assert gap(waves.imag[rows], sin) < 2e-5
        assert gap(words.abs(), torch.ones(2, 64)) < 1e-6  # no gain: text is not scaled
        return
    tables = attached(positions)
    for table, right in zip(tables, (cos, sin), strict=True):
        assert gap(table[:, ::2], right) < 2e-5
        assert torch.equal(table[:, ::2], table[:, 1::2])


@pytest.mark.parametrize("name", ["riflex_wan_k6_L40", "riflex_hunyuan_k4_L66"])
def test_tables_of_riflex_are_the_authors(name: str) -> None:
    golden = GOLDEN[name]
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as file:
        positions, cos, sin = (torch.from_numpy(file[key]) for key in ("positions", "cos", "sin"))
    model, _ = built(lambda: (tiny.wan if "wan" in name else tiny.hunyuan_video)(128))
    attach(model, riflex(golden["k"], repeats_at=1))
    frames, height, width = (int(size) + 1 for size in positions.amax(0).tolist())
    frames = golden["L_test"]
    patch = 2 if "wan" in name else 1
    tables = cast(AttachedPositions, model.rope)(torch.zeros(1, 4, frames, patch * height, patch * width))
    rows = (positions @ torch.tensor([float(height * width), float(width), 1.0], dtype=torch.float64)).long()
    for table, right in zip(tables, (cos, sin), strict=True):
        assert gap(table.reshape(-1, 128)[rows, ::2], right) < 2e-5


def test_riflex_follows_the_frames() -> None:
    model, inputs = built(tiny.wan)
    before = output(model, inputs)
    assert torch.equal(output(attach(model, riflex(1, repeats_at=3)), inputs), output(attach(model), inputs))
    assert gap(output(attach(model, riflex(1, repeats_at=2)), inputs), before) > 1e-6


FOLLOWED = [make for make in MODELS if make not in (tiny.minimax_h3, tiny.cosmos, tiny.mochi, tiny.ideogram_4, *OFF)]


@pytest.mark.parametrize("make", FOLLOWED, ids=lambda make: make.__name__)
def test_dype_follows_the_timestep_of_each_call(make: Make) -> None:
    model, inputs = built(make)
    attach(model, lambda sizes, noise: [PositionInterpolation(1 + noise)] * len(sizes))
    attached, name = attached_to(model)[0], attached_to(model)[0].kind.timestep
    at_half = output(model, inputs)
    assert attached.timestep == pytest.approx(0.5 if float(inputs[name].max()) != 5 else 0.005)
    noise = cast(float, attached.timestep)
    attach(model, [PositionInterpolation(1 + noise)] * cast(AxialRoPE, attached._plain).axes)
    assert gap(output(model, inputs), at_half) < 1e-6
    attach(model, [PositionInterpolation(1 + noise / 2)] * cast(AxialRoPE, attached._plain).axes)
    assert gap(output(model, inputs), at_half) > 1e-6


@pytest.mark.parametrize("make", FOLLOWED, ids=lambda make: make.__name__)
def test_all_tables_of_one_call_have_the_same_scaling(make: Make) -> None:
    """Where a model asks for several tables, of the text, the picture and its history, they follow the whole call."""
    model, inputs = built(make)
    followed_sizes: list[tuple[int, ...]] = []

    def follow(sizes: tuple[int, ...]) -> None:
        followed_sizes.append(sizes)

    output(attach(model, follow), inputs)
    assert len(set(followed_sizes)) == 1
    rows_and_columns = {
        tiny.framepack: (11, 4, 8), tiny.flux_2: (1, 4, 5, 3), tiny.flux_3: (1, 4, 5, 3), tiny.z_image: (34, 4, 5),
        tiny.lumina_2: (5, 4, 5), tiny.qwen_image_layered: (3, 3, 3), tiny.qwen_image_2_1: (2, 4, 6),
    }  # fmt: skip
    assert followed_sizes[0] == rows_and_columns.get(make, followed_sizes[0])


@pytest.mark.parametrize("make", [tiny.wan, tiny.flux_3, tiny.cogvideox])
def test_a_copy_of_the_model_has_tables_and_hooks_of_its_own(make: Make) -> None:
    model, inputs = built(make)
    before = output(model, inputs)
    attach(model, lambda sizes, noise: [PositionInterpolation(1 + noise)] * len(sizes))
    scaled = output(model, inputs)
    copied = copy.deepcopy(model)
    detach(model)
    assert torch.equal(output(copied, inputs), scaled)
    assert torch.equal(output(detach(copied), inputs), before)
    assert not copied._forward_pre_hooks


def test_a_compiled_model_is_compiled_once_whatever_the_timestep() -> None:
    model, inputs = built(tiny.flux)
    attach(model, dype(2, method="ntk"))
    levels = [torch.tensor([level]) for level in (0.9, 0.5, 0.2)]
    expected = [output(model, {**inputs, "timestep": level}) for level in levels]
    assert gap(expected[0], expected[2]) > 1e-6
    counter = CompileCounter()
    compiled = torch.compile(model, backend=counter)
    compilations = []
    for level, right in zip(levels, expected, strict=True):
        assert gap(output(compiled, {**inputs, "timestep": level}), right) < 1e-6
        compilations.append(counter.frame_count)
    assert len(set(compilations)) == 1
    torch._dynamo.reset()


def test_tables_are_computed_once_for_all_layers_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = built(tiny.flux)  # a layer of two streams and one of a single stream
    attach(model)
    calls = []
    computed = AxialRoPE.table
    monkeypatch.setattr(AxialRoPE, "table", lambda *inputs, **options: calls.append(1) or computed(*inputs, **options))
    output(model, inputs)
    assert len(calls) == 1


def test_what_casts_the_model_casts_its_own_module_too() -> None:
    model, _ = built(tiny.wan)
    untouched, _ = built(tiny.wan)
    detach(attach(model).to(torch.bfloat16))
    assert torch.equal(cast(Any, model).rope.freqs_cos, untouched.to(torch.bfloat16).rope.freqs_cos)  # type: ignore[union-attr]


def test_attached_positions_reach_beyond_the_models_table() -> None:
    model, inputs = built(tiny.lumina_2)
    wide = {**inputs, "hidden_states": torch.randn(2, 4, 8, 40)}  # 20 columns, where axes_lens ends at 16
    with pytest.raises(RuntimeError, match="out of bounds"):
        output(model, wide)
    assert output(attach(model), wide).isfinite().all()


def test_periods_are_those_of_the_models() -> None:
    assert identify_k(44, 10_000.0, 51) == (6, 51)  # Wan
    assert identify_k(16, 256.0, 50) == (4, 50)  # HunyuanVideo
    assert identify_k(16, 10_000.0, 20) == (2, 20)  # CogVideoX-5B


def test_what_is_refused() -> None:
    assert len(KNOWN) == 34
    with pytest.raises(ValueError, match="transformer must have one of FluxPosEmbed"):
        attach(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="transformer must have one of FluxPosEmbed"):
        detach(nn.Linear(2, 2))
    model, inputs = built(tiny.wan)
    with pytest.raises(ValueError, match="one or None for each of 3"):
        attach(model, (None, None))
    assert not isinstance(model.rope, AttachedPositions)
    sums, _ = built(lambda: (diffusers.CogVideoXTransformer3DModel(
        num_attention_heads=2, attention_head_dim=16, num_layers=1, text_embed_dim=8), {}))  # fmt: skip
    with pytest.raises(ValueError, match="CogVideoX-2B"):
        attach(sums)
    measured, _ = built(tiny.ltx)
    with pytest.raises(ValueError, match="whose frequencies are learned or grow"):
        attach(measured, (YaRN(2.0, original_length=8), None, None))
    with pytest.raises(ValueError, match="its timestep is no noise level"):
        attach(built(tiny.cosmos)[0], dype())
    with pytest.raises(ValueError, match="one Scaling for Ideogram4MRoPE"):
        attach(built(tiny.ideogram_4)[0], riflex(1, repeats_at=2))
    two_pictures, inputs_of_two = built(tiny.nucleus_image)
    with pytest.raises(ValueError, match="one picture"):
        output(attach(two_pictures), {**inputs_of_two, "img_shapes": [[(1, 2, 5), (1, 2, 5)]]})
    attach(model, dype(2))
    with pytest.raises(ValueError, match="same for all rows"):
        output(model, {**inputs, "hidden_states": torch.randn(2, 4, 3, 8, 10), "timestep": torch.tensor([5, 6])})
    for call in (lambda: dype(0), lambda: dype(method="pi"), lambda: riflex(0, repeats_at=5)):  # type: ignore[arg-type]
        with pytest.raises(ValueError):
            call()


def test_explain_says_of_each_class_whether_it_can_be_attached_to() -> None:
    attachable = {type(built(make)[0]).__name__ for make in MODELS}
    # of the modules of FluxTransformer2DModel and of WanTransformer3DModel
    attachable |= {"ChromaTransformer2DModel", "WanAnimateTransformer3DModel"}
    assert {name for name, family in DIFFUSION.items() if family.attaches} == attachable
