"""Mutated configurations: read right, or refused by a `ValueError` that names the key; never anything else.

Each configuration of a broad corpus is changed one to three times (`tests.hf.config.mutations`). Then `read_rope`
either answers, and so do `facts`, `as_text`, and `to_config`, whose round trip is the identity; or it raises a
`ValueError` that names the key. Where transformers answers too, its frequencies and
gains are ours, or a finding says what transformers does instead.

The quick suite takes 300 mutations of a fixed seed, without transformers. The slow test takes 10,000 of a seed that it
prints, with transformers; POSENC_FUZZ_SEED and POSENC_FUZZ_COUNT in the environment give others:

    POSENC_FUZZ_SEED=7 POSENC_FUZZ_COUNT=50000 pytest -m slow tests/fuzz/test_configurations.py -s
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import random
import resource
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest
import torch

from posenc.hf import PRESETS, as_text, facts, read_rope
from posenc.hf.config.rope_config import RopeConfig
from posenc.hf.config.text_config import find_text_config
from posenc.hf.families import NON_ROTARY, ROTARY
from tests.hf.checkpoints import CHECKPOINTS
from tests.hf.config.mutations import KEYS, Config, Mutation, mutated

SECONDS = 30  # a guard against what never ends: the slowest answer takes a fraction of one
MEGABYTES = 512  # that the whole test may add to what the process holds
LENGTHS = (None, 1000, 5000, 300_000)
POSENC = ["rope", "yarn+alibi", "nope", [{"name": "longrope", "options": {"short": [1.0] * 16, "long": [2.0] * 16}}],
          [{"name": "rope", "shared": True, "options": {"base": 5e5}}, {"name": "t5"}]]  # fmt: skip


def corpus() -> list[Config]:
    """Configurations as they are in the wild."""
    configs = [config for config, _ in CHECKPOINTS.values()] * 4 + list(PRESETS.values()) * 2
    configs += [{"model_type": name, "max_position_embeddings": 512, "hidden_size": 64} for name in sorted(NON_ROTARY)]
    configs += [
        {"model_type": "posenc", "hidden_size": 64, "num_attention_heads": 2, "encodings": item} for item in POSENC
    ]
    return configs


class HangsError(AssertionError):
    """A configuration is neither read nor refused."""


@contextmanager
def bounded() -> Iterator[None]:
    """Ends what takes longer than any configuration may."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise HangsError(f"no answer within {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check_refusal(error: ValueError, config: Config, done: list[Mutation]) -> None:
    """The error names a key and is of a length to read."""
    text = str(error)
    problems = text.split("\nfound: ")[0]
    names = [name for mutation in done for name in mutation.names]
    if any(not mutation.names for mutation in done):  # a key went, or came: whatever needs it may be named
        names += [*KEYS, *config]
    assert any(name in problems for name in names), f"names none of {names[:6]}: {text[:500]}"
    assert len(problems) < 6000, f"an error of {len(problems)} characters"


def refusal(call: Callable[[], object]) -> str:
    """The text of the ValueError that a call raises; "" where it raises none."""
    try:
        call()
    except ValueError as error:
        return str(error)
    return ""


def check_answer(read: RopeConfig, config: Config) -> None:
    """All that is told of it can be told, and it is written as it was read."""
    json.dumps(facts(read), allow_nan=False)
    assert as_text(read).count("\n") < 400
    assert json.dumps(read.to_config()) == json.dumps(config)
    version = 4 + len(config) % 2  # either, as it falls out
    refusal(lambda: read.to_config(version))


def judge(config: Config, done: list[Mutation]) -> RopeConfig | None:
    """What was read, or None where it was refused; an AssertionError for anything but the two."""
    before = json.dumps(config)
    try:
        with bounded():
            read = read_rope(config)
            check_answer(read, config)
    except ValueError as error:
        with bounded():
            check_refusal(error, config, done)
        return None
    finally:
        assert json.dumps(config) == before, "the caller's configuration is left alone"
    return read


def run(seed: int, count: int, configs: list[Config], *, compare: bool) -> Counter[str]:
    """How many were read, refused and compared; fails with all that went wrong."""
    rng, seen, wrong = random.Random(seed), Counter[str](), []
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(count):
        config, done = mutated(rng.choice(configs), rng)
        try:
            read = judge(config, done)
            seen["refused" if read is None else "read"] += 1
            if read is not None and compare:
                seen["compared"] += compared(read)
        except Exception as error:
            message = "; ".join(mutation.words for mutation in done)
            wrong.append(f"number {number}: {message}\n{_short(config)}\n{type(error).__name__}: {str(error)[:1500]}")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held) / 1024
    assert not wrong, f"seed {seed}: {len(wrong)} of {count}\n\n" + "\n\n".join(wrong[:20])
    assert compare or grown < MEGABYTES, f"{grown:.0f} MB more than before"  # transformers' modules are large
    return seen


