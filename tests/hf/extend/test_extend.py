"""Extended models: the rotation, the measurements, the written folder, and that a stop loses nothing."""

from __future__ import annotations

import copy
import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
)

from posenc import RoPE, YaRN
from posenc.evaluation.likelihood import token_losses, windows_of
from posenc.evaluation.report import Evaluation, Reading
from posenc.hf import read_rope
from posenc.hf.attach import attach, load
from posenc.hf.attach.live_model import inspect
from posenc.hf.attach.loading import load_causal_lm
from posenc.hf.attach.rotary_modules import RotaryModules
from posenc.hf.attach.scaling_methods import BY_NEEDLES, DISTANCES
from posenc.hf.extend import METHODS, Extension, extend
from posenc.hf.extend.extension import Decoding, decoding_gap
from posenc.hf.plan.plan import Refused
from tests.hf.attach.smallest import built
from tests.hf.extend.extended import TARGET, TRAINED, request, saved, small, text
from tests.hf.gguf.files import as_gguf

logging.getLogger("transformers").setLevel(logging.CRITICAL)
FACTOR = TARGET / TRAINED
BLOCKS: dict[str, dict[str, Any]] = {  # as people write them by hand
    "pi": {"rope_type": "linear", "factor": FACTOR},
    "ntk": {"rope_type": "default", "rope_theta": 10000.0 * FACTOR ** (16 / 14)},
    "yarn": {"rope_type": "yarn", "factor": FACTOR, "original_max_position_embeddings": TRAINED, "beta_fast": 4.0},
    "llama3": {
        "rope_type": "llama3", "factor": FACTOR, "original_max_position_embeddings": TRAINED, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    },
    "dynamic_ntk": {"rope_type": "dynamic", "factor": 1.0},
}  # fmt: skip

LIKE_OTHERS = ("part_ntk", "yarn_by_turns", "rerope", "leaky_rerope", "dual_chunk", "lm_infinite")


def logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        output: torch.Tensor = model(ids).logits
    return output


@pytest.mark.parametrize("method", BLOCKS)
def test_turns_as_a_model_that_was_built_with_this_block(method: str) -> None:
    model, ids = small(), text(TARGET)[None]
    before = logits(model, ids)
    config = LlamaConfig(**{**model.config.to_dict(), "rope_parameters": {"rope_theta": 10000.0, **BLOCKS[method]}})
    reference = LlamaForCausalLM(config).eval()
    reference.load_state_dict(model.state_dict())
    extension = extend(model, TARGET, method, **request())
    torch.testing.assert_close(logits(model, ids), logits(reference, ids), rtol=0, atol=1e-5)
    assert (logits(model, ids) - before).abs().max() > 0.1
    assert extension.model is model
    assert inspect(model).agrees


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(m, marks=[pytest.mark.slow] if m in LIKE_OTHERS else [])
        for m in (*METHODS, "yarn+resonance", "longrope+resonance")
        if m not in (*BLOCKS, BY_NEEDLES)  # whose documents need more tokens than these: test_longrope2.py
    ],
)
def test_the_folder_opens_alone_with_the_same_logits(method: str, tmp_path: Path) -> None:
    model, ids = small(), text(TARGET)[None]
    before = logits(model, ids)
    extension = extend(model, TARGET, method, out=tmp_path / "out", **request())
    again = load(tmp_path / "out") if method in DISTANCES else AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert torch.equal(logits(again, ids), logits(extension.model, ids))
    assert (logits(again, ids) - before).abs().max() > 0.05
    assert not list(tmp_path.glob("*.work"))
    assert "vLLM" in (tmp_path / "out" / "SERVING.md").read_text()
    if method.endswith("+resonance"):
        wavelengths = 2 * torch.pi / read_rope(extension.model.config.to_dict()).layers["all"].spectrum(TARGET).theta
        assert (wavelengths - wavelengths.round()).abs().max() < 1e-6 * TARGET
    if extension.config:  # a rope type: both spellings say it, each by itself
        written = json.loads((tmp_path / "out" / "config.json").read_text())
        newer = {key: value for key, value in written.items() if key not in ("rope_theta", "rope_scaling")}
        older = {key: value for key, value in written.items() if key != "rope_parameters"}
        for length in (TRAINED, TARGET):
            spectra = [read_rope(item).rope.spectrum(length) for item in (newer, older)]
            assert torch.equal(spectra[0].theta, spectra[1].theta)
            assert spectra[0].gain == spectra[1].gain


def test_only_layers_that_see_far_are_stretched() -> None:
    model = small("gemma3_text", sliding_window=16, layer_types=["sliding_attention", "full_attention"])
    before = copy.deepcopy(model.config.rope_parameters)
    extend(model, TARGET, "yarn", **request())
    after = model.config.rope_parameters
    assert after["sliding_attention"] == before["sliding_attention"]
    assert after["full_attention"]["rope_type"] == "yarn"
    assert inspect(model).agrees


