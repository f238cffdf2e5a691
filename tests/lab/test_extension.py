"""What an extension compares: rows, equal budgets, what starts from what, what a search sees."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from tests.lab import conftest
from tests.lab.test_corpora import documents
from tests.lab.test_text import CPU

from posenc import RoPE, attention, create_encoding
from posenc.frequencies.by_name import Trained
from posenc.frequencies.clex import CLEX
from posenc.frequencies.longrope import LongRoPE
from posenc.lab.config import Config
from posenc.lab.data.corpus import Corpus, make_corpus
from posenc.lab.data.documents import Source
from posenc.lab.metrics import FULL, WINDOW
from posenc.lab.models.decoder import Decoder
from posenc.lab.run.folder import records_of
from posenc.lab.tasks import context_extension
from posenc.lab.tasks.context_extension import (
    DISTANCES,
    SCALED,
    ExtendedDecoder,
    MethodRow,
    has_factor,
    longrope,
    moved,
    normalize_row,
    parse_row,
    scaling,
    search_piece_ends,
)
from posenc.lab.tasks.extension import CONTROL, STANDARD, Extension, further, options_of, trained_of
from posenc.lab.tasks.task import Planned
from posenc.search import Candidate

TASK = Extension()
NUMBERS: dict[str, Any] = {
    "train_length": 8, "lengths": (1, 2, 4), "steps": 12, "batch_size": 4, "windows": 6, "dim": 16, "layers": 1,
    "heads": 2, "device": "cpu", "checkpoint_every": 3, "fine_tune_length": 2, "fine_tune_steps": 5,
    "search_population": 4, "search_generations": 1, "search_pieces": 2, "probes": 2,
}  # fmt: skip
TINY = TASK.profile("quick").config.replaced(NUMBERS)
TRAINED = trained_of(TINY)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return make_corpus(Source("made up", documents(30, 200), True), window=33, windows=6, scored=4)


def model(spec: str = "rope", config: Config = TINY, seed: int = 0) -> ExtendedDecoder:
    made = TASK.model(spec, config, None, seed)  # type: ignore[arg-type]
    assert isinstance(made, ExtendedDecoder)
    return made.eval()


def bits(made: ExtendedDecoder, corpus: Corpus, *rows: str) -> dict[tuple[str, str, int], list[float]]:
    found = TASK.evaluate(made, corpus, rows, TINY, CPU)
    return {(v.spec, v.view, v.length): list(v.values) for v in found if v.metric == "bits"}


def planned(config: Config, *rows: str) -> dict[str, Planned]:
    return {one.spec: one for one in TASK.plan(rows, config)}


def test_a_name_says_method_factor_and_training() -> None:
    assert parse_row("yarn") == MethodRow("yarn", False, None, "")
    assert parse_row("ntk+resonance@32") == MethodRow("ntk", True, 32, "")
    assert parse_row("ntk_by_parts+resonance+tuned") == MethodRow("ntk_by_parts", True, None, "tuned")
    assert parse_row("rope+continued") == MethodRow("rope", False, None, "continued")
    assert normalize_row(" YaRN @max", 4) == "yarn@4"


def test_untrained_rows_are_measured_on_the_one_base_and_others_start_from_it() -> None:
    profile = TASK.profile("standard")
    found = planned(profile.config, *profile.encodings)
    assert {"rope", "yarn", "yarn+resonance", "longrope", "longrope@16"} <= set(found["rope"].rows)
    assert sum(len(one.rows) for one in found.values()) == len(STANDARD)
    assert all(one.rows == (spec,) and one.base == "rope" for spec, one in found.items() if spec != "rope")
    assert (found["rope"].base, found["rope"].config) == (None, profile.config)
    assert {"rope", *(f"{m}+tuned" for m in SCALED if m not in ("part_ntk", "yarn_by_turns", "dynamic_pi"))} | {
        f"{m}+resonance+tuned" for m in ("ntk", "ntk_by_parts", "yarn")
    } | {CONTROL} == set(found)


def test_what_rows_start_from_and_are_compared_with_is_there() -> None:
    assert [(one.spec, one.rows) for one in TASK.plan(["yarn+tuned", "yarn"], TINY)] == [
        ("rope", ("rope", "yarn")), ("yarn+tuned", ("yarn+tuned",)), (CONTROL, (CONTROL,)),
    ]  # fmt: skip
    assert [(one.spec, one.rows) for one in TASK.plan(["yarn", "yarn@max"], TINY)] == [
        ("rope", ("rope", "yarn", "yarn@4"))
    ]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("yarm", "did you mean yarn"),
        ("alibi", "knows no 'alibi'"),
        ("clex", "clex learns its frequencies"),
        ("yarn@", "a whole number, or max, is needed after the @"),
        ("yarn@8", "a factor from 2 to the longest of --lengths, 4"),
        ("clipped@4", "clipped has no factor"),
        ("dynamic_ntk@4", "@ fixes the factor of an untrained row"),
        ("yarn@4+tuned", "a whole number, or max, is needed after the @"),
        ("yarn+tuned@4", "@ fixes the factor of an untrained row"),
        ("rope+window", "its sliding window is measured without a row of its own"),
        ("pi+continued", "a control, of rope alone"),
        ("rope+resonance", "rope has no factor"),
        ("longrope+resonance", r"\+resonance rounds the frequencies of a factor"),
        ("yarn+alibi", "after the method come"),
        ("rerope+tuned", "moves the distances of a trained model as it is"),
        ("self_extend+resonance", "no \\+tuned, no \\+resonance"),
        ("dual_chunk@4", "dual_chunk has no factor"),
        ("self_extend@8", "a factor from 2 to the longest of --lengths, 4"),
    ],
)
def test_a_row_that_cannot_be_measured_says_why(row: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        TASK.plan([row], TINY)


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ({"fine_tune_length": 3}, r"--fine-tune-length 3: one of --lengths is needed \(2, 4\)"),
        ({"fine_tune_length": 1}, "--fine-tune-length 1: at least 2"),
        ({"batch_size": 6, "fine_tune_length": 4}, "--batch-size 6: a multiple of --fine-tune-length 4"),
        ({"fine_tune_steps": 0}, "--fine-tune-steps 0"),
        ({"fine_tune_lr": 0.0}, "--fine-tune-lr 0.0: a number above 0"),
        ({"search_population": 3}, "--search-population 3: at least 4"),
        ({"dim": 6, "heads": 2}, "--dim 6: heads of an even width of at least 4"),
        ({"further": 2}, r"--further 2: ask for rows like yarn\+tuned"),
    ],
)
def test_numbers_that_cannot_work_are_refused(numbers: dict[str, Any], told: str) -> None:
    def check(config: Config) -> None:
        config.check()
        TASK.check(config)

    with pytest.raises(ValueError, match=told):
        check(TINY.replaced(numbers))


@pytest.mark.parametrize("name", ["quick", "standard", "full"])
def test_profiles_can_be_run(name: str) -> None:
    profile = TASK.profile(name)
    profile.config.check()
    TASK.check(profile.config)
    assert profile.config.task == "extension"
    for one in TASK.plan(profile.encodings, profile.config):
        one.config.check()


def test_all_fine_tunings_have_one_budget_and_the_same_texts(corpus: Corpus) -> None:
    found = planned(TINY, "rope+tuned", "yarn+tuned", "clex+tuned", "longrope+tuned")
    tuned, continued = found["yarn+tuned"].config, found[CONTROL].config
    assert all(one.config == tuned for spec, one in found.items() if spec.endswith("tuned"))
    assert (tuned.training.steps, tuned.training.lr) == (5, options_of(TINY).fine_tune_lr)
    assert TASK.amount(tuned) == TASK.amount(continued) == TASK.amount(TINY) == 32
    assert tuned.tested == TINY.tested
    assert len({str(config.deciding()) for config in (TINY, tuned, continued)}) == 3
    (texts,) = TASK.batch(corpus, tuned, 0, 3)
    assert (texts.shape, TASK.batch(corpus, continued, 0, 0)[0].shape) == ((2, 17), (4, 9))
    assert not torch.equal(TASK.batch(corpus, continued, 0, 0)[0], TASK.batch(corpus, TINY, 0, 0)[0])  # nothing twice


@pytest.mark.parametrize("method", [name for name in SCALED if name not in ("rope", "clex", "clipped")])
def test_every_method_is_plain_rope_at_the_trained_length(method: str) -> None:
    plain = RoPE(8).spectrum().theta
    spectrum = RoPE(8, scaling=scaling(parse_row(method), 1, TRAINED)).spectrum(8)
    torch.testing.assert_close(spectrum.theta, plain)
    assert float(spectrum.gain) == 1.0


def test_clipped_pairs_rest_at_every_length() -> None:
    plain, once = (RoPE(32, scaling=scaling(parse_row("clipped"), factor, Trained(64, 16))) for factor in (1, 8))
    theta = plain.spectrum(64).theta
    assert torch.equal(theta, once.spectrum(512).theta)
    torch.testing.assert_close(theta[:12], RoPE(32).spectrum().theta[:12])
    assert float(theta[-1]) == 0.0


@pytest.mark.parametrize("method", DISTANCES)
def test_moved_distances_at_their_factor(method: str) -> None:
    """What has a factor reaches the trained length in its longest text; the others have their authors' sizes."""
    trained, rope = Trained(128, 4), RoPE(8)
    made = moved(parse_row(method), 4, trained, rope)
    assert made.rotation is rope
    assert repr(made) == repr(create_encoding(method, rotation=rope, train_length=128, max_length=512))
    if not has_factor(method):
        assert repr(made) == repr(moved(parse_row(method), 1, trained, rope))
        return
    at = torch.arange(512)
    far = made.ranges(at, at)[-1]
    assert 96 < int(far.q_pos[-1] - far.k_pos[0]) <= 128
    q, k, v = torch.randn(3, 1, 2, 16, 8)
    plain, first = attention(q, k, v, [rope]), moved(parse_row(method), 1, Trained(8, 4), rope)
    torch.testing.assert_close(attention(q, k, v, [first]), plain)


