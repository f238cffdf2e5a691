"""Results of attention under an encoding, and its biases, that other people's code gave: one table, one runner.

A row says how to make the encoding of a file from the file's own parameters, and what the call is given. Whose numbers
they are, and how close to come: `README.md`. What is more than a result of attention (tables of buckets, whole layers,
frequencies, rotated tensors) has its test beside the encoding's others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn

from posenc import KERPLE, ALiBi, AttentionSink, Encoding, ForgetGate, T5Bias
from posenc.bias import Sandwich, alibi_slopes
from posenc.score import DAPE, DataDependentALiBi, SSMax
from tests.golden import config, load, names
from tests.samples import BACKENDS, FLOATS, expect_golden, gap

Arrays = Mapping[str, Tensor]
KERNELS = ("auto", "dense", "sdpa", "tiled")


@dataclass
class Call:
    """What attention is given for a file; ``bias`` is where the encoding's own bias is compared."""

    encoding: Encoding
    options: dict[str, object] = field(default_factory=dict)
    bias: tuple[Tensor, Tensor] | None = None  # positions of queries and keys
    gradients: dict[str, Tensor] | None = None  # by the file's name for the parameter; None: none are compared
    slack: float = 10.0  # gradients may be so many times as far off


@dataclass(frozen=True)
class Row:
    """One file, or several that are made alike."""

    files: list[str]
    make: Callable[[Arrays, str], Call]
    backends: tuple[str, ...] = ("auto",)
    tolerance: Mapping[torch.dtype, float] = field(default_factory=lambda: FLOATS)


def holding(encoding: nn.Module, arrays: Arrays, **parameters: Tensor) -> Encoding:
    """The encoding with these parameters, in the dtype of the call."""
    encoding.to(arrays["q"].dtype).load_state_dict(parameters)
    return encoding


def counted(arrays: Arrays) -> tuple[Tensor, Tensor]:
    """Positions 0, 1, 2, … of keys, in the dtype of the call, and of the queries, which are the last."""
    k_pos = torch.arange(arrays["k"].shape[2]).to(arrays["q"].dtype)
    return k_pos[-arrays["q"].shape[2] :], k_pos


def alibi(arrays: Arrays, name: str) -> Call:
    encoding = ALiBi(arrays["q"].shape[1])
    assert gap(torch.tensor(encoding.slopes, dtype=arrays["q"].dtype), arrays["slopes"]) < FLOATS[arrays["q"].dtype]
    return Call(encoding)  # its bias is another row's by a constant: tests/bias/test_alibi.py


def alibi_of_mpt(arrays: Arrays, name: str) -> Call:
    return Call(ALiBi(5), {"causal": False}, bias=counted(arrays))


def alibi_by_positions(arrays: Arrays, name: str) -> Call:
    positions = arrays["positions"]
    return Call(ALiBi(4, slopes=[*alibi_slopes(3), 0.0]), {"q_pos": positions}, bias=(positions, positions))


def alibi_by_whole_positions(arrays: Arrays, name: str) -> Call:
    return Call(alibi_by_positions(arrays, name).encoding, {"q_pos": arrays["positions"].long()})


def kerple(arrays: Arrays, name: str) -> Call:
    kind = "log" if "log" in name else "power"
    encoding = KERPLE(len(arrays["bias_p"]), kind=kind)
    values = {word: arrays[f"bias_{word}"].view_as(getattr(encoding, word)) for word in "pa"}
    return Call(holding(encoding, arrays, **values), bias=counted(arrays))


def sandwich(arrays: Arrays, name: str) -> Call:
    encoding = Sandwich(arrays["bias"].shape[1], dim=int(arrays["d_bar"]))
    return Call(encoding, {"causal": "mask_allowed" in arrays}, bias=counted(arrays))


def t5(arrays: Arrays, name: str) -> Call:
    both, (buckets, heads) = bool(arrays["bidirectional"]), arrays["table"].shape
    encoding = T5Bias(heads, num_buckets=buckets, max_distance=int(arrays["max_distance"]), bidirectional=both)
    return Call(holding(encoding, arrays, weight=arrays["table"]), {"causal": not both}, bias=counted(arrays))


def t5_further_on(arrays: Arrays, name: str) -> Call:
    call, (q_pos, k_pos) = t5(arrays, name), (p.long() for p in counted(arrays))
    return Call(call.encoding, {**call.options, "q_pos": q_pos + 1000, "k_pos": k_pos + 1000})


def fox(arrays: Arrays, name: str) -> Call:
    gates = arrays["log_fgate"].requires_grad_()
    encoding = ForgetGate(16, num_heads=arrays["q"].shape[1])
    return Call(encoding, {"token_states": [gates]}, gradients={"log_fgate": gates}, slack=20)


