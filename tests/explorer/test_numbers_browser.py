"""What the page computes, in a browser, against Python's numbers: relative 1e-9."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import posenc
from posenc import RoPE, read_attention
from posenc.catalogue import CATALOGUE
from posenc.frequencies.phase import Frequencies, angles
from posenc.hf import PRESETS, read_rope
from posenc.hf.config.rope_config import model_from_config
from posenc.hf.config.rotation import text_rope
from tests.explorer.drawn import bias_of, scaling_of, scaling_options
from tests.fuzz.draw import Draw
from tests.hf.checkpoints import CHECKPOINTS

pytestmark = pytest.mark.browser
SCALINGS = sorted({entry.scaling.__name__ for entry in CATALOGUE.values() if entry.scaling is not None})
BIASES = ("ALiBi", "T5Bias", "KERPLE", "Sandwich", "FIRE")
DTYPES = {name: getattr(torch, name) for name in ("bfloat16", "float16", "float32", "float64")}


class Page:
    """The page in the browser, asked for numbers."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser

    def __call__(self, script: str, inputs: object = None) -> Any:
        return self.browser.execute_script(f"const o = JSON.parse(arguments[0]); {script}", json.dumps(inputs))


@pytest.fixture(scope="module")
def ask(browser: Any, explorer: Path) -> Page:
    browser.get(explorer.as_uri())
    return Page(browser)


def near(actual: object, expected: torch.Tensor, *, absolute: float = 0.0) -> None:
    torch.testing.assert_close(torch.tensor(actual, dtype=torch.float64), expected.double(), rtol=1e-9, atol=absolute)


def test_the_page_knows_every_scaling(ask: Page) -> None:
    assert sorted(ask("return Object.keys(numbers.scalings)")) == SCALINGS
    offered = ask("return page.scalingChoices.map(([name]) => name).filter(Boolean)")
    assert sorted(offered) == SCALINGS, "a person can choose each"