def test_moved_distances_leave_the_model_as_it_was(corpus: Corpus) -> None:
    made = model(seed=3)
    before, tokens = set(made.state_dict()), torch.arange(32).view(1, 32)
    found = bits(made, corpus, "rope", *DISTANCES, "self_extend@4")
    assert {key[0] for key in found} == {"rope", *DISTANCES, "self_extend@4"}
    assert found["self_extend", FULL, 32] == found["self_extend@4", FULL, 32]
    for row in ("self_extend", "leaky_rerope", "lm_infinite"):
        assert found[row, FULL, 8] == pytest.approx(found["rope", FULL, 8], abs=1e-5)
    for row in DISTANCES:
        assert found[row, FULL, 32] != pytest.approx(found["rope", FULL, 32], abs=1e-7), row
    again = bits(made, corpus, "rope")
    assert set(made.state_dict()) == before
    assert again["rope", FULL, 32] == found["rope", FULL, 32]
    encoding = moved(parse_row("rerope"), 4, TRAINED, RoPE(8))
    alone = Decoder("rope", TASK.shape(TINY), hidden=TINY.model.hidden, seed=3).eval()
    for block in alone.blocks:
        block.attention.encodings = torch.nn.ModuleList([encoding])
    alone.rotary = ()
    torch.testing.assert_close(made(tokens, moved=encoding), alone(tokens))


