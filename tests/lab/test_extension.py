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
from posenc.frequencies.modules import LongRoPE
from posenc.lab.config import Config
from posenc.lab.data.corpus import Corpus, make_corpus
from posenc.lab.data.documents import Source
from posenc.lab.metrics import FULL, WINDOW
from posenc.lab.models.decoder import Decoder
from posenc.lab.run.folder import records_of
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
    decoder = TASK.model(spec, config, None, seed)  # type: ignore[arg-type]
    assert isinstance(decoder, ExtendedDecoder)
    return decoder.eval()


def bits(decoder: ExtendedDecoder, corpus: Corpus, *rows: str) -> dict[tuple[str, str, int], list[float]]:
    values = TASK.evaluate(decoder, corpus, rows, TINY, CPU)
    return {(v.spec, v.view, v.length): list(v.values) for v in values if v.metric == "bits"}


def planned(config: Config, *rows: str) -> dict[str, Planned]:
    return {plan.spec: plan for plan in TASK.plan(rows, config)}


def test_a_name_says_method_factor_and_training() -> None:
    assert parse_row("yarn") == MethodRow("yarn", False, None, "")
    assert parse_row("ntk+resonance@32") == MethodRow("ntk", True, 32, "")
    assert parse_row("longrope+resonance") == MethodRow("longrope", True, None, "")
    assert parse_row("ntk_by_parts+resonance+tuned") == MethodRow("ntk_by_parts", True, None, "tuned")
    assert parse_row("rope+continued") == MethodRow("rope", False, None, "continued")
    assert normalize_row(" YaRN @max", 4) == "yarn@4"


def test_untrained_rows_are_measured_on_the_one_base_and_others_start_from_it() -> None:
    profile = TASK.profile("standard")
    plans = planned(profile.config, *profile.encodings)
    assert {"rope", "yarn", "yarn+resonance", "longrope", "longrope@16"} <= set(plans["rope"].rows)
    assert sum(len(plan.rows) for plan in plans.values()) == len(STANDARD)
    assert all(plan.rows == (spec,) and plan.base == "rope" for spec, plan in plans.items() if spec != "rope")
    assert (plans["rope"].base, plans["rope"].config) == (None, profile.config)
    assert {
        "rope",
        *(f"{m}+tuned" for m in SCALED if m not in ("part_ntk", "yarn_by_turns", "dynamic_pi", "drope")),
    } | {f"{m}+resonance+tuned" for m in ("ntk", "ntk_by_parts", "yarn")} | {CONTROL, "drope+continued"} == set(plans)


def test_plans_include_the_base_and_the_control() -> None:
    assert [(plan.spec, plan.rows) for plan in TASK.plan(["yarn+tuned", "yarn"], TINY)] == [
        ("rope", ("rope", "yarn")), ("yarn+tuned", ("yarn+tuned",)), (CONTROL, (CONTROL,)),
    ]  # fmt: skip
    assert [(plan.spec, plan.rows) for plan in TASK.plan(["yarn", "yarn@max"], TINY)] == [
        ("rope", ("rope", "yarn", "yarn@4"))
    ]


