"""Edits of a config's text: the values that are meant change, and no other character of a file that a program wrote."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from posenc.hf.sources.config_files import REMOVED, edited
from tests.golden import configs

TEXT = '{\n    "a": 1e-6, "b": 1.50,\n    "c": null,\n    "t": {"x": {"y": 1}},\n    "e": "\\u00e9 }\\" {"\n}\n'
LAID_OUT = """{
    "a": 1e-6,
    "b": 1.50,
    "c": null,
    "t": {
        "x": {
            "y": 1
        }
    },
    "e": "\\u00e9 }\\" {"
}
"""


@pytest.mark.parametrize(
    ("changes", "old", "new"),
    [
        ({}, "", ""),
        ({("a",): 2}, "1e-6", "2"),
        ({("b",): "3"}, "1.50", '"3"'),
        ({("t", "x", "y"): "z"}, '"y": 1', '"y": "z"'),
        ({("t", "x", "new"): 1}, '"y": 1', '"y": 1,\n            "new": 1'),
        ({("c", "factor"): 2.0}, "null", '{\n        "factor": 2.0\n    }'),
        ({("new", "k"): True}, '{"\n}', '{",\n    "new": {\n        "k": true\n    }\n}'),
        ({("a",): REMOVED}, '"a": 1e-6,\n    ', ""),
        ({("e",): REMOVED}, ',\n    "e": "\\u00e9 }\\" {"', ""),
        ({("nothing",): REMOVED, ("t", "no", "deep"): REMOVED, ("a", "deep"): REMOVED}, "", ""),
    ],
)
def test_one_place_changes(changes: dict[tuple[str, ...], Any], old: str, new: str) -> None:
    """A file that somebody laid out by hand gets the layout of the others, with the same numbers and letters."""
    assert edited(LAID_OUT, changes) == edited(TEXT, changes) == LAID_OUT.replace(old, new, 1)


def test_small_and_odd_texts() -> None:
    assert edited("{}", {("a",): 1}) == '{"a": 1}'
    assert edited("{\n}", {("a",): 1}) == '{\n  "a": 1\n}'
    assert edited('{\n\t"a": 1\n}', {("b", "c"): 2}) == '{\n\t"a": 1,\n\t"b": {\n\t\t"c": 2\n\t}\n}'
    assert edited('{"a": 1, "a": 1}', {("a",): 2}) == '{"a": 2}', "a key that stands twice"
    assert edited('{"a": NaN, "b": Infinity}', {("b",): 1}) == '{"a": NaN, "b": 1}'
    assert edited('{"a":"\\u00001.5","é":1.50}', {("b",): 1}) == '{"a":"\\u00001.5","é":1.50,"b":1}'
    assert edited('{\r\n  "a": 1\r\n}\r\n', {("b",): 1}) == '{\r\n  "a": 1,\r\n  "b": 1\r\n}\r\n'
    with pytest.raises(ValueError, match="a must be an object to hold b"):
        edited('{"a": 1}', {("a", "b"): 2})
    with pytest.raises(ValueError, match="must hold a JSON object"):
        edited("[1]", {("a",): 2})


def test_published_configs() -> None:
    """Random changes of real configs, in four layouts: plain Python gives the same text."""
    draw = random.Random(0)
    layouts: list[dict[str, Any]] = [{}, {"separators": (",", ":")}, {"indent": 2}, {"indent": "\t"}]
    for line in configs("published_configs"):
        config = line["config"]
        for layout in layouts:
            text = json.dumps(config, **layout)
            assert edited(text, {}) == text
            key, value = draw.choice(sorted(config)), draw.choice([1, [1, {"a": 2}], {"b": None}, REMOVED])
            expected = {name: old for name, old in config.items() if name != key or value is not REMOVED}
            if value is not REMOVED:
                expected[key] = value
            assert edited(text, {(key,): value}) == json.dumps(expected, **layout), "the layout that the file has"


@pytest.mark.parametrize("pretty", [True, False])
def test_a_tokenizer_json(pretty: bool) -> None:
    """As the package tokenizers writes it, with numbers and tokens that could be taken for one another."""
    tokenizers = pytest.importorskip("tokenizers")
    pieces = [("<unk>", 0.0), ("▁the", -3.4567891234), ("\0", -1e-7), ("\0001.5", -12.0), ('é\n"\\/\x7f\u2028😀', -1.0)]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, 0))
    tokenizer.enable_truncation(512)
    text, shorter = tokenizer.to_str(pretty), ("512", "128")
    assert edited(text, {}) == text
    assert edited(text, {("truncation", "max_length"): 128}) == text.replace(*shorter)