def test_a_factor_that_follows_the_length_is_what_dynamic_forms_do_by_themselves() -> None:
    for fixed, dynamic in (("pi", "dynamic_pi"), ("ntk", "dynamic_ntk"), ("yarn", "dynamic_yarn")):
        first = RoPE(8, scaling=scaling(parse_row(fixed), 4, TRAINED)).spectrum(32)
        second = RoPE(8, scaling=scaling(parse_row(dynamic), 2, TRAINED)).spectrum(32)
        torch.testing.assert_close(first.theta, second.theta)
        assert float(first.gain) == pytest.approx(float(second.gain))


def test_longrope_has_plain_frequencies_up_to_the_trained_length_and_the_found_ones_past_it() -> None:
    rope = RoPE(8, scaling=longrope(Candidate((1.0, 1.5, 2.0, 4.0), 0), 4, TRAINED))
    plain = RoPE(8).spectrum().theta
    torch.testing.assert_close(rope.spectrum(8).theta, plain)
    torch.testing.assert_close(plain / rope.spectrum(9).theta, torch.tensor([1.0, 1.5, 2.0, 4.0], dtype=torch.float64))


def test_what_yarn_leaves_alone_goes_with_the_trained_length() -> None:
    assert [Trained(length, 4).beta_fast for length in (8, 64, 128, 512, 4096)] == [2.0, 4.0, 8.0, 32.0, 32.0]


