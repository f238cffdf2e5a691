"""How far a call walks: the library's own functions and files on the way from the front door to the arithmetic.

Counted, not timed, with `sys.setprofile`, in the second call of a kind. A number that grows is a check that is made
twice, a step that goes through a detour, or a function that no longer fits on a screen.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

import pytest
import torch

import posenc
import posenc.call
import posenc_cli
from posenc import ALiBi, RoPE, attention
from posenc.layers import KVCache, SelfAttention
from tests.golden import configs

SOURCE = str(Path(posenc.__file__).parent)
LONGEST = 60  # lines of a function on these ways, its docstring apart


def walk_of(call: Callable[[], object]) -> list[CodeType]:
    """The library's functions in the order in which a call enters them; also comprehensions, before Python 3.12."""
    entered: list[CodeType] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            entered.append(frame.f_code)

    with torch.no_grad():
        call()
        sys.setprofile(note)
        try:
            call()
        finally:
            sys.setprofile(None)
    return entered


@cache
def lengths_of(path: str) -> dict[int, int]:
    """Lines of each function of a file, its docstring apart, by its first line, which is that of a decorator."""
    lengths: dict[int, int] = {}
    for node in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            docstring = node.body[0] if ast.get_docstring(node) else None
            described = 0 if docstring is None else (docstring.end_lineno or 0) - docstring.lineno + 1
            lengths[first] = (node.end_lineno or 0) - node.lineno + 1 - described
    return lengths


def plain_call(encoding: posenc.Encoding, heads: int, *, given: bool) -> Callable[[], object]:
    q, k, v = torch.randn(3, 1, heads, 64, 128)
    at = torch.arange(64) if given else None
    return lambda: attention(q, k, v, [encoding], q_pos=at, k_pos=at)


def decode_step() -> Callable[[], object]:
    layer, cache, token = SelfAttention(512, 8, encodings=[RoPE(64)]), KVCache(), torch.randn(1, 1, 512)
    with torch.no_grad():
        layer(torch.randn(1, 10, 512), cache=cache)
    return lambda: layer(token, cache=cache)


WAYS: dict[str, tuple[Callable[[], Callable[[], object]], int, int]] = {
    "rope": (lambda: plain_call(RoPE(128), 16, given=True), 60, 14),
    "rope, default positions": (lambda: plain_call(RoPE(128), 16, given=False), 60, 14),
    "alibi": (lambda: plain_call(ALiBi(16), 16, given=False), 70, 16),
    "decode step of a layer": (decode_step, 62, 14),
    "alibi, given positions": (lambda: plain_call(ALiBi(16), 16, given=True), 70, 16),
}


@pytest.mark.parametrize("name", WAYS)
def test_how_far_a_call_walks(name: str) -> None:
    make, calls, files = WAYS[name]
    walk = walk_of(make())
    steps = "\n".join(f"{Path(code.co_filename).relative_to(SOURCE)}: {code.co_name}" for code in walk)
    assert len(walk) <= calls, steps
    assert len({code.co_filename for code in walk}) <= files, steps
    too_long = {
        code.co_name: length
        for code in walk
        if (length := lengths_of(code.co_filename).get(code.co_firstlineno, 0)) > LONGEST
    }
    assert not too_long


def test_default_positions_are_made_for_those_who_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor of them is a kernel for a GPU to launch, and a bias by distance needs none."""
    made: list[int] = []
    default_pair = posenc.call.default_pair
    monkeypatch.setattr(posenc.call, "default_pair", lambda q, k: made.append(1) or default_pair(q, k))
    q, k, v = torch.randn(3, 1, 8, 64, 8)
    call = posenc.call.prepare_call(q[:, :, -5:], k, v, [ALiBi(8)])
    assert call.distance_row().shape == (8, 68)
    assert not made
    assert (call.q_pos.tolist(), call.k_pos.tolist()) == ([*range(59, 64)], [*range(64)])
    assert len(made) == 1


COMMANDS = {  # by command and model: the most functions and files, and of those what is no rule
    ("explain", "Qwen/Qwen3-8B"): (150, 25, 130),
    ("explain", "google/gemma-3-1b-it"): (155, 25, 130),
    ("doctor", "Qwen/Qwen3-8B"): (150, 25, 110),
    ("extend --length 131072 --config-only", "Qwen/Qwen3-8B"): (150, 25, 150),
}


@pytest.mark.parametrize(("command", "model"), COMMANDS, ids=[" ".join(way) for way in COMMANDS])
def test_a_config_is_walked_through_once(command: str, model: str, tmp_path: Path) -> None:
    config = next(line["config"] for line in configs("published_configs") if line["model"] == model)
    (tmp_path / "config.json").write_text(json.dumps(config))

    def run() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            name, *options = command.split()
            assert posenc_cli.run([name, str(tmp_path / "config.json"), *options]) == 0

    entered = [code for code in walk_of(run) if not code.co_name.startswith("<")]
    functions = {(code.co_filename, code.co_firstlineno) for code in entered}
    most, most_files, without_rules = COMMANDS[command, model]
    assert len(functions) <= most, len(functions)
    assert len({path for path, _ in functions}) <= most_files
    assert sum("/hf/rules/" not in path for path, _ in functions) <= without_rules
    assert max(lengths_of(path).get(line, 0) for path, line in functions) <= LONGEST


def test_what_is_counted() -> None:
    """The walk holds what a call enters, and the lengths are of functions that are on it."""
    walk = walk_of(lambda: attention(*torch.randn(3, 1, 2, 4, 8)))
    names = [code.co_name for code in walk]
    assert {"attention", "prepare_call", "kernel"} <= set(names)
    assert lengths_of(attention.__wrapped__.__code__.co_filename)[attention.__wrapped__.__code__.co_firstlineno] > 20
