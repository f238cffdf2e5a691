"""What an extension compares: rows, equal budgets, what starts from what, what a search sees."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import torch
from tests.lab import conftest
from tests.lab.test_corpora import documents
from tests.lab.test_text import CPU

from posenc import RoPE
from posenc.lab.config import Config
from posenc.lab.data.corpus import Corpus, make_corpus
from posenc.lab.data.documents import Source
from posenc.lab.metrics import FULL, WINDOW
from posenc.lab.models.decoder import Decoder
from posenc.lab.run.folder import records_of
from posenc.lab.tasks.extension import (
    CONTROL,
    DISTANCES,
    SCALED,
    STANDARD,
    ExtendedDecoder,
    Extension,
    moved,
    options_of,
    parse_row,
    search_piece_ends,
    trained_of,
)
from posenc.lab.tasks.task import Planned

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


@pytest.mark.parametrize(
    "row",
    [
        "yarm", "alibi", "clex", "yarn@", "yarn@8", "yarn@4+tuned", "yarn+tuned@4", "yarn+alibi", "clipped@4",
        "dynamic_ntk@4", "dynamic_ntk+resonance", "rope+window", "rope+resonance", "pi+continued", "drope+tuned",
        "drope@4", "rerope+tuned", "self_extend+resonance", "dual_chunk@4", "self_extend@8",
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_measured_is_refused(row: str) -> None:
    with pytest.raises(ValueError, match=re.escape(row)):
        TASK.plan([row], TINY)


@pytest.mark.parametrize("numbers", [{"fine_tune_length": 3}, {"batch_size": 6, "fine_tune_length": 4}, {"further": 2}])
def test_numbers_that_cannot_work_are_refused(numbers: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"--{next(iter(numbers)).replace('_', '-')}"):
        TASK.check(TINY.replaced(numbers))


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