def test_plain_rows_are_the_text_model() -> None:
    tokens = torch.arange(32).view(2, 16)
    ours, theirs = model(seed=3), Decoder("rope", TASK.shape(TINY), hidden=TINY.model.hidden, seed=3).eval()
    for window in (None, 5):
        torch.testing.assert_close(ours(tokens, window), theirs(tokens, window), rtol=0, atol=0)
    assert set(ours.state_dict()) == set(theirs.state_dict())


def test_rows_differ_only_past_the_trained_length_and_rope_alone_has_a_window(corpus: Corpus) -> None:
    found = bits(model(), corpus, "rope", "yarn", "dynamic_yarn", "yarn@4", "longrope")
    assert {key for key in found if key[1] == WINDOW} == {("rope", WINDOW, 16), ("rope", WINDOW, 32)}
    assert found["rope", WINDOW, 16] == pytest.approx(found["rope", WINDOW, 32], abs=1e-5)
    for row in ("yarn", "dynamic_yarn", "longrope"):
        assert found[row, FULL, 8] == pytest.approx(found["rope", FULL, 8], abs=1e-5)
        assert found[row, FULL, 32] != pytest.approx(found["rope", FULL, 32], abs=1e-5)
    assert found["yarn@4", FULL, 8] != pytest.approx(found["rope", FULL, 8], abs=1e-5)
    assert found["yarn", FULL, 32] == pytest.approx(found["yarn@4", FULL, 32], abs=1e-5)  # there both have the factor 4
    for length in (8, 16, 32):
        assert found["dynamic_yarn", FULL, length] == pytest.approx(found["yarn", FULL, length], abs=1e-5)


def test_a_tuned_row_is_measured_as_it_was_trained(corpus: Corpus) -> None:
    tuned = bits(model("pi+tuned"), corpus, "pi+tuned")
    fixed = bits(model(), corpus, "pi@2")
    assert set(tuned) == {("pi+tuned", FULL, 8), ("pi+tuned", FULL, 16), ("pi+tuned", FULL, 32)}
    for length in (8, 16, 32):
        assert tuned["pi+tuned", FULL, length] == pytest.approx(fixed["pi@2", FULL, length], abs=1e-6)