@pytest.mark.parametrize(
    ("row", "message"),
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
        ("rope+window", "sliding window is measured without a row of its own"),
        ("pi+continued", r"\+continued trains at the training length, which rope \(the control\) and drope do"),
        ("drope+tuned", r"DroPE trains at the training length, not on longer sequences: use drope\+continued"),
        ("drope@4", "drope has no factor"),
        ("rope+resonance", "rope has no factor"),
        ("dynamic_ntk+resonance", r"\+resonance rounds the frequencies of a factor"),
        ("yarn+alibi", "after the method come"),
        ("rerope+tuned", "moves the distances of a trained model as it is"),
        ("self_extend+resonance", "no \\+tuned, no \\+resonance"),
        ("dual_chunk@4", "dual_chunk has no factor"),
        ("self_extend@8", "a factor from 2 to the longest of --lengths, 4"),
    ],
)
def test_a_row_that_cannot_be_measured_says_why(row: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TASK.plan([row], TINY)


@pytest.mark.parametrize(
    ("numbers", "message"),
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
def test_numbers_that_cannot_work_are_refused(numbers: dict[str, Any], message: str) -> None:
    def check(config: Config) -> None:
        config.check()
        TASK.check(config)

    with pytest.raises(ValueError, match=message):
        check(TINY.replaced(numbers))


@pytest.mark.parametrize("name", ["quick", "standard", "full"])
def test_profiles_can_be_run(name: str) -> None:
    profile = TASK.profile(name)
    profile.config.check()
    TASK.check(profile.config)
    assert profile.config.task == "extension"
    for plan in TASK.plan(profile.encodings, profile.config):
        plan.config.check()


def test_all_fine_tunings_have_one_budget_and_the_same_texts(corpus: Corpus) -> None:
    plans = planned(TINY, "rope+tuned", "yarn+tuned", "clex+tuned", "longrope+tuned")
    tuned, continued = plans["yarn+tuned"].config, plans[CONTROL].config
    assert all(plan.config == tuned for spec, plan in plans.items() if spec.endswith("tuned"))
    assert (tuned.training.steps, tuned.training.lr) == (5, options_of(TINY).fine_tune_lr)
    assert TASK.amount(tuned) == TASK.amount(continued) == TASK.amount(TINY) == 32
    assert tuned.tested == TINY.tested
    assert len({str(config.deciding()) for config in (TINY, tuned, continued)}) == 3
    (texts,) = TASK.batch(corpus, tuned, 0, 3)
    assert (texts.shape, TASK.batch(corpus, continued, 0, 0)[0].shape) == ((2, 17), (4, 9))
    assert not torch.equal(TASK.batch(corpus, continued, 0, 0)[0], TASK.batch(corpus, TINY, 0, 0)[0])  # nothing twice


@pytest.mark.parametrize("method", [name for name in SCALED if name not in ("rope", "clex", "clipped", "drope")])
def test_every_method_is_plain_rope_at_the_trained_length(method: str) -> None:
    unscaled = RoPE(8).spectrum().theta
    spectrum = RoPE(8, scaling=scaling(parse_row(method), 1, TRAINED)).spectrum(8)
    torch.testing.assert_close(spectrum.theta, unscaled)
    assert float(spectrum.gain) == 1.0


def test_clipped_pairs_rest_at_every_length() -> None:
    unscaled, once = (RoPE(32, scaling=scaling(parse_row("clipped"), factor, Trained(64, 16))) for factor in (1, 8))
    theta = unscaled.spectrum(64).theta
    assert torch.equal(theta, once.spectrum(512).theta)
    torch.testing.assert_close(theta[:12], RoPE(32).spectrum().theta[:12])
    assert float(theta[-1]) == 0.0


@pytest.mark.parametrize("method", DISTANCES)
def test_moved_distances_at_their_factor(method: str) -> None:
    """What has a factor reaches the trained length in its longest text; the others have their authors' sizes."""
    trained, rope = Trained(128, 4), RoPE(8)
    replaced = moved(parse_row(method), 4, trained, rope)
    assert replaced.rotation is rope
    assert repr(replaced) == repr(create_encoding(method, rotation=rope, train_length=128, max_length=512))
    if not has_factor(method):
        assert repr(replaced) == repr(moved(parse_row(method), 1, trained, rope))
        return
    at = torch.arange(512)
    far = replaced.ranges(at, at)[-1]
    assert 96 < int(far.q_pos[-1] - far.k_pos[0]) <= 128
    q, k, v = torch.randn(3, 1, 2, 16, 8)
    rotated, first = attention(q, k, v, [rope]), moved(parse_row(method), 1, Trained(8, 4), rope)
    torch.testing.assert_close(attention(q, k, v, [first]), rotated)


def test_moved_distances_leave_the_model_as_it_was(corpus: Corpus) -> None:
    decoder = model(seed=3)
    before, tokens = set(decoder.state_dict()), torch.arange(32).view(1, 32)
    losses = bits(decoder, corpus, "rope", *DISTANCES, "self_extend@4")
    assert {key[0] for key in losses} == {"rope", *DISTANCES, "self_extend@4"}
    assert losses["self_extend", FULL, 32] == losses["self_extend@4", FULL, 32]
    for row in ("self_extend", "leaky_rerope", "lm_infinite"):
        assert losses[row, FULL, 8] == pytest.approx(losses["rope", FULL, 8], abs=1e-5)
    for row in DISTANCES:
        assert losses[row, FULL, 32] != pytest.approx(losses["rope", FULL, 32], abs=1e-7), row
    again = bits(decoder, corpus, "rope")
    assert set(decoder.state_dict()) == before
    assert again["rope", FULL, 32] == losses["rope", FULL, 32]
    encoding = moved(parse_row("rerope"), 4, TRAINED, RoPE(8))
    alone = Decoder("rope", TASK.shape(TINY), hidden=TINY.model.hidden, seed=3).eval()
    for block in alone.blocks:
        block.attention.encodings = torch.nn.ModuleList([encoding])
    alone.rotary = ()
    torch.testing.assert_close(decoder(tokens, moved=encoding), alone(tokens))


def test_a_factor_that_follows_the_length_is_what_dynamic_forms_do_by_themselves() -> None:
    for fixed, dynamic in (("pi", "dynamic_pi"), ("ntk", "dynamic_ntk"), ("yarn", "dynamic_yarn")):
        first = RoPE(8, scaling=scaling(parse_row(fixed), 4, TRAINED)).spectrum(32)
        second = RoPE(8, scaling=scaling(parse_row(dynamic), 2, TRAINED)).spectrum(32)
        torch.testing.assert_close(first.theta, second.theta)
        assert float(first.gain) == pytest.approx(float(second.gain))


def test_longrope_has_plain_frequencies_up_to_the_trained_length_and_the_found_ones_past_it() -> None:
    rope = RoPE(8, scaling=longrope(Candidate((1.0, 1.5, 2.0, 4.0), 0), 4, TRAINED))
    unscaled = RoPE(8).spectrum().theta
    torch.testing.assert_close(rope.spectrum(8).theta, unscaled)
    torch.testing.assert_close(
        unscaled / rope.spectrum(9).theta, torch.tensor([1.0, 1.5, 2.0, 4.0], dtype=torch.float64)
    )


def test_what_yarn_leaves_alone_goes_with_the_trained_length() -> None:
    assert [Trained(length, 4).beta_fast for length in (8, 64, 128, 512, 4096)] == [2.0, 4.0, 8.0, 32.0, 32.0]


def test_plain_rows_are_the_text_model() -> None:
    tokens = torch.arange(32).view(2, 16)
    extended, reference = model(seed=3), Decoder("rope", TASK.shape(TINY), hidden=TINY.model.hidden, seed=3).eval()
    for window in (None, 5):
        torch.testing.assert_close(extended(tokens, window), reference(tokens, window), rtol=0, atol=0)
    assert set(extended.state_dict()) == set(reference.state_dict())


def test_rows_differ_only_past_the_trained_length_and_rope_alone_has_a_window(corpus: Corpus) -> None:
    losses = bits(model(), corpus, "rope", "yarn", "dynamic_yarn", "yarn@4", "longrope")
    assert {key for key in losses if key[1] == WINDOW} == {("rope", WINDOW, 16), ("rope", WINDOW, 32)}
    assert losses["rope", WINDOW, 16] == pytest.approx(losses["rope", WINDOW, 32], abs=1e-5)
    for row in ("yarn", "dynamic_yarn", "longrope"):
        assert losses[row, FULL, 8] == pytest.approx(losses["rope", FULL, 8], abs=1e-5)
        assert losses[row, FULL, 32] != pytest.approx(losses["rope", FULL, 32], abs=1e-5)
    assert losses["yarn@4", FULL, 8] != pytest.approx(losses["rope", FULL, 8], abs=1e-5)
    assert losses["yarn", FULL, 32] == pytest.approx(losses["yarn@4", FULL, 32], abs=1e-5)  # of factor 4
    for length in (8, 16, 32):
        assert losses["dynamic_yarn", FULL, length] == pytest.approx(losses["yarn", FULL, length], abs=1e-5)


def test_a_tuned_row_is_measured_as_it_was_trained(corpus: Corpus) -> None:
    tuned = bits(model("pi+tuned"), corpus, "pi+tuned")
    fixed = bits(model(), corpus, "pi@2")
    assert set(tuned) == {("pi+tuned", FULL, 8), ("pi+tuned", FULL, 16), ("pi+tuned", FULL, 32)}
    for length in (8, 16, 32):
        assert tuned["pi+tuned", FULL, length] == pytest.approx(fixed["pi@2", FULL, length], abs=1e-6)


def test_drope_rotates_nothing_and_is_recalibrated_on_the_texts_of_its_control(corpus: Corpus) -> None:
    decoder, rotated = model("drope+continued"), model()
    texts = torch.tensor([[3, 1, 2, 4, 5], [4, 2, 1, 3, 5]])  # to the last token, one layer shows a set
    with torch.no_grad():
        one, other = decoder(texts)[:, -1]
        torch.testing.assert_close(one, other)
        one, other = rotated(texts)[:, -1]
        assert not torch.allclose(one, other, rtol=1e-3, atol=1e-5)
    recalibrated, untrained = bits(decoder, corpus, "drope+continued"), bits(model(), corpus, "drope")
    for length in (8, 16, 32):
        assert recalibrated["drope+continued", FULL, length] == pytest.approx(
            untrained["drope", FULL, length], abs=1e-6
        )
    plans = planned(TINY, "drope+continued", "drope")
    assert plans["drope+continued"].config == plans[CONTROL].config
    assert plans["rope"].rows == ("rope", "drope")


def test_a_search_sees_training_text_alone_and_happens_once(corpus: Corpus) -> None:
    decoder = model()
    blind = dataclasses.replace(corpus, validation=corpus.validation[:0])
    TASK.prepare(decoder, planned(TINY, "longrope+tuned")["longrope+tuned"], blind, TINY, CPU)
    candidate = decoder.found[2]
    assert len(candidate.factors) == 4
    assert max(search_piece_ends(len(corpus.train), 32, 50)) <= len(corpus.train)
    assert min(search_piece_ends(len(corpus.train), 32, 50)) > 32
    TASK.prepare(decoder, planned(TINY, "longrope+tuned")["longrope+tuned"], blind, TINY, CPU)
    assert bits(decoder, corpus, "longrope@2")
    assert decoder.found[2] is candidate, "a search is not made twice"


def test_longrope_is_tuned_with_what_a_search_on_its_base_finds(corpus: Corpus) -> None:
    base, config = model(seed=5), further(TINY, "tuned")
    start = model("longrope+tuned", config)
    start.load_state_dict(base.state_dict(), strict=False)
    TASK.prepare(start, Planned("longrope+tuned", (), config, "rope"), corpus, config, CPU)
    tuned_scaling, searched = start.rope.scaling, bits(base, corpus, "longrope@2")
    assert isinstance(tuned_scaling, LongRoPE)
    assert (tuned_scaling.long, tuned_scaling.factor, tuned_scaling.start_tokens) == (
        base.found[2].factors,
        2.0,
        base.found[2].start_tokens,
    )
    tuned = bits(start, corpus, "longrope+tuned")
    assert tuned["longrope+tuned", FULL, 32] == pytest.approx(searched["longrope@2", FULL, 32], abs=1e-6)
    other = model("yarn+tuned", config)
    before = other.rope
    TASK.prepare(other, Planned("yarn+tuned", (), config, "rope"), corpus, config, CPU)
    assert other.rope is before


def test_clex_learns_at_a_rate_of_its_own(corpus: Corpus) -> None:
    config = further(TINY, "tuned")
    clex = model("clex+tuned", config)
    assert isinstance(clex.rope.scaling, CLEX)
    assert clex.rope.scaling.max_factor == 2
    assert clex.lr_multipliers == dict.fromkeys(clex.rope.scaling.parameters(), 0.1)
    assert set(clex.state_dict()) - set(model().state_dict()) == {"rope.scaling.up_proj", "rope.scaling.down_proj"}
    TASK.loss(clex, TASK.batch(corpus, config, 0, 0)).backward()
    down = clex.rope.scaling.down_proj.grad
    assert down is not None
    assert bool(down.abs().sum() > 0)
    frozen = model()
    frozen.load_state_dict(clex.state_dict(), strict=False)
    tokens = torch.arange(16).view(2, 8)
    torch.testing.assert_close(clex(tokens), frozen(tokens), rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_the_command_trains_the_base_once_and_goes_on_where_it_was(tmp_path: Any) -> None:
    (tmp_path / "texts").mkdir()
    for k, document in enumerate(documents(30, 200)):
        (tmp_path / "texts" / f"{k}.txt").write_bytes(document.text)
    typed = [f"--{name.replace('_', '-')}={str(value).strip('()').replace(' ', '')}" for name, value in NUMBERS.items()]
    rows = ("yarn", "longrope@max", "yarn+tuned", "longrope+tuned")
    run = ("--task", "extension", "--data", str(tmp_path / "texts"), *typed)
    assert conftest.run(tmp_path / "run", *run, encodings=rows) == 0
    jobs = {path.name for path in (tmp_path / "run" / "jobs").iterdir()}
    assert jobs == {"rope-seed0", "yarn+tuned-seed0", "longrope+tuned-seed0", "rope+continued-seed0"}
    frame = records_of(tmp_path / "run")
    frame = frame[(frame["metric"] == "bits") & (frame["view"] == FULL)].astype({"spec": str})
    assert set(frame["spec"]) == {"rope", *rows[:1], "longrope@4", *rows[2:], CONTROL}
    means = frame.groupby(["spec", "length"])["value"].mean()
    assert means["yarn", 8] == pytest.approx(means["rope", 8], rel=1e-5)
    assert means["yarn+tuned", 8] != pytest.approx(means["rope", 8], rel=1e-5)
    before = conftest.numbers(tmp_path / "run")
    for spec in ("longrope+tuned", "yarn+tuned"):  # without their results, from their last checkpoints
        (tmp_path / "run" / "jobs" / f"{spec}-seed0" / "records.parquet").unlink()
    assert conftest.run(tmp_path / "run", *run, encodings=rows) == 0
    assert conftest.numbers(tmp_path / "run") == before