def test_a_scaling_that_is_there_stays() -> None:
    block = {"rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 32, "low_freq_factor": 1.0,
             "high_freq_factor": 4.0, "rope_theta": 10000.0}  # fmt: skip
    model = small(rope_parameters=block)
    inner = model.model.rotary_emb.inv_freq.clone()
    extend(model, TARGET, "pi", **request())
    torch.testing.assert_close(model.model.rotary_emb.inv_freq, inner / FACTOR)
    with pytest.raises(ValueError, match=r"Llama3.*yarn"):
        extend(small(rope_parameters=block), TARGET, "yarn", **request())
    model = small(rope_parameters=block)
    assert extend(model, TARGET, **request()).method == "llama3", "as the config alone would be extended"
    assert model.config.rope_parameters == {**block, "factor": 2.0 * FACTOR}


KIMI = {  # Kimi-K2's block for a shorter text: a step, and a factor on the softmax
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": TRAINED // 4, "beta_fast": 1.0,
    "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "rope_theta": 50000.0,
}  # fmt: skip


@pytest.mark.parametrize("method", ["yarn", "auto"])
def test_the_factor_of_yarn_grows_and_the_softmax_with_it(method: str) -> None:
    model, ids = small("deepseek_v3", rope_parameters=KIMI), text(TARGET)[None]
    config = copy.deepcopy(model.config)
    config.rope_parameters = {**KIMI, "factor": 4 * FACTOR}
    reference = type(model)(config).eval()
    reference.load_state_dict(model.state_dict())
    before = logits(model, ids)
    extension = extend(model, TARGET, method, **request())
    assert extension.method == "yarn"
    assert model.config.rope_parameters == config.rope_parameters
    assert model.config.max_position_embeddings == TARGET
    torch.testing.assert_close(logits(model, ids), logits(reference, ids), rtol=0, atol=1e-5)
    assert (logits(model, ids) - before).abs().max() > 1e-2
    assert inspect(model).agrees


@pytest.mark.parametrize("method", ["ntk", "pi", "llama3", "dynamic_ntk", "longrope"])
def test_yarn_that_scales_the_softmax_is_not_lost(method: str) -> None:
    model, ids = small("deepseek_v3", rope_parameters=KIMI), text(TARGET)[None]
    before, block = logits(model, ids), copy.deepcopy(model.config.rope_parameters)
    with pytest.raises(ValueError, match="scaled already"):
        extend(model, TARGET, method, **request())
    assert model.config.rope_parameters == block
    assert torch.equal(logits(model, ids), before)


