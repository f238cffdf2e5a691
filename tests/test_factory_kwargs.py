"""dtype and device of every encoding at construction."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from posenc import ALiBi, MRoPE, RoPE, T5Bias, YaRN, attention, create_encoding
from posenc.bias import KERPLE
from posenc.catalogue import CATALOGUE
from posenc.encoding import EmbeddingEncoding
from posenc.frequencies import CLEX
from posenc.score import DAPE, Mixture, SelfExtend

SHAPE = {"dim": 32, "num_heads": 4, "head_dim": 8, "max_length": 16, "train_length": 16, "size": (4, 4)}
TRUNCATED = ("learned", "log_cpb", "swin", "decomposed", "repo")  # drawn by trunc_normal_, which reads values
NAMES = [name for name, entry in CATALOGUE.items() if entry.encoding is not None]


def build(name: str, **options: object) -> torch.nn.Module:
    torch.manual_seed(0)
    entry = CATALOGUE[name]
    shape = SHAPE if "size" in entry.needs else {word: size for word, size in SHAPE.items() if word != "size"}
    return create_encoding(name, **shape, **options)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_dtype_is_a_cast_at_construction(name, dtype):
    got, expected = build(name, dtype=dtype), build(name).to(dtype)
    assert got.state_dict().keys() == expected.state_dict().keys()
    for (key, a), b in zip(got.state_dict().items(), expected.state_dict().values(), strict=True):
        assert a.dtype == dtype, key
        assert torch.equal(a, b), key


@pytest.mark.parametrize("name", NAMES)
def test_device(name):
    assert {p.device.type for p in build(name, device="meta").parameters()} <= {"meta"}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in TRUNCATED])
def test_models_of_fake_tensors(name):
    """Constants are Python numbers, whatever a model is built for; calls find shapes without values."""
    with FakeTensorMode():
        encoding = build(name)
        if isinstance(encoding, EmbeddingEncoding):
            return
        positions = None if encoding.axes < 2 else torch.zeros(16, encoding.axes, dtype=torch.long)
        q, k, v = torch.randn(3, 1, 4, 16, 8)
        x = torch.randn(1, 16, 32)
        assert attention(q, k, v, [encoding], x=x, q_pos=positions, k_pos=positions, causal=True).shape == q.shape


def test_a_rotation_made_among_fake_tensors_is_the_same():
    with FakeTensorMode():
        rope = RoPE(64, scaling=YaRN(4.0, original_length=64))
    expected = RoPE(64, scaling=YaRN(4.0, original_length=64)).table(torch.arange(300))
    assert all(torch.equal(a, b) for a, b in zip(rope.table(torch.arange(300)), expected, strict=True))


def test_classes_take_them_themselves():
    assert T5Bias(4, dtype=torch.bfloat16).weight.dtype == torch.bfloat16
    assert T5Bias(4, device="meta", dtype=torch.float64).weight.device.type == "meta"
    for without_parameters in (ALiBi, RoPE, MRoPE, SelfExtend):
        assert not {"device", "dtype"} & set(inspect.signature(without_parameters).parameters), "nothing to place"
    assert repr(create_encoding("alibi", num_heads=4, dtype=torch.float64)) == repr(ALiBi(4))
    again = pickle.loads(pickle.dumps(copy.deepcopy(KERPLE(4, dtype=torch.float64))))
    assert again.p.dtype == torch.float64


def test_what_the_caller_made_stays_as_it_is():
    bias, clex = KERPLE(4), CLEX(4, original_length=16)
    made = (
        DAPE(bias, dtype=torch.float64),
        Mixture([bias, []], num_heads=4, dtype=torch.float64),
        create_encoding("self_extend", rotation=RoPE(8, scaling=clex), group=2, window=4, dtype=torch.float64),
        create_encoding("dape", num_heads=4, bias=bias, dtype=torch.float64),
    )
    assert {p.dtype for p in (*bias.parameters(), *clex.parameters())} == {torch.float32}
    assert made[0].inner.weight.dtype == made[0].outer.bias.dtype == made[1].logits.dtype == torch.float64
    assert made[0].bias is made[3].bias is bias
    assert DAPE(bias, device="meta").inner.weight.is_meta
    assert not bias.p.is_meta


@pytest.mark.parametrize("name", NAMES)
def test_initialisers_of_models_find_no_layer_to_draw_anew(name):
    encoding = build(name)
    before = copy.deepcopy(encoding.state_dict())
    encoding.apply(as_transformers_initialises)
    assert all(torch.equal(before[key], value) for key, value in encoding.state_dict().items())


def as_transformers_initialises(module: torch.nn.Module) -> None:
    if isinstance(module, torch.nn.Linear | torch.nn.Embedding | torch.nn.Conv1d | torch.nn.Conv2d):
        torch.nn.init.normal_(module.weight, std=0.02)
        if getattr(module, "bias", None) is not None:
            torch.nn.init.zeros_(module.bias)
    elif "Norm" in type(module).__name__:
        torch.nn.init.ones_(module.weight)
        if getattr(module, "bias", None) is not None:
            torch.nn.init.zeros_(module.bias)


def test_a_class_without_these_keywords_is_placed_by_the_catalogue_alone():
    class Subclass(KERPLE):
        def __init__(self, num_heads: int) -> None:
            super().__init__(num_heads, kind="power", dtype=torch.float64)
            self.more = torch.nn.Parameter(torch.zeros(2))

    assert {name: p.dtype for name, p in Subclass(4).named_parameters()}["more"] == torch.float32
    with pytest.raises(TypeError, match="dtype"):
        Subclass(4, dtype=torch.float64)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"dtype": torch.int64}, "dtype must be a floating dtype"), ({"dtype": "bfloat16"}, "dtype must be"),
     ({"device": "nowhere"}, "device must be a device"), ({"device": 1.5}, "device must be a device")],
)  # fmt: skip
@pytest.mark.parametrize("make", [lambda **options: T5Bias(4, **options), lambda **options: build("t5", **options)])
def test_refusals_name_the_argument(make, options, words):
    with pytest.raises(ValueError, match=words):
        make(**options)
