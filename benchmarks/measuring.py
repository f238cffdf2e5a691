"""What the benchmarks share: timing against a base, peak memory of one call, the encodings, the header of a result."""

from __future__ import annotations

import ctypes
import gc
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import timing
import torch
from timing import Run, memory_of
from torch import Tensor, nn

from posenc import ALiBi, AttentionSink, Encoding, ForgetGate, LogN, RoPE, ScoreEncoding, T5Bias
from posenc.bias import FIRE, KERPLE, Sandwich
from posenc.rotary import PoPE
from posenc.score import (
    DAPE,
    GRAPEA,
    CoPE,
    DualChunk,
    Mixture,
    PaTH,
    SelectiveRoPE,
    SelfExtend,
    Shaw,
    SSMax,
    StreamingLLM,
    TokenRelativeBias,
    TransformerXL,
)
from posenc.weight import StickBreaking

FEW, SLOW = 3, 4.0  # a candidate that takes more than SLOW times as long as the base is timed FEW times


class Measured(NamedTuple):
    """Medians over the rounds."""

    ratio: float  # to the base, run immediately before and after
    seconds: float


class Row(NamedTuple):
    """One encoding, or list of them, as the benchmarks run it."""

    encodings: list[Encoding]
    level: float = 0.0  # mean of the scores
    tolerance: float = 0.0

    @property
    def reads_x(self) -> bool:
        readers = (PaTH, SelectiveRoPE, TokenRelativeBias)
        return any((isinstance(e, ForgetGate) and e.kind == "data") or isinstance(e, readers) for e in self.encodings)

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [p for e in self.encodings for p in e.parameters()]

    def token_states(self, x: Tensor) -> list[Tensor | None]:
        """What a cache keeps besides keys and values."""
        return [e.token_state(x) if isinstance(e, ScoreEncoding) and self.reads_x else None for e in self.encodings]


def encoding_rows(heads: int, width: int, dim: int) -> dict[str, Row]:
    """Every encoding that is measured. Tables that start at zero, or nearly so, get values of a trained size."""
    torch.manual_seed(0)
    cope, forget = CoPE(width, max_position=64), ForgetGate(dim, num_heads=heads)
    nn.init.normal_(cope.table, std=width**-0.5)
    slow = ForgetGate(dim, num_heads=heads, kind="bias", decay_time=(100, 2000))
    return {
        "NoPE": Row([]),
        "RoPE": Row([RoPE(width)]),
        "ALiBi": Row([ALiBi(heads)]),
        "T5": Row([T5Bias(heads, init_std=1.0)]),
        "KERPLE": Row([KERPLE(heads)]),
        "Sandwich": Row([Sandwich(heads)]),
        "FIRE": Row([FIRE(heads)]),
        "FoX, gates near 0.5": Row([forget]),
        "FoX, gates near 0.99": Row([slow]),
        "Shaw": Row([Shaw(width, max_distance=16)]),
        "Transformer-XL": Row([TransformerXL(dim, num_heads=heads, head_dim=width)]),
        "PaTH": Row([PaTH(dim, head_dim=width, num_kv_heads=heads)]),
        "PaTH-FoX": Row([PaTH(dim, head_dim=width, num_kv_heads=heads), ForgetGate(dim, num_heads=heads, scaled=True)]),
        "CoPE": Row([cope]),
        "DAPE": Row([DAPE(KERPLE(heads))]),
        "DAPE over FIRE": Row([DAPE(FIRE(heads, leak=0.01))]),
        "mixture of RoPE, ALiBi and NoPE": Row([Mixture([RoPE(width), ALiBi(heads), []], num_heads=heads)]),
        "two CoPEs": Row([cope, CoPE(width, max_position=16)]),
        "CoPE, gates near 0": Row([cope], level=-6.0),
        "stick-breaking": Row([StickBreaking()]),
        "stick-breaking, tolerance 1e-3": Row([StickBreaking()], tolerance=1e-3),
        "stick-breaking, long sticks": Row([StickBreaking()], level=-8.0),
        "RoPE + ALiBi": Row([RoPE(width), ALiBi(heads)]),
        "RoPE + FoX": Row([RoPE(width), forget]),
        "RoPE + sink": Row([RoPE(width), AttentionSink(heads)]),
        "RoPE + SSMax": Row([RoPE(width), SSMax(heads)]),
        "RoPE + log n": Row([RoPE(width), LogN(512)]),
        "FoX + SSMax + sink": Row([SSMax(heads), forget, AttentionSink(heads)]),
        "token-relative bias": Row([TokenRelativeBias(dim, num_heads=heads, max_distance=128, init_std=0.2)]),
        "PoPE": Row([PoPE(width, num_heads=heads)]),
        "Selective RoPE": Row([SelectiveRoPE(dim, head_dim=width, num_kv_heads=heads)]),
        "GRAPE-A": Row([GRAPEA(width, num_heads=heads)]),
        "Self-Extend": Row([SelfExtend(RoPE(width), window=1024, group=8)]),
        "Dual Chunk": Row([DualChunk(RoPE(width))]),
        "StreamingLLM": Row([StreamingLLM(RoPE(width), window=2048)]),
    }


