"""Which encodings generated tasks train, which they send back, and where each ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from posenc.lab.model import Decoder
from posenc.lab.sequences.specs import defined
from posenc.lab.specs import catalogue_order, standard_encodings
from posenc.lab.tasks import SEQUENCES, read_settings, task_named, to_record
from posenc.lab.tasks.sequences import TASKS


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("profile", ["quick", "standard", "full"])
def test_profiles_are_sound(name: str, profile: str) -> None:
    task = task_named(name)
    chosen = task.profile(profile)
    task.check(chosen.settings)
    specs, remark = task.specs(chosen.encodings, chosen.settings, control=True)
    assert (specs, remark) == (list(chosen.encodings), "")
    assert chosen.seeds >= 2
    assert all(defined(spec, chosen.settings, chosen.settings.train_length) for spec in specs)
    shown = chosen.settings.shown()
    assert shown["lengths"].startswith("1×, 2×")
    assert read_settings(json.loads(json.dumps(to_record(chosen.settings))), Path()) == chosen.settings


@pytest.mark.parametrize("name", SEQUENCES)
def test_every_encoding_of_text_takes_part(name: str) -> None:
    task = task_named(name)
    everything = [*standard_encodings(), "rope+alibi", "rope+window"]
    assert task.specs(everything, task.profile("quick").settings, control=True)[0] == everything
    assert set(standard_encodings()) <= set(task.profile("full").encodings)
    assert name == "addition" or set(standard_encodings()) <= set(task.profile("standard").encodings)


@pytest.mark.parametrize(
    ("name", "spec", "words"),
    [
        ("passkey", "axial", "have 2 coordinates, those of text one; --task images compares it"),
        ("copy", "yarn", "yarn stretches a model"),
        ("recall", "abacus", "abacus: its positions are not places in the text"),
        ("addition", "mrope", "positions of MRoPE have 3 coordinates"),
        ("counting", "roep", "did you mean 'rope'"),
        ("flipflop", "swin", "2 coordinates"),
    ],
)
def test_what_has_no_place_in_a_sequence_is_sent_back(name: str, spec: str, words: str) -> None:
    task = task_named(name)
    with pytest.raises(ValueError, match=words):
        task.specs([spec], task.profile("quick").settings, control=True)


def test_tables_end_where_their_rows_do() -> None:
    settings = TASKS["addition"].profile("quick").settings
    n = settings.train_length
    assert defined("learned", settings, n)
    assert not defined("learned", settings, n + 1)
    assert not defined("abacus+learned", settings, n + 1, 1)
    assert defined("rope+window", settings, 100 * n)
    assert defined("abacus+rope", settings, 100 * n, settings.shape.ids - 1)
    assert not defined("abacus+rope", settings, n, settings.shape.ids)


def test_abacus_reads_ids_and_others_read_places() -> None:
    shape = TASKS["addition"].profile("quick").settings.shape
    model = Decoder("abacus+learned", shape, hidden=32, seed=0, vocabulary=13)
    assert model.head.weight.shape[0] == model.embed.weight.shape[0] == 13
    abacus, learned = model.embedding_encodings
    assert abacus.table.shape[0] == shape.ids
    assert learned.table.shape[0] == shape.train_length
    tokens, ids = torch.randint(13, (2, 9)), torch.randint(shape.ids, (2, 9))
    with torch.no_grad():
        with pytest.raises(ValueError, match="ids must be given"):
            model(tokens)
        before = model(tokens, ids=ids)
        assert not torch.allclose(before, model(tokens, ids=(ids + 1) % shape.ids))
        abacus.table.zero_()
        assert torch.equal(model(tokens, ids=ids), model(tokens, ids=(ids + 1) % shape.ids))


def test_the_order_of_the_catalogue() -> None:
    specs = ["mine:Own", "rope", "nope", "alibi", "rope+alibi"]
    assert sorted(specs, key=catalogue_order) == ["nope", "rope", "rope+alibi", "alibi", "mine:Own"]