@pytest.mark.parametrize("method", ["yarn", "ntk", "pi", "dynamic_ntk", "longrope"])
def test_factors_that_depend_on_the_length_are_not_scaled_again(method: str) -> None:
    pairs = built("phi3").config.hidden_size // built("phi3").config.num_attention_heads // 2
    block = {"rope_type": "longrope", "short_factor": [1.1] * pairs, "long_factor": [3.0] * pairs,
             "original_max_position_embeddings": TRAINED // 4, "rope_theta": 10000.0}  # fmt: skip
    model = small("phi3", sliding_window=None, rope_parameters=block, original_max_position_embeddings=TRAINED // 4)
    with pytest.raises(ValueError, match=r"scaled already.*self_extend"):
        extend(model, TARGET, method, **request())
    assert inspect(model).agrees
    with pytest.raises(Refused) as refusal:
        extend(model, TARGET, **request())
    assert refusal.value.code == "longrope"
    assert extend(model, TARGET, "self_extend", **request()).method == "self_extend"  # the advice works


@pytest.mark.parametrize("method", ["yarn", "llama3", "pi", "ntk_by_parts", "auto"])
def test_a_config_class_that_takes_few_rope_types_gets_factors(method: str, tmp_path: Path) -> None:
    model = small("phi3", sliding_window=None, original_max_position_embeddings=TRAINED, partial_rotary_factor=0.5)
    done = extend(model, TARGET, method, out=tmp_path / "new", **request())
    opened, ids = AutoModelForCausalLM.from_pretrained(tmp_path / "new"), text(TARGET)[None]
    assert opened.config.rope_parameters["rope_type"] in ("default", "longrope")
    for length in (TRAINED // 2, TRAINED, TRAINED + 1, TARGET):
        assert torch.equal(logits(opened, ids[:, :length]), logits(done.model, ids[:, :length]))


def test_a_config_class_that_takes_few_rope_types_has_no_dynamic_ntk() -> None:
    model = small("phi3", sliding_window=None, original_max_position_embeddings=TRAINED)
    with pytest.raises(ValueError, match="dynamic"):
        extend(model, TARGET, "dynamic_ntk", **request())


def test_refuses_by_name() -> None:
    late = small()
    late.config.rope_parameters = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    near = small("mistral", sliding_window=16)
    for model, says in (
        (torch.nn.Linear(2, 2), "model"),
        (attach(small(), "alibi"), "detach"),
        (late, "model|config"),
        (near, "64"),
        (built("qwen2_vl_text"), "M-RoPE"),
    ):
        with pytest.raises(ValueError, match=says):
            extend(model, TARGET, "yarn", **request())
    for arguments, says in (
        ({"method": "yarm"}, "yarn"), ({"method": "dynamic_yarn"}, "dynamic_ntk"),
        ({"method": "llama3+resonances"}, "method"), ({"length": TRAINED}, "length.*64"),
        ({"length": 3 * TRAINED, "method": "string"}, "string"), ({"windows": 90}, "--text"),
        ({"lengths": [2 * TARGET]}, "lengths"), ({"text": None}, "text"),
        ({"method": "progressive"}, "examples.long_context.progressive"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=says):
            extend(small(), **{"length": TARGET, "method": "yarn", **request(), **arguments})


def test_what_fails_leaves_the_model_as_it_was() -> None:
    model = small()
    rotations, ids = RotaryModules(model), text(TARGET)[None]
    before, config = logits(model, ids), model.config.to_dict()
    with pytest.raises(Exception, match="nonsense"):
        rotations.rebuild({"rope_parameters": {"rope_type": "nonsense", "rope_theta": 10000.0}})
    assert model.config.to_dict() == config
    assert torch.equal(logits(model, ids), before)


def extension_of(cut: tuple[float, ...], after: tuple[float, ...]) -> Extension:
    """Of windows whose losses are known."""
    readings = [Reading(name, "perplexity", 128, n, loss, 0.1) for name, losses in (("cut", cut), ("yarn", after))
                for n, loss in enumerate(losses)]  # fmt: skip
    settings = {"model": "M", "trained_length": 64, "documents": [{}] * len(cut)}
    return Extension("yarn", 64, 128, Evaluation(settings, tuple(readings)), ROUNDED, {})


ROUNDED = Decoding(64, 1e-7, 1e-7, "float32", False)


def test_an_improvement_is_a_lower_loss_than_that_of_the_cut_text() -> None:
    better, worse = extension_of((3.0, 3.1), (2.8, 2.91)), extension_of((3.0, 3.1), (3.3, 3.41))
    noise, single = extension_of((3.0, 3.1), (3.1, 3.02)), extension_of((3.0,), (2.9,))
    assert [item.is_improvement for item in (better, worse, noise, single)] == [True, False, None, None]
    assert json.loads(json.dumps(better.record()))["is_improvement"] is True
    assert "shows nothing" in str(single) or "nothing is shown" in str(single)


@pytest.mark.parametrize(
    ("before", "after", "dtype", "equal"),
    [
        (1e-6, 1e-6, "float32", True), (1e-6, 5e-2, "float32", False), (2e-2, 2.1e-2, "bfloat16", True),
        (2e-2, 0.4, "bfloat16", False), (0.0, 2e-2, "bfloat16", True), (0.0, 2e-2, "float32", False),
    ],
)  # fmt: skip
def test_a_gap_of_decoding_is_held_against_the_model_before(
    before: float, after: float, dtype: str, equal: bool
) -> None:
    assert Decoding(256, before, after, dtype, False).equal is equal


@pytest.mark.parametrize("method", ["yarn", "dynamic_ntk"])
def test_decoding_in_bfloat16(method: str, tmp_path: Path) -> None:
    """A bfloat16 model has a gap before it is extended; a reason is given to frequencies that depend on the length."""
    small().save_pretrained(tmp_path)
    extension = extend(tmp_path, TARGET, method, dtype="bfloat16", **request())
    assert extension.decoding.before > 1e-4
    assert extension.decoding.dtype == "bfloat16"
    assert extension.decoding.length_dependent == (method != "yarn")
    assert method != "yarn" or extension.decoding.equal


@pytest.mark.parametrize("method", ["yarn", "self_extend", "auto", "longrope"])
def test_what_does_not_apply_is_refused_before_anything_is_measured(method: str, tmp_path: Path) -> None:
    printed: list[str] = []
    config = MistralConfig(**{**small().config.to_dict(), "model_type": "mistral", "sliding_window": TRAINED // 2})
    model = MistralForCausalLM(config).eval()
    with pytest.raises(ValueError, match="layer"):
        extend(model, TARGET, method, **request(), out=tmp_path / "longer", progress=printed.append)
    assert printed == []
    assert not list(tmp_path.iterdir()), "the state of a refused call would stand in the way of the next one"


@pytest.mark.parametrize("method", ["yarn", "auto"])
def test_a_missing_width_on_which_transformers_fails_is_named_before_anything_is_measured(method: str) -> None:
    printed: list[str] = []
    sizes = {**small().config.to_dict(), "model_type": "mixtral", "head_dim": None, "num_local_experts": 2}
    model = MixtralForCausalLM(MixtralConfig(**sizes)).eval()
    with pytest.raises(ValueError, match=r"head_dim: \d+"):
        extend(model, TARGET, method, **request(), progress=printed.append)
    assert printed == []


def test_decoding_is_told() -> None:
    model, ids = small(), text(TRAINED + 4)
    assert decoding_gap(model, ids, 8) < 1e-4
    extend(model, TARGET, "longrope", **request())  # short and long factors: cached keys were rotated by short ones
    assert decoding_gap(model, ids, 8) > 1e-2


def test_a_stopped_extension_reads_nothing_twice(tmp_path: Path) -> None:
    def run(out: str, stop: int) -> tuple[Extension, list[str]]:
        lines: list[str] = []

        def tell(line: str) -> None:
            lines.append(line)
            if len(lines) == stop:
                raise KeyboardInterrupt

        return extend(small(), TARGET, "longrope", out=tmp_path / out, progress=tell, **request()), lines

    whole, every = run("whole", 0)
    for stop in (2, 2, 5):
        with pytest.raises(KeyboardInterrupt):
            run("parts", stop)
        assert not (tmp_path / "parts").exists()
    parts, rest = run("parts", 0)
    readings = [line for line in every if "perplexity" in line]
    assert len(readings) == 6  # as_is, cut and the method, two windows each at one length
    assert sum("perplexity" in line for line in rest) < len(readings) - 3
    assert parts.config == whole.config
    values = [[reading.value for reading in each.evaluation.readings] for each in (whole, parts)]
    assert values[0] == values[1]
    assert not list(tmp_path.glob("*.work"))


def test_the_readings_are_those_of_evaluate() -> None:
    """The loss of each window is the model's own, under the rotation before and after, and of the cut text."""
    model, tokens = small(), text()
    original, done = copy.deepcopy(model), extend(model, TARGET, "yarn", **request(lengths=[TRAINED, TARGET]))
    windows = windows_of(tokens, TARGET, 2, 8)
    for method, of, length in (("as_is", original, TARGET), ("cut", original, TRAINED), ("yarn", model, TARGET)):
        for n, end in enumerate(windows.ends):
            loss = token_losses(of, tokens[end - length : end], 8).double().mean()
            assert done.evaluation.values("perplexity", TARGET, method)[n] == pytest.approx(float(loss), abs=1e-6)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    saved(tmp_path / "mine", small())
    before = {path.name: path.read_bytes() for path in (tmp_path / "mine").iterdir()}
    with pytest.raises(ValueError, match="mine"):
        extend(tmp_path / "mine", TARGET, "pi", out=tmp_path / "mine", **request())
    assert {path.name: path.read_bytes() for path in (tmp_path / "mine").iterdir()} == before
    extend(tmp_path / "mine", TARGET, "pi", out=tmp_path / "mine", overwrite=True, **request())
    assert json.loads((tmp_path / "mine" / "config.json").read_text())["rope_parameters"]["rope_type"] == "linear"


def test_a_gguf_file_turns_as_it_says(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    model, file = small(), tmp_path / "gguf" / "model.gguf"
    file.parent.mkdir()
    scaling = {"original_context_length": 64, "factor": 4.0, "type": "yarn"}
    as_gguf(
        model, file, base=5000.0, context_length=256, **{f"rope.scaling.{key}": item for key, item in scaling.items()}
    )
    loaded = load_causal_lm(file)
    assert loaded.tokenizer is None
    want = RoPE(16, base=5000.0, scaling=YaRN(4.0, original_length=64)).spectrum()
    rotary: Any = loaded.model.model.rotary_emb
    torch.testing.assert_close(rotary.inv_freq.double(), want.theta, rtol=1e-6, atol=0)
    assert rotary.attention_scaling == pytest.approx(float(want.gain))
    out = tmp_path / "out"
    done = extend(file.parent, 512, "pi", text=text(), windows=1, lengths=[512], out=out)  # on top of what it has
    torch.testing.assert_close(done.model.model.rotary_emb.inv_freq.double(), want.theta / 2, rtol=1e-6, atol=0)
    again, ids = AutoModelForCausalLM.from_pretrained(out), text(100)[None]
    torch.testing.assert_close(logits(again, ids), logits(done.model, ids), rtol=0, atol=1e-5)