def random_qkv(
    shape: Sequence[int], key_shape: Sequence[int], std: float = 1.0, level: float = 0.0
) -> tuple[Tensor, ...]:
    """Normal q, k and v in float32, whose scores q·k/√width have this standard deviation and mean."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(*s, generator=generator) for s in (shape, key_shape, key_shape))
    q, k = q * std**0.5, k * std**0.5
    if level:
        q[..., 0], k[..., 0] = 1.0, level * shape[-1] ** 0.5
    return q, k, v


def interleaved(candidates: Mapping[str, Run], rounds: int) -> dict[str, list[float]]:
    """Seconds of each candidate in each round; one warm-up round is not counted."""
    warm = {name: timing.Candidate(run, timing.seconds_of(run)) for name, run in candidates.items()}
    return {name: [*taken.values()] for name, taken in timing.interleaved(warm, rounds=rounds).items()}


def ratios(seconds: Mapping[str, list[float]], base: str) -> dict[str, float]:
    """The median over rounds of each candidate's time over the base's in the same round."""
    rounds = {name: dict(enumerate(times)) for name, times in seconds.items()}
    return {name: timing.relative(times, rounds[base]).median for name, times in rounds.items()}


def paired(candidates: Mapping[str, Run], base: Run, rounds: int) -> dict[str, Measured]:
    """Like `interleaved`, with the base before and after each candidate: the machine's load meets both alike.

    A round is base, first, base, second, base, …; a ratio is to the mean of the two bases around.
    """
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in candidates}
    for repetition in range(rounds + 1):
        before = timing.seconds_of(base)
        for name, run in candidates.items():
            if len(taken[name]) >= FEW and _medians(taken[name]).ratio > SLOW:
                continue
            seconds, after = timing.seconds_of(run), timing.seconds_of(base)
            if repetition:
                taken[name].append((seconds, (before + after) / 2))
            before = after
    return {name: _medians(pairs) for name, pairs in taken.items()}


def _medians(pairs: list[tuple[float, float]]) -> Measured:
    return Measured(
        statistics.median(time / base for time, base in pairs), statistics.median(time for time, _ in pairs)
    )


def peak_growth(run: Run, warm: Run | None = None) -> float:
    """MiB by which the process's peak resident memory rises above its level before one call (Linux).

    ``warm`` is called before: a smaller call that brings thread pools and code pages; default the call itself.
    """
    (warm or run)()
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # start the peak anew
    before = _status("VmRSS")
    run()
    return (_status("VmHWM") - before) / 1024


def tensors_peak(run: Run) -> float:
    """MiB that the tensors which one call makes hold at most at the same time, whatever else the allocator keeps."""
    held = memory_of(run, torch.device("cpu")).bytes
    assert held is not None
    return held / 2**20


def _status(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(key + ":"))


def header(title: str, peers: Sequence[str] = ()) -> str:
    """Command, versions, machine and threads, as the first lines of a result."""
    command = "python " + " ".join([f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    versions = "".join(f", {peer} {_version(peer)}" for peer in peers)
    return (
        f"# {title}\n\n"
        f"- command: `{command}`\n"
        f"- torch {torch.__version__}{versions}, Python {platform.python_version()}, "
        f"threads {torch.get_num_threads()}\n"
        f"- machine: {processor()}\n"
    )


def store(text: str, name: str) -> None:
    """Keep a result as results/NAME.md."""
    target = Path(__file__).parent / "results" / f"{name}.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text(text)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def processor() -> str:
    """The machine's processor in words."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                flags = " with AMX" if "amx_bf16" in info.read_text() else ""
                return line.split(":", 1)[1].strip() + flags
    return platform.processor() or platform.machine()