def test_a_search_sees_training_text_alone_and_happens_once(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    made = model()
    blind = dataclasses.replace(corpus, validation=corpus.validation[:0])
    TASK.prepare(made, planned(TINY, "longrope+tuned")["longrope+tuned"], blind, TINY, CPU)
    found = made.found[2]
    assert len(found.factors) == 4
    assert max(search_piece_ends(len(corpus.train), 32, 50)) <= len(corpus.train)
    assert min(search_piece_ends(len(corpus.train), 32, 50)) > 32
    monkeypatch.setattr(context_extension, "search", None)  # would fail if it were called
    TASK.prepare(made, planned(TINY, "longrope+tuned")["longrope+tuned"], blind, TINY, CPU)
    assert bits(made, corpus, "longrope@2")


def test_longrope_is_tuned_with_what_a_search_on_its_base_finds(corpus: Corpus) -> None:
    base, config = model(seed=5), further(TINY, "tuned")
    start = model("longrope+tuned", config)
    start.load_state_dict(base.state_dict(), strict=False)
    TASK.prepare(start, Planned("longrope+tuned", (), config, "rope"), corpus, config, CPU)
    own, stretch = start.rope.scaling, bits(base, corpus, "longrope@2")
    assert isinstance(own, LongRoPE)
    assert (own.long, own.factor, own.start_tokens) == (base.found[2].factors, 2.0, base.found[2].start_tokens)
    tuned = bits(start, corpus, "longrope+tuned")
    assert tuned["longrope+tuned", FULL, 32] == pytest.approx(stretch["longrope@2", FULL, 32], abs=1e-6)
    other = model("yarn+tuned", config)
    before = other.rope
    TASK.prepare(other, Planned("yarn+tuned", (), config, "rope"), corpus, config, CPU)
    assert other.rope is before


def test_clex_learns_at_a_rate_of_its_own(corpus: Corpus) -> None:
    config = further(TINY, "tuned")
    made = model("clex+tuned", config)
    assert isinstance(made.rope.scaling, CLEX)
    assert made.rope.scaling.max_factor == 2
    assert made.lr_multipliers == dict.fromkeys(made.rope.scaling.parameters(), 0.1)
    assert set(made.state_dict()) - set(model().state_dict()) == {"rope.scaling.up_proj", "rope.scaling.down_proj"}
    TASK.loss(made, TASK.batch(corpus, config, 0, 0)).backward()
    down = made.rope.scaling.down_proj.grad
    assert down is not None
    assert bool(down.abs().sum() > 0)
    plain = model()
    plain.load_state_dict(made.state_dict(), strict=False)
    tokens = torch.arange(16).view(2, 8)
    torch.testing.assert_close(made(tokens), plain(tokens), rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_the_command_trains_the_base_once_and_goes_on_where_it_was(tmp_path: Any) -> None:
    (tmp_path / "texts").mkdir()
    for k, document in enumerate(documents(30, 200)):
        (tmp_path / "texts" / f"{k}.txt").write_bytes(document.text)
    typed = [f"--{name.replace('_', '-')}={str(value).strip('()').replace(' ', '')}" for name, value in NUMBERS.items()]
    asked = ("yarn", "longrope@max", "yarn+tuned", "longrope+tuned")
    run = ("--task", "extension", "--data", str(tmp_path / "texts"), *typed)
    assert conftest.run(tmp_path / "run", *run, encodings=asked) == 0
    jobs = {path.name for path in (tmp_path / "run" / "jobs").iterdir()}
    assert jobs == {"rope-seed0", "yarn+tuned-seed0", "longrope+tuned-seed0", "rope+continued-seed0"}
    frame = records_of(tmp_path / "run")
    frame = frame[(frame["metric"] == "bits") & (frame["view"] == FULL)].astype({"spec": str})
    assert set(frame["spec"]) == {"rope", *asked[:1], "longrope@4", *asked[2:], CONTROL}
    found = frame.groupby(["spec", "length"])["value"].mean()
    assert found["yarn", 8] == pytest.approx(found["rope", 8], rel=1e-5)
    assert found["yarn+tuned", 8] != pytest.approx(found["rope", 8], rel=1e-5)
    before = conftest.numbers(tmp_path / "run")
    for spec in ("longrope+tuned", "yarn+tuned"):  # without their results, from their last checkpoints
        (tmp_path / "run" / "jobs" / f"{spec}-seed0" / "records.parquet").unlink()
    assert conftest.run(tmp_path / "run", *run, encodings=asked) == 0
    assert conftest.numbers(tmp_path / "run") == before
