"""The catalogue: encodings by name, from the words that describe a model."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import torch

from posenc import (
    ALiBi,
    ForgetGate,
    Learned,
    RoPE,
    Sinusoidal,
    T5Bias,
    create_encoding,
    encoding_info,
    list_encodings,
    parse_encodings,
)
from posenc.bias import Sandwich
from posenc.catalogue import CATALOGUE, SHAPE, find
from posenc.catalogue.measured import RECORDED
from posenc.catalogue.names import ALIASES
from posenc.encoding import HOOK_POINTS, hook_point_of
from posenc.entry import READS
from posenc.hf.config.encoding_spec import encoding_specs
from posenc.lab.plugins import ImportAllowlist, allow_imports
from posenc.lab.specs import Shape, build_encodings
from posenc.score import Shaw, XPos

MODEL = {"dim": 32, "num_heads": 4, "train_length": 64}
INSTANCES = [name for name, entry in CATALOGUE.items() if entry.encoding is not None]


@pytest.mark.parametrize("name", INSTANCES)
def test_every_entry_builds_from_a_model_alone(name):
    encoding = create_encoding(name, **MODEL)
    entry = encoding_info(name)
    assert type(encoding) is entry.encoding
    assert hook_point_of(encoding) == entry.hook_point
    assert name in list_encodings(entry.hook_point)
    assert {type(e) for e in parse_encodings(name, **MODEL)} == {entry.encoding}


@pytest.mark.parametrize("name", INSTANCES)
def test_sizes_come_first_in_one_order_and_by_keyword(name):
    _, *others = inspect.signature(encoding_info(name).encoding).parameters.values()
    sizes = [parameter.name for parameter in others if parameter.name in SHAPE]
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in others)
    assert [parameter.name for parameter in others[: len(sizes)]] == sorted(sizes, key=SHAPE.index)


@pytest.mark.parametrize("name", CATALOGUE)
def test_entries_say_what_readers_need(name):
    entry = encoding_info(name)
    assert entry.name == name == name.lower()
    assert entry.hook_point in (*HOOK_POINTS, "none")
    for text in (entry.title, entry.formula, entry.source, entry.parameters, entry.cost, entry.past_training):
        assert text.strip()
    assert entry.extension.strip(), "say what can be done about lengths that were not trained"
    assert entry.used_in.strip(), "say which models have it, or that none is known"
    assert entry.avoid.strip(), "say when not to use it"
    assert set(entry.reads.split(" and ")) <= set(READS), f"say what it reads, of {', '.join(READS)}"
    assert re.search("arXiv|no paper", entry.source)
    assert all(reason.strip() for reason in entry.exempt.values())


@pytest.mark.parametrize("name", [name for name in INSTANCES if encoding_info(name).hook_point != "embedding"])
def test_absolute_encodings_depend_on_a_common_shift_and_relative_ones_do_not(name: str) -> None:
    """The conformance suite holds the shift against each encoding that is not exempt from it."""
    reads = set(encoding_info(name).reads.split(" and "))
    if "common_shift" in encoding_info(name).exempt:
        assert reads & {"positions", "lengths"}
    else:
        assert "positions" not in reads


@pytest.mark.parametrize("name", INSTANCES)
def test_length_options_are_known_and_fit_every_training_length(name):
    entry = encoding_info(name)
    for train_length in (1, 2, 3, 8, 512, 100_000):
        assert set(entry.lengths(train_length)) <= entry.takes, train_length
        entry.create(dim=32, num_heads=4, train_length=train_length)


def test_words_reach_their_encoding():
    assert create_encoding("rope", dim=512, num_heads=8, base=500_000.0).base == 500_000.0
    assert create_encoding("rope", dim=512, num_heads=8).head_dim == 64
    assert create_encoding("rope", dim=512, num_heads=8, head_dim=32).head_dim == 32
    assert create_encoding("ALiBi", num_heads=3).num_heads == 3
    assert create_encoding("learned", dim=8, train_length=10).max_length == 10
    assert create_encoding("learned", dim=8, train_length=10, max_length=12).max_length == 12
    t5 = create_encoding("t5", num_heads=2, train_length=128)
    assert (t5.max_distance, t5.num_buckets) == (64, 32)
    assert create_encoding("t5", num_heads=2, train_length=128, max_distance=99).max_distance == 99
    assert create_encoding("shaw", head_dim=8, train_length=64).max_distance == 16


def test_recipes():
    assert [type(e) for e in parse_encodings("rope + alibi", **MODEL)] == [RoPE, ALiBi]
    assert [type(e) for e in parse_encodings("sinusoidal+learned+t5+shaw", **MODEL)] == [
        Sinusoidal,
        Learned,
        T5Bias,
        Shaw,
    ]
    assert parse_encodings("nope", **MODEL) == []
    assert [type(e) for e in parse_encodings("nope+rope", **MODEL)] == [RoPE]


def test_scalings_joined_by_name_act_on_one_rotation():
    words = {"head_dim": 16, "num_heads": 2, "train_length": 64, "max_length": 256}
    rope, alibi = parse_encodings("longrope+resonance+alibi", **words)
    assert isinstance(alibi, ALiBi)
    wavelengths = 2 * torch.pi / rope.spectrum(256).theta
    assert torch.allclose(wavelengths.round(), wavelengths, rtol=1e-14)
    plain = create_encoding("longrope", **words).spectrum(256)
    assert torch.equal(wavelengths.round(), (2 * torch.pi / plain.theta).round())
    assert rope.spectrum(256).gain == plain.gain
    assert create_encoding("yarn+resonance", **words, rounding="float32").scaling[1].rounding == "float32"
    for name in ("rope+alibi", "alibi+yarn"):
        with pytest.raises(ValueError, match="parse_encodings"):
            create_encoding(name, **words)
    with pytest.raises(ValueError, match="rounding"):
        create_encoding("yarn+resonance", **words, rundung="float32")


def test_listing():
    assert set(list_encodings()) == set(CATALOGUE)
    assert set(list_encodings("score")) >= {"shaw", "fox", "data_alibi", "path"}
    assert list_encodings("rotary")[:2] == ["rope", "fope"]
    assert "nope" not in [name for place in HOOK_POINTS for name in list_encodings(place)]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: create_encoding("ropee", head_dim=8), "'rope'"),
        (lambda: create_encoding("qqqq"), "posenc list"),
        (lambda: create_encoding("rope"), "head_dim"),
        (lambda: create_encoding("learned"), "learned"),
        (lambda: create_encoding("rope", head_dim=8, bas=2.0), "'base'"),
        (lambda: create_encoding("nope"), "encodings=[]"),
        (lambda: create_encoding(None), "name"),
        (lambda: encoding_info(3), "name"),
        (lambda: parse_encodings(None), "recipe"),
        (lambda: list_encodings([]), "hook_point"),
        (lambda: parse_encodings("rope+", head_dim=8), "''"),
        (lambda: list_encodings("bananas"), "hook_point"),
        (lambda: create_encoding("rope", head_dim=7), "rotary_dim"),
    ],
)
def test_refusals_help(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)


def test_shape_words_that_an_encoding_does_not_take_are_passed_over():
    for name in INSTANCES:
        create_encoding(name, **{**MODEL, "num_kv_heads": 2, "max_length": 64, "head_dim": 8})
    assert {"dim", "num_heads", "num_kv_heads", "head_dim", "max_length", "train_length"} == set(SHAPE)


def test_recorded_comparisons_equal_the_documentation() -> None:
    result: dict[str, set[str]] = {}
    pq = pytest.importorskip("pyarrow.parquet")
    for file in sorted((Path(__file__).parents[1] / "docs" / "results").glob("*/records.parquet")):
        specs = pq.read_table(file, columns=["spec"])["spec"].unique().to_pylist()
        result[file.parent.name] = {word for spec in specs for word in re.split(r"[+/@:]", spec)} & set(CATALOGUE)
    assert {folder: set(names) for folder, names in RECORDED.items()} == result


def test_other_names_mean_one_encoding_each() -> None:
    for alias, name in ALIASES.items():
        assert find(alias).name == name
        assert alias not in CATALOGUE
    for name, entry in CATALOGUE.items():
        assert find(name.upper().replace("_", "-")) is entry
    assert find("DynamicYaRN").name == "dynamic_yarn"
    assert encoding_info("stick_breaking") is encoding_info("Stick-Breaking")
    with pytest.raises(ValueError, match=r"'linear'.*'pi'"):
        encoding_info("linear")


def test_encodings_are_made_by_every_name_that_the_command_line_knows() -> None:
    assert [type(e) for e in parse_encodings("rotary + ForgetGate", **MODEL)] == [RoPE, ForgetGate]
    for alias, name in ALIASES.items():
        if name != "nope":
            assert type(create_encoding(alias, **MODEL)) is encoding_info(name).encoding


OWN_CLASS = '''
import torch
from torch import nn
from posenc import T5Bias
from posenc.bias.distance import DistanceBias

class Copy(T5Bias):
    """T5 with another start."""
    def __init__(self, num_heads, **options):
        super().__init__(num_heads, init_std=0.5, **options)

class Fixed(T5Bias):
    """T5 whose distances do not follow the training."""
    def __init__(self, num_heads):
        super().__init__(num_heads)

class Slope(DistanceBias):
    """A slope a head, in units of a reach."""
    lr_multiplier, shared_by_layers = 7.0, False

    @classmethod
    def lengths_for(cls, train_length):
        return {"reach": 3 * train_length}

    def __init__(self, num_heads, reach=1):
        super().__init__()
        self.num_heads, self.reach, self.slope = num_heads, reach, nn.Parameter(torch.ones(num_heads))

    def of_distance(self, distance):
        return self.slope.view(-1, *[1] * distance.ndim) * distance / self.reach
'''


def test_a_class_of_ones_own_has_its_rate_sharing_and_lengths(tmp_path: Path) -> None:
    (tmp_path / "own_of_catalogue.py").write_text(OWN_CLASS)
    specs = [f"own_of_catalogue:{name}" for name in ("Copy", "Slope", "Fixed")]
    shape = Shape(dim=16, heads=4, layers=3, train_length=40)
    with allow_imports(ImportAllowlist(frozenset(specs), tmp_path)):
        copy, slope = (build_encodings(spec, shape) for spec in specs[:2])
        with pytest.raises(ValueError, match=r"Fixed.*'max_distance'"):
            build_encodings(specs[2], shape)
    (t5,) = copy.attention[0]
    assert isinstance(t5, T5Bias)
    assert (t5.max_distance, t5.num_buckets) == (20, 20)
    assert copy.lr_multipliers == {t5.weight: 30.0}
    assert {id(layer[0]) for layer in copy.attention} == {id(t5)}
    slopes = [layer[0] for layer in slope.attention]
    assert [item.reach for item in slopes] == [120] * 3
    assert slope.lr_multipliers == {item.slope: 7.0 for item in slopes}
    assert len(slope.lr_multipliers) == 3


def test_stored_sharing_outlives_the_catalogues() -> None:
    shape = {**MODEL, "num_kv_heads": 4, "head_dim": 8, "max_length": 64, "layers": 2}
    lines = encoding_specs([{"name": "fire", "shared": True}, {"name": "kerple"}], shape)
    assert [line["shared"] for line in lines] == [True, False]
    assert encoding_info("fire").lengths(64) == {"threshold": 32}


# Which encodings say that they have no meaning for keys after the query.


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        (T5Bias(4), True),
        (T5Bias(4, bidirectional=True), False),
        (XPos(8), True),
        (ForgetGate(16, num_heads=4), False),
        (ForgetGate(16, num_heads=4, kind="rows"), True),
        (ForgetGate(16, num_heads=4, kind="bidirectional"), False),
        (ALiBi(4), False),
        (Sandwich(4), False),
        (Shaw(8, max_distance=4), False),
    ],
    ids=repr,
)
def test_said_of_each(encoding, expected):
    assert encoding.causal_only is expected
