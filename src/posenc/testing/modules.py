"""Modules as PyTorch knows them: state dicts, copies, pickles."""

from __future__ import annotations

import copy
import pickle

import torch

from posenc.encoding import Encoding
from posenc.testing.cases import EVERYWHERE, Case, Probe, applies_to, tokens_of
from posenc.testing.compare import expect, expect_different, expect_same
from posenc.testing.numerics import result


@applies_to(*EVERYWHERE)
def state_dict_is_parameters(case: Case) -> None:
    """A state dict holds the parameters alone, of sizes that no call changes; modules have no floating buffer."""
    encodings = case.make()
    probe = Probe(case, encodings, dtype=torch.float32)
    before = shapes(encodings)
    for tokens in (3, min(case.max_length, 100)):
        probe(tokens_of(case, tokens, dtype=torch.float32), case.positions(torch.arange(tokens)))
    expect(shapes(encodings) == before, f"after calls the state dict holds {shapes(encodings)}, before {before}")
    for encoding in encodings:
        parameters, state = set(dict(encoding.named_parameters())), set(encoding.state_dict())
        expect(state == parameters, f"the state dict holds {sorted(state)}, the parameters are {sorted(parameters)}")
        bare = [name for name, parameter in encoding.named_parameters() if parameter.ndim == 0]
        expect(not bare, f"parameters {bare} have no axis, by which FSDP2 shards them: make them of size (1,)")
        floating = [name for name, b in encoding.named_buffers() if b.is_floating_point() or b.is_complex()]
        expect(not floating, f"buffers {floating} would be rounded by a cast and lost by to_empty")


def shapes(encodings: list[Encoding]) -> list[dict[str, tuple[int, ...]]]:
    """Names and shapes of the state dicts."""
    return [{name: tuple(t.shape) for name, t in encoding.state_dict().items()} for encoding in encodings]


@applies_to(*EVERYWHERE)
def strict_load(case: Case) -> None:
    """A state dict loads strictly into a new encoding of another initialisation, which then is the same encoding."""
    source, other = case.make(), case.make(seed=5)
    expected = result(case, source)
    if any(True for encoding in source for _ in encoding.parameters()):
        expect_different("before loading", result(case, other), expected)
    for encoding, loaded in zip(other, source, strict=True):
        encoding.load_state_dict(loaded.state_dict(), strict=True)
    expect_same("after loading", result(case, other), expected)


@applies_to(*EVERYWHERE)
def deep_copy(case: Case) -> None:
    """A deep copy, as a moving average of the weights takes, does the same and shares nothing."""
    encodings = case.make()
    expected, copied = result(case, encodings), copy.deepcopy(encodings)
    expect_same("the copy", result(case, copied), expected)
    with torch.no_grad():
        for parameter in (p for encoding in copied for p in encoding.parameters()):
            parameter.zero_()
    expect_same("the original, after its copy was changed", result(case, encodings), expected)


@applies_to(*EVERYWHERE)
def pickled(case: Case) -> None:
    """Pickled and read again, as process launchers do with models, it is the same. Its class must be importable."""
    encodings = case.make()
    again: list[Encoding] = pickle.loads(pickle.dumps(encodings))
    expect_same("read from a pickle", result(case, again), result(case, encodings))


@applies_to(*EVERYWHERE)
def readable(case: Case) -> None:
    """``repr`` shows the class and its sizes on one line, so that printing a model tells what it encodes with."""
    for encoding in case.make():
        text = encoding.extra_repr()
        expect(bool(text) and "\n" not in text, f"extra_repr() of {type(encoding).__name__} is {text!r}")
