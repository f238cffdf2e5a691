"""posenc's tables in tiny models of diffusers: the same outputs where nothing is scaled, the named axes scaled."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

from posenc import AxialRoPE, NTKAware, PositionInterpolation, YaRN
from posenc.diffusion import MODELS as RECORDS
from posenc.diffusion import AttachedPositions, attach, detach, dype, riflex
from posenc.diffusion.models import TRANSFORMERS, Model
from posenc.frequencies import DyPE
from tests.samples import gap

pytestmark = pytest.mark.reference
diffusers = pytest.importorskip("diffusers")

from tests.reference import tiny_diffusers as tiny  # noqa: E402
from tests.reference.tiny_diffusers import MODELS, Make, built, output  # noqa: E402

HALF = PositionInterpolation(2.0)
EVERY = pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)


# whose own angles are float32 of large numbers: of seconds and pixels times up to 15,700, or times learned numbers
OFF: dict[Make, float] = {
    tiny.ltx: 2e-5, tiny.ltx_2: 5e-4, tiny.ltx_2_split: 5e-4, tiny.sana_wm_refiner: 5e-4, tiny.sana_wm: 2e-5,
}  # fmt: skip


def attached_to(model: nn.Module) -> list[AttachedPositions]:
    return [module for module in model.children() if isinstance(module, AttachedPositions)]


def record_of(model: nn.Module) -> Model:
    if not attached_to(model):
        attach(model)
    return attached_to(model)[0].model


def halved(model: nn.Module) -> Any:
    """The axes that may be scaled, at half their coordinates."""
    record = record_of(model)
    return HALF if record.scales == "pairs" else dict.fromkeys(record.scaled(), HALF)


def through_posenc(model: nn.Module) -> None:
    """Every table by posenc, though nothing is scaled."""
    for attached in attached_to(model):
        attached.__class__ = Always


class Always(AttachedPositions):
    def _tables(self, *inputs: Any, **options: Any) -> Any:
        of_divided = {} if self._divisors is None else {"divisors": self._divisors}
        tokens = self.kind.tokens(self.replaced, *inputs, **options, **of_divided)
        cos, sin = self._table(tokens, self._scaled_rotation(tokens))
        return self.kind.table(cos, sin, tokens, self.replaced)

    _tables_of_call = _tables


@EVERY
def test_where_nothing_is_scaled_outputs_are_the_same_bit_for_bit(make: Make) -> None:
    model, inputs = built(make)
    before, keys = output(model, inputs), list(model.state_dict())
    assert attach(model) is model
    assert torch.equal(output(model, inputs), before)
    assert list(model.state_dict()) == keys
    record = record_of(model)
    same = PositionInterpolation(1.0)
    attach(model, same if record.scales == "pairs" else dict.fromkeys(record.scaled(), same))
    assert torch.equal(output(model, inputs), before)
    if record.scales == "axes":
        attach(model, lambda sizes: {})
        assert torch.equal(output(model, inputs), before)
        if "frames" in record.scaled():
            attach(model, riflex(1, repeats_at=100))
            assert torch.equal(output(model, inputs), before)
        if record.noise is not None and {"rows", "columns"} <= set(record.scaled()):
            attach(model, dype(64, method="yarn" if record.takes_gain else "ntk"))
            assert torch.equal(output(model, inputs), before)
    assert torch.equal(output(detach(model), inputs), before)
    assert torch.equal(output(detach(model), inputs), before)
    assert not model._forward_pre_hooks
    assert not attached_to(model)


@EVERY
def test_the_tables_of_posenc_give_the_same_outputs(make: Make) -> None:
    model, inputs = built(make)
    before = output(model, inputs)
    through_posenc(attach(model))
    assert gap(output(model, inputs), before) < OFF.get(make, 3e-6)


@EVERY
def test_each_scaling_changes_the_axes_that_it_names_and_the_others_are_refused(make: Make) -> None:
    model, inputs = built(make)
    before = output(model, inputs)
    record = record_of(model)
    if record.scales == "pairs":
        assert gap(output(attach(model, HALF), inputs), before) > 1e-5
        with pytest.raises(ValueError, match="share their frequencies"):
            attach(model, {"rows": HALF})
        return
    outputs = []
    for axis in record.axes:
        if axis.kept:
            with pytest.raises(ValueError, match=f"must not act on axis {axis.name!r}"):
                attach(model, {axis.name: HALF})
            continue
        outputs.append(output(attach(model, {axis.name: HALF}), inputs))
        assert gap(outputs[-1], before) > 1e-6, axis.name
    for number, each in enumerate(outputs):
        assert all(gap(each, other) > 1e-6 for other in outputs[:number])
    attach(detach(model))
    assert torch.equal(output(model, inputs), before)
    if any(axis.kept for axis in record.axes):
        with pytest.raises(ValueError, match="must name its axes"):
            attach(model, HALF)


@EVERY
def test_a_scaled_axis_is_rotated_by_its_scaled_frequencies_and_the_others_by_their_own(make: Make) -> None:
    """The table under a scaling of one axis is the plain table of coordinates halved on that axis alone."""
    model, inputs = built(make)
    record = record_of(model)
    if record.scales != "axes" or not record.scaled():
        return
    seen: list[tuple[Any, Any]] = []
    for number, axis in enumerate(record.axes):
        if axis.kept:
            continue
        attach(model, {axis.name: HALF})
        attached = attached_to(model)[0]
        attached._table = lambda tokens, scaled, own=attached._table: (  # type: ignore[method-assign, misc]
            seen.append((tokens, own(tokens, scaled))) or seen[-1][1]
        )
        output(model, inputs)
        (tokens, table), plain = seen[-1], cast(AxialRoPE, attached._plain)
        by = torch.ones(len(record.axes), dtype=torch.float64)
        by[number] = 2
        expected = plain.table(tokens.positions.double() / by)
        here = slice(None) if tokens.scaled is None else tokens.scaled
        for part, right in zip(table, expected, strict=True):
            assert gap(part[..., here, :], right[..., here, :]) < 1e-5
        if tokens.scaled is not None:
            own = plain.table(tokens.positions)
            assert gap(table[0][~here], own[0][~here]) < 1e-6


@EVERY
def test_the_model_rotates_by_the_attached_tables(make: Make) -> None:
    """A table of ones and zeros gives another output: what is attached is what the model rotates by."""
    model, inputs = built(make)
    through_posenc(attach(model))
    before = output(model, inputs)
    for attached in attached_to(model):
        attached._table = lambda tokens, scaled, table=attached._table: tuple(  # type: ignore[method-assign, misc]
            torch.full_like(part, value) for part, value in zip(table(tokens, scaled), (1, 0), strict=True)
        )
    assert gap(output(model, inputs), before) > 1e-5


PICTURES = [
    make for make in MODELS if make in (
        tiny.flux, tiny.flux_2, tiny.flux_3, tiny.krea_2, tiny.qwen_image, tiny.hunyuan_image, tiny.glm_image,
        tiny.z_image, tiny.lumina_2, tiny.prx, tiny.hidream, tiny.bria, tiny.joyimage, tiny.lumina_next,
    )
]  # fmt: skip


@pytest.mark.parametrize("make", PICTURES, ids=lambda make: make.__name__)
def test_dype_scales_rows_and_columns_by_their_names(make: Make) -> None:
    """Of a picture of 4 x 5 patches: trained at 4, the columns alone; trained at 3, both."""
    model, inputs = built(make)
    before = output(model, inputs)
    assert torch.equal(output(attach(model, dype(5, method="ntk")), inputs), before)
    columns = output(attach(model, dype(4, method="ntk")), inputs)
    assert gap(columns, before) > 1e-7
    level = cast(float, attached_to(model)[0].timestep)
    step = DyPE(5, original_length=4, timestep=level, method="ntk")
    assert gap(output(attach(model, {"columns": step}), inputs), columns) < 1e-6
    both = output(attach(model, dype(3, method="ntk")), inputs)
    of_both = {
        name: DyPE(size, original_length=3, timestep=level, method="ntk")
        for name, size in (("rows", 4), ("columns", 5))
    }
    assert gap(output(attach(model, of_both), inputs), both) < 1e-6
    assert gap(both, columns) > 1e-7


def test_dype_and_riflex_refuse_models_whose_axes_they_do_not_suit() -> None:
    for make in (tiny.cogview_4, tiny.hunyuan_dit, tiny.cogvideox, tiny.easyanimate):
        with pytest.raises(ValueError, match="spread over the trained grid"):
            attach(built(make)[0], dype())
    for make in (tiny.hunyuan_image, tiny.z_image, tiny.flux, tiny.glm_image, tiny.lumina_2, tiny.prx):
        with pytest.raises(ValueError, match=r"has no axis 'frames'.*what suits it: dype\(\)"):
            attach(built(make)[0], riflex(4, repeats_at=50))
    with pytest.raises(ValueError, match="'frames' of Kandinsky6"):
        attach(built(tiny.kandinsky_6)[0], riflex(4, repeats_at=50))
    with pytest.raises(ValueError, match="its timestep is no noise level"):
        attach(built(tiny.cosmos)[0], dype())
    with pytest.raises(ValueError, match=r"PositionInterpolation\(2.0\)"):
        attach(built(tiny.ltx)[0], riflex(4, repeats_at=50))
    flux, _ = built(tiny.flux)
    with pytest.raises(ValueError, match="must name its axes"):
        attach(flux, YaRN(2.0, original_length=64))
    with pytest.raises(ValueError, match="must not act on axis 'none'"):
        attach(flux, (HALF, HALF, HALF))
    with pytest.raises(ValueError, match="has no axis 'row'"):
        attach(flux, {"row": HALF})  # type: ignore[dict-item]
    assert not attached_to(flux)
    with pytest.raises(ValueError, match="no gain"):
        attach(built(tiny.ernie_image)[0], {"rows": YaRN(2.0, original_length=4)})
    with pytest.raises(ValueError, match="no gain"):
        attach(built(tiny.ernie_image)[0], dype(3))


def test_scalings_of_halved_coordinates_count_patches() -> None:
    """FLUX.3 has half a coordinate a patch: a picture of 4 x 5 patches is no larger than 5."""
    model, inputs = built(tiny.flux_3)
    sizes: list[dict[str, int]] = []
    output(attach(model, lambda by_name: sizes.append(by_name)), inputs)
    assert sizes[0]["rows"] == 4
    assert sizes[0]["columns"] == 5
    before = output(detach(model), inputs)
    assert gap(output(attach(model, dype(3)), inputs), before) > 1e-5
    attach(model, {"columns": DyPE(8, original_length=4, method="ntk")})
    attached = attached_to(model)[0]
    plain = cast(AxialRoPE, attached._plain)
    patches = torch.tensor([[0.0, 0, 1.5, 0]])
    by_patch = AxialRoPE(4, axes_dims=(4,), base=10_000.0, scaling=(DyPE(8, original_length=4, method="ntk"),))
    assert plain.axes_dims == (4, 4, 4, 4)
    ntk = cast(AxialRoPE, attached._fixed).table(patches)[0][0, 4:6]
    assert gap(ntk, by_patch.table(torch.tensor([1.5]))[0][0]) < 1e-6  # NTK scales frequencies of patches alike


@pytest.mark.parametrize("name", ["QwenEmbedRope", "QwenEmbedLayer3DRope"])
def test_qwen_counts_from_the_corner_without_scale_rope(name: str) -> None:
    from diffusers.models.transformers import transformer_qwenimage as qwen

    own = getattr(qwen, name)(10_000, [8, 4, 4], scale_rope=False)
    shapes = [[(1, 5, 3), (1, 2, 4), (1, 3, 3)]]
    calls: Any = {"device": torch.device("cpu"), "max_txt_seq_len": 3}
    expected = own(shapes, **calls)
    model, _ = built(tiny.qwen_image)
    cast(Any, model).pos_embed = own
    through_posenc(attach(model))
    ours = cast(Any, model).pos_embed(shapes, **calls)
    for table, right in zip(ours, expected, strict=True):
        assert gap(table, right) < 1e-5


@pytest.mark.parametrize("make", [tiny.ltx_2, tiny.ltx_2_split])
def test_seconds_of_ltx_2_are_divided_for_video_and_sound_alike(make: Make) -> None:
    model, inputs = built(make)
    rope = cast(Any, model)
    video = rope.rope.prepare_video_coords(2, 2, 3, 4, torch.device("cpu"), fps=24.0)
    sound = rope.audio_rope.prepare_audio_coords(2, 5, torch.device("cpu"))
    slower = video / torch.tensor([2.0, 1.0, 1.0])[:, None, None]
    expected = output(model, {**inputs, "video_coords": slower, "audio_coords": sound / 2})
    attach(model, {"frames": HALF})
    assert len(attached_to(model)) == 4
    assert gap(output(model, inputs), expected) < OFF[make]


FOLLOWED = [
    make for make in MODELS
    if make not in (tiny.cosmos, tiny.cosmos_3, tiny.mochi, tiny.ideogram_4, tiny.omnigen, *OFF)
]  # fmt: skip


@pytest.mark.parametrize("make", FOLLOWED, ids=lambda make: make.__name__)
def test_scalings_follow_the_sizes_and_the_timestep_of_each_call(make: Make) -> None:
    """All tables of one call, of the text, the picture and its history, follow the whole call."""
    model, inputs = built(make)
    record = record_of(model)
    sizes: list[dict[str, int]] = []

    def follow(by_name: dict[str, int]) -> None:
        sizes.append(by_name)

    output(attach(model, follow), inputs)
    assert all(each == sizes[0] for each in sizes)
    assert list(sizes[0]) == [axis.name for axis in record.axes]
    expected = {
        tiny.framepack: (11, 4, 8), tiny.flux_2: (1, 4, 5, 3), tiny.flux_3: (1, 4, 5, 3), tiny.z_image: (34, 4, 5),
        tiny.lumina_2: (5, 4, 5), tiny.qwen_image_layered: (3, 3, 3), tiny.qwen_image_2_1: (2, 4, 6),
        tiny.helios: (11, 8, 8), tiny.joyimage_plus: (1, 4, 5), tiny.bria_fibo_2: (2, 4, 5), tiny.hidream: (1, 4, 5),
        tiny.wan: (3, 4, 5), tiny.hunyuan_image: (4, 5), tiny.anyflow: (3, 4, 5), tiny.anyflow_far: (3, 8, 12),
        tiny.wan_animate_2: (3, 4, 5), tiny.allegro: (3, 4, 5), tiny.joyimage: (2, 4, 5),
    }  # fmt: skip
    if make in expected:
        assert tuple(sizes[0].values()) == expected[make]
    if record.noise is None or not record.scaled():
        return

    def of_noise(by_name: dict[str, int], noise: float) -> Any:
        return {name: PositionInterpolation(1 + noise) for name in record.scaled()}

    attach(model, of_noise)
    at_half = output(model, inputs)
    noise = cast(float, attached_to(model)[0].timestep)
    assert noise == pytest.approx(0.5 if float(inputs[record.timestep].max()) != 5 else 0.005)
    attach(model, dict.fromkeys(record.scaled(), PositionInterpolation(1 + noise)))
    assert gap(output(model, inputs), at_half) < 1e-6
    attach(model, dict.fromkeys(record.scaled(), PositionInterpolation(1 + noise / 2)))
    assert gap(output(model, inputs), at_half) > 1e-7


def test_of_timesteps_for_each_token_the_largest_is_the_noise_level() -> None:
    """Wan 2.2 of pictures and text: the given frame is clean, at timestep 0."""
    model, inputs = built(tiny.wan)
    attach(model, dype(2))
    by_token = {**inputs, "timestep": torch.tensor([[0.0] * 20 + [500.0] * 40])}
    output(model, by_token)
    assert attached_to(model)[0].timestep == 0.5
    two_rows = {**inputs, "hidden_states": torch.randn(2, 4, 3, 8, 10), "timestep": torch.tensor([5, 6])}
    with pytest.raises(ValueError, match="same for all rows"):
        output(model, two_rows)


def test_ids_that_cannot_tell_neighbours_apart_are_warned_of() -> None:
    model, inputs = built(tiny.flux_2)
    many = {**inputs, "encoder_hidden_states": torch.randn(1, 512, 32), "txt_ids": tiny.grid_ids(1, 1, 1, 512)[None]}
    coarse = {**many, "txt_ids": many["txt_ids"].bfloat16(), "img_ids": many["img_ids"].bfloat16()}
    for scaling in (None, dype(3)):
        attach(model, scaling)
        with pytest.warns(UserWarning, match="bfloat16, which holds whole numbers up to 256"):
            output(model, coarse)
        attach(model, scaling)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            output(model, many)
            output(model, {**inputs, "img_ids": inputs["img_ids"].bfloat16()})  # up to 256 every number is exact


@pytest.mark.parametrize("make", [tiny.wan, tiny.flux_3, tiny.cogvideox, tiny.wan_animate_2, tiny.joyimage])
def test_a_copy_of_the_model_has_tables_and_hooks_of_its_own(make: Make) -> None:
    model, inputs = built(make)
    before = output(model, inputs)
    record = record_of(model)
    attach(model, lambda sizes, noise: dict.fromkeys(record.scaled(), PositionInterpolation(1 + noise)))
    scaled = output(model, inputs)
    copied = copy.deepcopy(model)
    detach(model)
    assert torch.equal(output(copied, inputs), scaled)
    assert torch.equal(output(detach(copied), inputs), before)
    assert not copied._forward_pre_hooks


@EVERY
def test_an_attached_model_is_saved_whole(make: Make) -> None:
    model, inputs = built(make)
    if "<locals>" in type(model).__qualname__:  # which no file can name
        return
    record = record_of(model)
    scaling: Any = halved(model)
    if record.scales == "axes" and record.noise is not None and {"rows", "columns"} <= set(record.scaled()):
        scaling = dype(3, method="ntk")
    elif record.scales == "axes" and "frames" in record.scaled():
        scaling = riflex(1, repeats_at=1)
    scaled = output(attach(model, scaling), inputs)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    restored = torch.load(file, weights_only=False)
    assert torch.equal(output(restored, inputs), scaled)
    assert torch.equal(output(detach(restored), inputs), output(detach(model), inputs))
    assert pickle.loads(pickle.dumps(dype())) == dype()


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


def test_a_fixed_scaling_stays_in_one_graph() -> None:
    model, inputs = built(tiny.wan)
    expected = output(attach(model, {"frames": HALF}), inputs)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert gap(output(compiled, inputs), expected) < 1e-6
    torch._dynamo.reset()


def test_tables_are_computed_once_for_all_layers_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = built(tiny.flux)  # a layer of two streams and one of a single stream
    attach(model, {"rows": HALF})
    calls = []
    computed = AxialRoPE.table
    monkeypatch.setattr(AxialRoPE, "table", lambda *inputs, **options: calls.append(1) or computed(*inputs, **options))
    output(model, inputs)
    assert len(calls) == 1


def test_what_casts_the_model_casts_its_own_module_too() -> None:
    model, inputs = built(tiny.wan)
    untouched, _ = built(tiny.wan)
    half = {name: value.bfloat16() if value.is_floating_point() else value for name, value in inputs.items()}
    attach(model).to(torch.bfloat16)
    assert torch.equal(output(model, half), output(untouched.to(torch.bfloat16), half))
    assert torch.equal(cast(Any, detach(model)).rope.freqs_cos, cast(Any, untouched).rope.freqs_cos)


def test_attached_positions_reach_beyond_the_models_table() -> None:
    model, inputs = built(tiny.lumina_2)
    wide = {**inputs, "hidden_states": torch.randn(2, 4, 8, 40)}  # 20 columns, where axes_lens ends at 16
    with pytest.raises(RuntimeError, match="out of bounds"):
        output(model, wide)
    assert output(attach(model), wide).isfinite().all()
    wan, inputs = built(tiny.wan)
    long = {**inputs, "hidden_states": torch.randn(1, 4, 1025, 2, 2)}
    with pytest.raises(RuntimeError):
        output(wan, long)
    assert output(attach(wan), long).isfinite().all()


def test_wrappers_are_understood_or_refused_with_what_to_pass() -> None:
    peft = pytest.importorskip("peft")
    model, inputs = built(tiny.flux)
    before = output(model, inputs)
    wrapped = peft.get_peft_model(model, peft.LoraConfig(target_modules=["to_q"], r=2, init_lora_weights=False))
    with_lora = output(wrapped, inputs)
    assert gap(with_lora, before) > 1e-6
    assert attach(wrapped, {"rows": HALF}) is wrapped
    assert gap(output(wrapped, inputs), with_lora) > 1e-6
    assert torch.equal(output(detach(wrapped), inputs), with_lora)
    compiled = torch.compile(built(tiny.wan)[0], backend="eager")
    attach(compiled, {"frames": HALF})
    assert attached_to(compiled._orig_mod)
    pipeline = SimpleNamespace(transformer=built(tiny.wan)[0], transformer_2=built(tiny.wan)[0], vae=nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"attach\(pipeline.transformer, …\); attach\(pipeline.transformer_2, …\)"):
        attach(cast(Any, pipeline))
    with pytest.raises(ValueError, match=r"call it, dype\(\)"):
        attach(built(tiny.flux)[0], dype)
    with pytest.raises(ValueError, match="got the class YaRN itself"):
        attach(built(tiny.flux)[0], cast(Any, YaRN))
    sd3 = diffusers.SD3Transformer2DModel(
        num_layers=1, attention_head_dim=8, num_attention_heads=2, sample_size=8, pos_embed_max_size=8,
        joint_attention_dim=8, caption_projection_dim=16, pooled_projection_dim=8,
    )  # fmt: skip
    with pytest.raises(ValueError, match="adds a sinusoidal embedding"):
        attach(sd3)


def test_lora_added_to_an_attached_model_and_a_compiled_block() -> None:
    peft = pytest.importorskip("peft")
    model, inputs = built(tiny.flux)
    before = output(attach(model, {"rows": HALF}), inputs)
    cast(Any, model).add_adapter(peft.LoraConfig(target_modules=["to_q"], r=2, init_lora_weights=False))
    assert gap(output(model, inputs), before) > 1e-6
    model, inputs = built(tiny.wan)
    expected = output(attach(model, {"frames": HALF}), inputs)
    cast(Any, model).compile_repeated_blocks(fullgraph=True, backend="eager")
    assert gap(output(model, inputs), expected) < 1e-6
    torch._dynamo.reset()


def test_under_autocast_tables_stay_in_float32() -> None:
    model, inputs = built(tiny.flux)
    tables: list[Tensor] = []
    attach(model, {"rows": HALF})
    attached_to(model)[0].register_forward_hook(lambda module, given, out: tables.extend(out))
    with torch.autocast("cpu", torch.bfloat16):
        output(model, inputs)
    expected = list(tables)
    tables.clear()
    output(model, inputs)
    assert all(torch.equal(a, b) and a.dtype == torch.float32 for a, b in zip(tables, expected, strict=True))


CONTROLNETS = {
    "FluxControlNetModel": lambda: diffusers.FluxControlNetModel(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=0, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=[4, 6, 6],
    ),
    "QwenImageControlNetModel": lambda: diffusers.QwenImageControlNetModel(
        in_channels=16, out_channels=4, num_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=16, axes_dims_rope=(8, 4, 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTROLNETS)
def test_controlnets_are_attached_like_their_transformers(name: str) -> None:
    controlnet = CONTROLNETS[name]()
    make = tiny.flux if name.startswith("Flux") else tiny.qwen_image
    _, inputs = built(make)
    control = torch.randn_like(inputs["hidden_states"])
    for parameter in controlnet.parameters():
        nn.init.normal_(parameter, std=0.1)

    def first() -> Tensor:
        with torch.no_grad():
            return cast(Tensor, controlnet(**inputs, controlnet_cond=control, return_dict=False)[0][0])

    before = first()
    attach(controlnet)
    assert torch.equal(first(), before)
    attach(controlnet, {"rows": HALF})
    assert gap(first(), before) > 1e-6
    detach(controlnet)
    assert torch.equal(first(), before)


def test_of_several_controlnets_each_is_attached_to() -> None:
    several = diffusers.FluxMultiControlNetModel([CONTROLNETS["FluxControlNetModel"]() for _ in range(2)])
    with pytest.raises(ValueError, match=r"attach\(controlnet.nets\[0\], …\); attach\(controlnet.nets\[1\], …\)"):
        attach(several)


class Unknown(nn.Module):
    """A transformer of somebody else: a module of positions of an unknown class, and one rotation by its tables."""

    def __init__(self, make: Make, place: str) -> None:
        super().__init__()
        model, self.inputs = built(make)
        own = getattr(model, place)
        self.rope = type("SomebodysRope", (nn.Module,), {"forward": lambda _, *given: own(*given)})()

    def forward(self, given: Tensor) -> Any:
        return self.rope(given)


@pytest.mark.parametrize(
    ("make", "place", "given", "axes", "base"),
    [
        (tiny.flux, "pos_embed", torch.rand(6, 3) * 9, {"none": 4, "rows": 6, "columns": 6}, 1e4),
        (tiny.hidream, "pe_embedder", torch.rand(1, 6, 3) * 9, {"none": 8, "rows": 4, "columns": 4}, 1e4),
        (tiny.glm_image, "rope", torch.zeros(1, 4, 4, 5), {"rows": 4, "columns": 4}, 1e4),
        (tiny.hunyuan_image, "rope", torch.zeros(1, 4, 4, 5), {"rows": 8, "columns": 8}, 256.0),
    ],
)
def test_a_class_that_is_not_known_is_attached_by_what_its_user_says(
    make: Make, place: str, given: Tensor, axes: Any, base: float
) -> None:
    model = Unknown(make, place)
    if make is tiny.glm_image:
        model.rope.patch_size = 2
        given = torch.zeros(1, 4, 8, 10)
    own = model(given)
    tables = list(own) if not isinstance(own, Tensor) else [own]
    attach(model, place="rope", axes=axes, base=base)
    same = model(given)
    assert all(torch.equal(a, b) for a, b in zip([same] if isinstance(same, Tensor) else same, tables, strict=True))
    attach(model, {"rows": HALF}, place="rope", axes=axes, base=base)
    scaled = model(given)
    scaled = [scaled] if isinstance(scaled, Tensor) else scaled
    assert all(a.shape == b.shape and gap(a, b) > 1e-3 for a, b in zip(scaled, tables, strict=True))
    if given.shape[-1] == 3:  # coordinates: the scaled table is the model's own of halved rows
        halved_rows = given / torch.tensor([1.0, 2.0, 1.0])
        detach(model)
        right = model(halved_rows)
        right = [right] if isinstance(right, Tensor) else right
        assert all(gap(a, b) < 1e-5 for a, b in zip(scaled, right, strict=True))
        attach(model, place="rope", axes=axes, base=base)
    attach(model, {"rows": HALF}, place="rope", axes=axes, base=base / 2)
    with pytest.raises(ValueError, match="axes and base must be those of"):
        model(given)
    assert detach(model).rope is not None
    with pytest.raises(ValueError, match="give place and axes"):
        attach(model, place="rope")
    with pytest.raises(ValueError, match="is not known; attach"):
        attach(model)
    with pytest.raises(ValueError, match="among"):
        attach(model, place="rope", axes={"height": 4})


def test_what_is_refused() -> None:
    for call in (attach, detach):
        with pytest.raises(ValueError, match="Linear is not known"):
            call(nn.Linear(2, 2))
    model, _ = built(tiny.wan)
    with pytest.raises(ValueError, match="one or None for each of 3"):
        attach(model, (None, None))
    assert not isinstance(model.rope, AttachedPositions)
    sums, _ = built(lambda: (diffusers.CogVideoXTransformer3DModel(
        num_attention_heads=2, attention_head_dim=16, num_layers=1, text_embed_dim=8), {}))  # fmt: skip
    with pytest.raises(ValueError, match="adds a sinusoidal embedding"):
        attach(sums)
    measured, _ = built(tiny.ltx)
    with pytest.raises(ValueError, match="whose frequencies are learned or grow"):
        attach(measured, (YaRN(2.0, original_length=8), None, None))
    with pytest.raises(ValueError, match="one Scaling for Ideogram4"):
        attach(built(tiny.ideogram_4)[0], {"rows": NTKAware(2.0)})
    two_pictures, inputs_of_two = built(tiny.nucleus_image)
    attach(two_pictures, {"rows": HALF})
    with pytest.raises(ValueError, match="one picture"):
        output(two_pictures, {**inputs_of_two, "img_shapes": [[(1, 2, 5), (1, 2, 5)]]})
    for call_ in (lambda: dype(0), lambda: dype(method="pi"), lambda: riflex(0, repeats_at=5)):  # type: ignore[arg-type]
        with pytest.raises(ValueError):
            call_()


def test_every_class_that_a_record_names_is_tried_here() -> None:
    tried = {TRANSFORMERS_OF.get(type(built(make)[0]).__name__, type(built(make)[0]).__name__) for make in MODELS}
    # of the modules of FluxTransformer2DModel and of WanTransformer3DModel
    tried |= {"ChromaTransformer2DModel", "WanAnimateTransformer3DModel", "WanVACETransformer3DModel"}
    tried |= {"SanaVideoTransformer3DModel"}
    added = {name for name, title in TRANSFORMERS.items() if RECORDS[title].transformers[name].adds({
        "use_rotary_positional_embeddings": True})}  # fmt: skip
    controlnets = {name for name in TRANSFORMERS if "ControlNet" in name}
    assert set(TRANSFORMERS) - added - controlnets == tried


TRANSFORMERS_OF = {"Refiner": "SanaWMLTX2RefinerTransformer3DModel"}