def _short(config: Config) -> str:
    text = json.dumps(config)
    return text if len(text) < 1500 else text[:1500] + "…"


def compared(read: RopeConfig) -> int:
    """1 where transformers answers and rotates equally, or a finding says what it does; 0 where it does not answer."""
    reference = importlib.import_module("tests.hf.transformers_models")
    text_config = find_text_config(read.config)
    try:
        with bounded():
            module = reference.rotary_module(
                {**text_config, "model_type": TEXT.get(text_config.model_type, text_config.model_type)}
            )
            flat = hasattr(module, "inv_freq")
            rotations = {
                (kind, length): reference.transformers_frequencies(module, length, "all" if flat else kind)
                for kind, rope in read.layers.items()
                for length in (LENGTHS if rope is not None else ())
            }
    except HangsError:
        raise
    except Exception:  # whatever it fails with: it does not answer
        return 0
    if not rotations or not all(bool(torch.isfinite(theta).all()) for theta, _ in rotations.values()):
        return 0
    reported = any("transformers" in finding.text for finding in read.findings)
    for (kind, length), (theta, gain) in rotations.items():
        rope = read.layers[kind]
        spectrum = getattr(rope, "rope", rope).spectrum(length)
        same = theta.shape == spectrum.theta.shape and torch.allclose(theta.double(), spectrum.theta, rtol=1e-4, atol=0)
        same = same and abs(float(gain) / float(spectrum.gain) - 1) < 1e-5
        assert same or reported, (
            f"{kind} at {length}: theirs {gain}, {theta[:4]} …, ours {spectrum.gain}, {spectrum.theta[:4]} …"
        )
    return 1


TEXT = {"qwen2_vl": "qwen2_vl_text", "qwen2_5_vl": "qwen2_5_vl_text", "ernie4_5_moe_vl": "ernie4_5_vl_moe_text"}


def test_some_mutations() -> None:
    seen = run(seed=14, count=150, configs=corpus(), compare=False)
    assert min(seen["read"], seen["refused"]) > 30, f"too one-sided to tell anything: {seen}"


@pytest.mark.slow
def test_ten_thousand_mutations(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    logging.getLogger("transformers").setLevel(logging.CRITICAL)
    seed = int(os.environ.get("POSENC_FUZZ_SEED", random.SystemRandom().randrange(10**6)))
    count = int(os.environ.get("POSENC_FUZZ_COUNT", "10000"))
    with capsys.disabled():
        print(f"\nPOSENC_FUZZ_SEED={seed} POSENC_FUZZ_COUNT={count}")  # noqa: T201
    seen = run(seed, count, corpus() + defaults(), compare=True)
    with capsys.disabled():
        print(dict(seen))  # noqa: T201
    assert seen["compared"] > count // 50, f"transformers took part in too few: {seen}"


def defaults() -> list[Config]:
    """What transformers itself saves for every family with a rotation."""
    reference = importlib.import_module("tests.hf.transformers_models")
    configs = []
    for name in ROTARY:
        try:
            cls, rotary, _ = reference.model_of(TEXT.get(name, name))
        except LookupError:
            continue
        config = {**cls().to_dict(), "model_type": name}
        if rotary is not None and not refusal(lambda config=config: read_rope(config)):  # some defaults do not fit
            configs.append(config)
    return configs
