"""Edits of a JSON text: the values that are meant change, and no other character."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from posenc.hf.json_text import REMOVED, edited
from tests.golden import configs

TEXT = '{\n    "a": 1e-6, "b": [1,2],\n    "c": null,\n    "t": {"x": {"y": 1}},\n    "e": "\\u00e9 }\\" {"\n}\n'


@pytest.mark.parametrize(
    ("changes", "old", "new"),
    [
        ({("a",): 2}, "1e-6", "2"),
        ({("b",): [3]}, "[1,2]", "[3]"),
        ({("t", "x", "y"): "z"}, '"y": 1', '"y": "z"'),
        ({("t", "x", "new"): 1}, '"y": 1', '"y": 1, "new": 1'),
        ({("c", "factor"): 2.0}, "null", '{\n        "factor": 2.0\n    }'),
        ({("new", "k"): True}, '{"\n}', '{",\n    "new": {\n        "k": true\n    }\n}'),
        ({("a",): REMOVED}, '"a": 1e-6, ', ""),
        ({("e",): REMOVED}, ',\n    "e": "\\u00e9 }\\" {"', ""),
        ({("t", "x"): REMOVED}, '{"x": {"y": 1}}', "{}"),
        ({("nothing",): REMOVED, ("t", "no", "deep"): REMOVED}, "", ""),
    ],
)
def test_one_place_changes(changes: dict[tuple[str, ...], Any], old: str, new: str) -> None:
    assert edited(TEXT, changes) == TEXT.replace(old, new, 1)


def test_small_and_odd_texts() -> None:
    assert edited("{}", {("a",): 1}) == '{"a": 1}'
    assert edited("{\n}", {("a",): 1}) == '{\n  "a": 1\n}'
    assert edited('{\n\t"a": 1\n}', {("b", "c"): 2}) == '{\n\t"a": 1,\n\t"b": {\n\t\t"c": 2\n\t}\n}'
    assert edited('{"a": 1, "a": 1}', {("a",): 2}) == '{"a": 2, "a": 2}', "a key that stands twice"
    assert edited('{"a": NaN, "b": Infinity}', {("b",): 1}) == '{"a": NaN, "b": 1}'
    with pytest.raises(ValueError, match="a must be an object to hold b"):
        edited('{"a": 1}', {("a", "b"): 2})
    with pytest.raises(ValueError, match="must hold a JSON object"):
        edited("[1]", {("a",): 2})


def test_published_configs() -> None:
    """Random changes of real configs, in three layouts: plain Python gives the same parsed result."""
    draw = random.Random(0)
    for line in configs("published_configs"):
        config = line["config"]
        for indent in (None, 2, "\t"):
            text = json.dumps(config, indent=indent)
            key, value = draw.choice(sorted(config)), draw.choice([1, [1, {"a": 2}], {"b": None}, REMOVED])
            expected = {name: old for name, old in config.items() if name != key or value is not REMOVED}
            if value is not REMOVED:
                expected[key] = value
            result = edited(text, {(key,): value})
            assert json.loads(result) == expected
            assert result == json.dumps(expected, indent=indent), "the layout that the file has"