def data_alibi(arrays: Arrays, name: str) -> Call:
    form = next((form for form in ("bidirectional", "rows") if form in name), "causal")
    scale = {"ddalibi_postlogscale_l9": 0.25, "ddalibi_rows_l9": 0.5}.get(name, 1.0)
    dim, heads = arrays["x"].shape[-1], arrays["q"].shape[1]
    encoding = DataDependentALiBi(dim, num_heads=heads, form=form, post_log_scale=scale)
    bias = {} if form == "rows" else {"bias": arrays["bias_param"]}
    options = {"x": arrays["x"], "causal": form != "bidirectional"}
    return Call(holding(encoding, arrays, weight=arrays["weight"], **bias), options)


def dape(arrays: Arrays, name: str) -> Call:
    heads = arrays["q"].shape[1]
    inner = ALiBi(heads, slopes=arrays["p_slopes"].tolist()) if "p_slopes" in arrays else KERPLE(heads)
    state = {} if "p_slopes" in arrays else {f"bias.{n}": arrays[f"p_bias_{n}"].flatten() for n in "pa"}
    for layer, number in (("inner", 0), ("outer", 2)):
        state |= {f"{layer}.{n}": arrays[f"p_mlp2__{number}__{n}"] for n in ("weight", "bias")}
    return Call(holding(DAPE(inner, heads, hidden=len(arrays["p_mlp2__0__bias"])), arrays, **state))


def sink(arrays: Arrays, name: str) -> Call:
    encoding = holding(AttentionSink(len(arrays["sinks"])), arrays, logits=arrays["sinks"])
    return Call(encoding, {"window": config(name)["sliding_window"]}, gradients={"sinks": encoding.logits})


def ssmax(arrays: Arrays, name: str) -> Call:
    settings = config(name)
    state = {"scale": arrays["s"]} | ({"bias": arrays["b"]} if settings["bias"] else {})
    encoding = holding(SSMax(settings["heads"], bias=settings["bias"]), arrays, **state)
    gradients = {"s": encoding.scale} | ({"b": encoding.bias} if settings["bias"] else {})
    return Call(encoding, {"causal": settings["causal"]}, gradients=gradients, slack=20)


T5 = ["t5_encoder_bidir_l40_h3", "t5_decoder_causal_l150_h2", "t5_decode_q1_k200_h2"]
COARSE = {torch.float64: 1e-11, torch.float32: 1e-4}
ROWS = {
    "alibi": Row(["alibi_causal_h8_l19", "alibi_decode_h12_q1_k23"], alibi, BACKENDS),
    "alibi of mpt": Row(["alibi_mpt_bidirectional_h5_l14"], alibi_of_mpt, BACKENDS),
    "alibi by positions": Row(["alibi_custompos_h3of4_l7"], alibi_by_positions, BACKENDS),
    "alibi by whole positions": Row(["alibi_custompos_h3of4_l7"], alibi_by_whole_positions, BACKENDS),
    "kerple": Row([name for name in names("kerple_*") if "original" not in name], kerple),
    "sandwich": Row(names("sandwich_*"), sandwich, tolerance=COARSE),
    "t5": Row(T5, t5, BACKENDS),
    "t5 further on": Row(T5, t5_further_on, BACKENDS),
    "fox": Row(names("fox_*"), fox),
    "data_alibi": Row(names("ddalibi_*"), data_alibi),
    "dape": Row(names("dape_*"), dape),
    "sink": Row([*names("sinks_*"), *names("softmax1_*")], sink, ("auto", "dense", "tiled")),
    "ssmax": Row(names("ssmax_*"), ssmax, KERNELS),
}
EACH_FLOAT = pytest.mark.parametrize("dtype", FLOATS, ids=str)
EACH_FILE = [(row, name) for row, listed in ROWS.items() for name in listed.files]


@EACH_FLOAT
@pytest.mark.parametrize(
    ("row", "name", "backend"), [(row, name, b) for row, name in EACH_FILE for b in ROWS[row].backends]
)
def test_results(row: str, name: str, backend: str, dtype: torch.dtype) -> None:
    arrays = load(name, dtype)
    call = ROWS[row].make(arrays, name)
    expect_golden(
        arrays, [call.encoding], ROWS[row].tolerance[dtype],
        gradients=call.gradients, slack=call.slack, backend=backend, **call.options,
    )  # fmt: skip


@EACH_FLOAT
@pytest.mark.parametrize(
    ("row", "name"), [(row, name) for row, name in EACH_FILE if ROWS[row].make(load(name), name).bias]
)
def test_biases(row: str, name: str, dtype: torch.dtype) -> None:
    arrays, exact, tolerance = load(name, dtype), load(name), ROWS[row].tolerance[dtype]
    call = ROWS[row].make(arrays, name)
    assert call.bias is not None
    got = call.encoding(*call.bias)
    expected = exact["bias"].view_as(got)
    if row == "kerple":  # whose file says nothing of the future, and whose biases grow
        seen = exact["mask_allowed"].bool()
        got, expected = got[:, seen], expected[:, seen]
        tolerance *= max(1.0, float(expected.abs().max()))
    assert gap(got, expected) < tolerance
