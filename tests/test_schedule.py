"""Schedules over layers: what a text means, what a pattern is shortened to, which instances layers share."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from posenc import ALiBi, ForgetGate, RoPE, encoding_info
from posenc.lab.decoder import Decoder
from posenc.lab.specs import Shape, build_encodings, check_specs
from posenc.schedule import LayerKind, Schedule
from tests.samples import gap


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("rope", ["rope"] * 5), ("nope", ["nope"] * 5), ("rope/nope:4", ["rope", "rope", "rope", "nope", "rope"]),
        ("rope+alibi@64/nope:2", ["rope+alibi@64", "nope", "rope+alibi@64", "nope", "rope+alibi@64"]),
        ("rope@8/rope:2/nope:4", ["rope@8", "rope", "rope@8", "nope", "rope@8"]),
        ("yarn + Resonance@8/nope:2", ["yarn+Resonance@8", "nope"] * 2 + ["yarn+Resonance@8"]),
        ("mine:Own/nope:2", ["mine:Own", "nope", "mine:Own", "nope", "mine:Own"]),
    ],
)  # fmt: skip
def test_texts(text: str, layers: list[str]) -> None:
    assert [str(kind) for kind in Schedule.parse(text).layers(5)] == layers
    assert Schedule.parse(text) == Schedule(Schedule.parse(text).layers(4 * len(layers) + 4)[:4])


@settings(max_examples=50)
@given(st.lists(st.sampled_from(["rope", "nope", "alibi@4", "rope@16"]), min_size=1, max_size=6))
def test_a_pattern_is_as_short_as_it_can_be_and_says_what_it_is(pattern: list[str]) -> None:
    schedule = Schedule(pattern)
    assert [str(kind) for kind in schedule.layers(12)] == (pattern * 12)[:12]
    assert schedule == Schedule(pattern * 3)
    assert hash(schedule) == hash(Schedule(pattern * 2))
    assert eval(repr(schedule).replace("Schedule('", "Schedule.parse('"), {"Schedule": Schedule}) == schedule


def test_the_same_instance_serves_the_layers_that_share_it() -> None:
    built = Schedule.parse("rope+fox@32/alibi:2").build(4, dim=64, num_heads=4)
    assert [[type(e) for e in encodings] for encodings, _ in built] == [[RoPE, ForgetGate], [ALiBi]] * 2
    assert [window for _, window in built] == [32, None, 32, None]
    (first, gates), _, (third, rest) = (encodings for encodings, _ in built[:3])
    assert first is third
    assert gates is not rest
    assert Schedule.parse("rope/nope:2").kinds(4) == {LayerKind(("rope",)): [0, 2], LayerKind(): [1, 3]}


def test_joined_scalings_act_on_one_rotation_of_a_layer() -> None:
    """Two rotations in place of one would turn queries and keys twice."""
    built = Schedule.parse("yarn+resonance+alibi@32").build(2, head_dim=8, num_heads=4, train_length=64)
    (rope, _), (again, _) = (encodings for encodings, _ in built)
    assert rope is again
    assert [type(step).__name__ for step in rope.scaling] == ["YaRN", "Resonance"]
    built = build_encodings("proportional+resonance", Shape(dim=32, heads=4, layers=2, train_length=16))
    for layer in built.attention:
        (rope,) = layer
        assert [type(step).__name__ for step in rope.scaling] == ["Proportional", "Resonance"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rope/nope", "'nope'"), ("rope/nope:1", "'nope:1'"), ("rope:4", "rope:4"),
        ("rope@x", "x"), ("rope@0", "window"), ("", "''"), ("rope+", r"rope\+"),
        ("a/b:61/c:67/d:71", "a/b"), (3, "3"), ("rope//nope:2", "''"),
    ],
)  # fmt: skip
def test_what_is_no_schedule(text: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Schedule.parse(text)  # type: ignore[arg-type]


def test_what_cannot_be_built() -> None:
    with pytest.raises(ValueError, match=r"(?i)sinusoidal"):
        Schedule.parse("sinusoidal/nope:2").build(2, dim=8)
    with pytest.raises(ValueError, match="'rop'"):
        Schedule.parse("rop/nope:2").build(2, head_dim=8)
    for wrong in ([], "rope", None, ["rope"] * 5000):
        with pytest.raises(ValueError, match="pattern"):
            Schedule(wrong)  # type: ignore[arg-type]


def test_the_lab_trains_one_by_name() -> None:
    shape = Shape(dim=32, heads=4, layers=4, train_length=16)
    assert check_specs(["RoPE @8 / NoPE:4", "rope/rope+fox:2"], shape) == ["rope@8/nope:4", "rope/rope+fox:2"]
    built = build_encodings("rope@8/rope+fox:2", shape)
    assert [len(layer) for layer in built.attention] == [1, 2, 1, 2]
    assert built.windows == [8, None, 8, None]
    assert built.attention[0][0] is built.attention[3][0]
    torch.manual_seed(0)
    tokens = torch.randint(256, (1, 40))
    model, baseline = (Decoder(spec, shape, hidden=32, seed=0).eval() for spec in ("rope@8/nope:4", "rope/nope:4"))
    changed = tokens.clone()
    changed[0, 0] += 1
    with torch.no_grad():
        assert gap(model(tokens), baseline(tokens, window=8)) > 1e-3  # its fourth layer sees all
        assert gap(model(tokens, window=4), baseline(tokens, window=4)) < 1e-6  # the narrower window holds
        assert gap(model(tokens)[:, -1], model(changed)[:, -1]) > 0
    with pytest.raises(ValueError, match=r"(?i)sinusoidal"):
        check_specs(["rope/sinusoidal:2"], shape)
    with pytest.raises(ValueError, match="'nope'"):
        check_specs(["rope/nope"], shape)


@pytest.mark.parametrize(
    "spec", ["rope@8/nope:4", "rope+fox/alibi+fox@8:2", "sinusoidal/sinusoidal+t5:2", "proportional+resonance/nope:2"]
)
def test_a_model_of_transformers_keeps_it(spec: str, tmp_path: Path) -> None:
    modeling = pytest.importorskip("posenc.hf.modeling")
    config = modeling.PosencConfig(
        hidden_size=32, num_attention_heads=4, num_hidden_layers=4, encodings=spec, train_length=16
    )
    torch.manual_seed(0)
    model = modeling.PosencForCausalLM(config).eval()
    kinds = Schedule.parse(spec).layers(4)
    for layer, kind in zip(model.model.decoder_layers(), kinds, strict=True):
        expected = [
            encoding_info(name).encoding for name in kind.names if encoding_info(name).hook_point != "embedding"
        ]
        assert [type(e) for e in layer.self_attn.in_order()] == expected
        assert layer.self_attn.window == kind.window
    model.save_pretrained(tmp_path)
    again = modeling.PosencForCausalLM.from_pretrained(tmp_path).eval()
    tokens = torch.randint(256, (2, 24))
    with torch.no_grad():
        full = model(tokens).logits
        assert gap(again(tokens).logits, full) < 1e-6
        first = model(tokens[:, :20], use_cache=True)
        steps = [first.logits]
        for at in range(20, 24):
            steps.append(model(tokens[:, at : at + 1], past_key_values=first.past_key_values).logits)
        assert gap(torch.cat(steps, 1), full) < 1e-4


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"windows": [8, 8]}, "windows"), ({"windows": [0] * 4}, "windows"),
        ({"encodings": [{"name": "rope", "layers": [4]}]}, "layers of rope"),
        ({"encodings": [{"name": "rope", "layers": [1, 0]}]}, "layers of rope"),
        ({"encodings": [{"name": "sinusoidal", "layers": [1]}]}, "sinusoidal"),
        ({"encodings": "rope/nope"}, "encodings"),
    ],
)  # fmt: skip
def test_a_configuration_that_holds_none(wrong: dict[str, object], words: str) -> None:
    modeling = pytest.importorskip("posenc.hf.modeling")
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 4, "train_length": 16, **wrong}
    with pytest.raises(ValueError, match=words):
        modeling.PosencModel(modeling.PosencConfig(**sizes))