@pytest.mark.parametrize("name", SCALINGS)
def test_frequencies_under_a_scaling(ask: Page, name: str) -> None:
    draw = Draw(sum(map(ord, name)))
    for _ in range(2 if name == "CLEX" else 8):
        dim, base = 2 * draw.integer(2, 64), 10 ** draw.number(1.5, 8)
        options = scaling_options(name, dim // 2, draw)
        length = draw.choice([None, round(options.get("original_length", 4096) * draw.number(0.5, 9))])
        expected = RoPE(dim, base=base, scaling=scaling_of(name, options, dim // 2)).spectrum(length)
        keywords = {"dim": dim, "base": base, "length": length, "scalings": [{"name": name, **options}]}
        actual = ask("return numbers.spectrum(o)", keywords)
        near(actual["theta"], expected.theta.detach())
        near(actual["gain"], expected.gain)


def test_scalings_compose(ask: Page) -> None:
    draw = Draw(0)
    parts = [
        (name, scaling_options(name, 32, draw)) for name in ("YaRN", "Resonance", "Clipped", "PositionInterpolation")
    ]
    full = torch.nn.Sequential(*[scaling_of(name, options, 32) for name, options in parts])
    expected = RoPE(64, base=5e5, scaling=full).spectrum()
    keywords = {"dim": 64, "base": 5e5, "scalings": [{"name": name, **options} for name, options in parts]}
    actual = ask("return numbers.spectrum(o)", keywords)
    near(actual["theta"], expected.theta)
    near(actual["gain"], expected.gain)


@pytest.mark.parametrize("name", BIASES)
def test_biases(ask: Page, name: str) -> None:
    draw = Draw(sum(map(ord, name)))
    for _ in range(6):
        heads, query = draw.integer(1, 9), draw.integer(0, 4000)
        bias, options = bias_of(name, heads, draw)
        keys = sorted({max(0, query - draw.integer(0, 3000)) for _ in range(20)} | {query, query + 3})
        with torch.no_grad():
            expected = bias(torch.tensor([float(query)]).double(), torch.tensor(keys).double())[..., 0, :]
        keywords = {"name": name, "options": options, "heads": heads, "query": query, "keys": keys}
        actual = ask(
            "const bias = numbers.biases[o.name](o.options);"
            "return Array.from({length: o.heads}, (_, h) => o.keys.map(key => bias(h, key - o.query, o.query)))",
            keywords,
        )
        near(actual, expected, absolute=1e-9 if name in ("Sandwich", "FIRE") else 0.0)  # sums that may cancel


def test_scores_of_a_list(ask: Page) -> None:
    draw = Draw(1)
    options = scaling_options("YaRN", 16, draw)
    rope, alibi, kerple = (
        RoPE(32, scaling=scaling_of("YaRN", options, 16)),
        bias_of("ALiBi", 4, draw),
        bias_of("KERPLE", 4, draw),
    )
    ones, places = torch.ones(1, 4, 64, 32).double(), torch.arange(64).double() * 31
    with torch.no_grad():
        scores = read_attention(
            ones, ones, None, [rope, alibi[0], kerple[0]], q_pos=places, k_pos=places, scale=7.5 / 32
        ).scores[0, :, -1]
    biases = [{"name": "ALiBi", **alibi[1]}, {"name": "KERPLE", **kerple[1]}]
    keywords = {"spectrum": {"dim": 32, "base": 1e4, "scalings": [{"name": "YaRN", **options}]}, "biases": biases}
    result = ask(
        "const score = numbers.scorer({strength: 7.5, biases: o.biases, rope: numbers.spectrum(o.spectrum)});"
        "return [0, 1, 2, 3].map(h => Array.from({length: 64}, (_, j) => score(h, (j - 63) * 31, 63 * 31)))",
        keywords,
    )
    near(result, scores, absolute=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_attention_by_content(ask: Page, seed: int) -> None:
    source = torch.Generator().manual_seed(seed)
    q, k, x = (2 * torch.randn(1, 1, 12, 8, generator=source).double() for _ in range(3))
    scores = (q @ k.transpose(-1, -2) * 8**-0.5)[0, 0]
    cope, fox = posenc.score.CoPE(8, max_position=5).double(), posenc.ForgetGate(8, num_heads=1).double()
    with torch.no_grad():
        cope.table.copy_(torch.randn(8, 6, generator=source))
        assert fox.weight is not None
        fox.weight.copy_(torch.randn(1, 8, generator=source))
        keywords = {"scores": scores.tolist(), "gates": scores.tolist(), "by_position": (q @ cope.table)[0, 0].tolist()}
        near(
            ask("return numbers.cope(o).weights", keywords),
            read_attention(q, k, None, [cope]).weights[0, 0],
            absolute=1e-15,
        )
        gates = fox.token_state(x[0])
        assert gates is not None
        keywords = {"scores": scores.tolist(), "log_gates": gates[0, 0].tolist()}
        expected = read_attention(q, k, None, [fox], x=x[0]).weights[0, 0]
        near(ask("return numbers.fox(o).weights", keywords), expected, absolute=1e-15)
        for options in ({"attend_current": True, "remainder": "drop"}, {"attend_current": False, "remainder": "own"}):
            sticks = posenc.weight.StickBreaking(**options)
            actual = ask("return numbers.stickBreaking(o)", {"scores": (5 * scores).tolist(), **options})
            expected = read_attention(q, k, None, [sticks], scale=5 * 8**-0.5).weights[0, 0]
            near(actual["weights"], expected, absolute=1e-15)


def test_errors_of_angles(ask: Page) -> None:
    draw = Draw(2)
    theta = RoPE(64, base=5e5).spectrum().theta
    positions = sorted({round(2 ** draw.number(0, 24)) for _ in range(60)})
    p = torch.tensor(positions)
    script = "return o.positions.map(p => o.theta.map(t => numbers.angleError(p, t, o.dtype)))"
    for name, dtype in DTYPES.items():
        angle = (p.to(dtype)[:, None] * theta.to(dtype)).double()
        off = angle - p.double()[:, None] * theta
        expected = (off - 2 * torch.pi * (off / (2 * torch.pi)).round()).abs()
        result = ask(script, {"positions": positions, "theta": theta.tolist(), "dtype": name})
        finite = torch.isfinite(angle)
        answers = torch.tensor([[float("inf") if e is None else e for e in row] for row in result], dtype=torch.float64)
        assert torch.equal(torch.isfinite(answers), finite)
        torch.testing.assert_close(answers[finite], expected[finite], rtol=1e-9, atol=1e-15)
    actual = angles(p, Frequencies(theta.tolist()), torch.float32).double()
    off = actual - p.double()[:, None] * theta
    worst = (off - 2 * torch.pi * (off / (2 * torch.pi)).round()).abs().max()
    script = "return Math.max(...o.positions.flatMap(p => o.theta.map(t => numbers.exactError(p, t))))"
    assert 1e-7 < ask(script, {"positions": positions, "theta": theta.tolist()}) < 2.5e-7
    assert worst < 4e-7, "posenc itself keeps what the page says of it"


CONFIGS = {**{name: config for name, (config, _) in CHECKPOINTS.items()}, **PRESETS}


def test_pasted_configurations_are_read_as_posenc_reads_them_or_not_at_all(ask: Page) -> None:
    judged = []
    for name, config in CONFIGS.items():
        actual = ask(
            "const found = numbers.readConfig(o, page.data.forms);"
            "for (const one of Object.values(found.kinds))"
            "  one.spectrum = numbers.spectrum({...one, dim: one.rotaryDim, length: one.longest});"
            "return found",
            config,
        )
        if not actual["judged"]:
            assert actual["findings"], name
            continue
        judged.append(name)
        read = read_rope(config)
        assert set(actual["kinds"]) == {kind for kind, rope in read.layers.items() if rope is not None}, name
        for kind, shown in actual["kinds"].items():
            rotation = read.layers[kind]
            assert rotation is not None
            rope = text_rope(rotation)
            expected = rope.spectrum(shown["longest"])
            assert (shown["dim"], shown["rotaryDim"], shown["layout"]) == (
                rope.head_dim,
                rope.rotary_dim,
                rope.layout,
            ), name
            near(shown["spectrum"]["theta"], expected.theta)
            near(shown["spectrum"]["gain"], expected.gain)
        layers = model_from_config(config).layers
        assert actual["layers"] is None or actual["layers"] == [layer.kind for layer in layers], name
    assert len(judged) > len(CONFIGS) / 3, f"the common forms are read: {judged}"
    assert {"llama-2-7b", "llama-3.1-8b", "gpt-oss-20b", "qwen2-vl-7b", "phi-3.5-mini"} <= set(judged)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ([], "configuration"),
        ({}, "rope_parameters"),
        ({"model_type": "gemma3_text"}, "model_type"),
        ({"model_type": "llama", "head_dim": 64, "alibi": True}, "alibi"),
        ({"model_type": "llama", "head_dim": 63}, "head_dim"),
        ({"model_type": "llama", "head_dim": 64, "rope_scaling": {"type": "linear"}}, "factor"),
        ({"model_type": "llama", "head_dim": 64, "rope_scaling": {"type": "linear", "factor": "4"}}, "factor"),
        ({"model_type": "llama", "head_dim": 64, "rope_scaling": {"type": "new"}}, "rope_type"),
        ({"model_type": "llama", "head_dim": 64, "rope_scaling": {"type": "linear", "factor": 2, "beta": 1}}, "beta"),
        ({"model_type": "llama", "head_dim": 64, "rope_theta": 1e4, "rope_scaling": {"rope_theta": 1e5}}, "rope_theta"),
    ],
)
def test_what_the_page_cannot_judge_it_says(ask: Page, config: object, key: str) -> None:
    result = ask("return numbers.readConfig(o, page.data.forms)", config)
    assert not result["judged"]
    assert [(item["level"], item["key"]) for item in result["findings"]] == [("fault", key)]
    assert result["findings"][0]["text"]
