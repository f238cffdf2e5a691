"""Writes rope-v1.json: what 241 configurations mean, wherever posenc and transformers agree.

    python -m examples.vectors.make            # needs posenc and transformers; prints how many cases agree

Each case of `benchmarks.engines.cases.vector_cases` is read by posenc, and its config is given to transformers' own
rotary module. A case goes into the file only where all frequencies and gains agree to 1e-6 (transformers keeps them in
float32); else it is printed as disputed. cos and sin are computed in float64 from posenc's frequencies, which are
correctly rounded.
"""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import torch
from benchmarks.engines.cases import Case, vector_cases
from benchmarks.engines.transformers_rotary import rotary_module, transformers_frequencies
from transformers import AutoConfig

from posenc.hf import model_from_config, read_rope
from posenc.hf.config.rotation import text_rope

FILE = Path(__file__).with_name("rope-v1.json")
ORIGINAL, HEAD, TOLERANCE, DIGITS = 4096, 64, 1e-6, 12


def positions(original: int) -> list[int]:
    """Twelve positions: the first, some within the original length, its end, and beyond it to its fourfold."""
    parts = (original // 8, original // 4, original // 2, original - 1, original, 2 * original - 1, 2 * original)
    return [0, 1, 2, 7, *parts, 4 * original - 1]


def vector(case: Case) -> dict[str, Any]:
    """One case as plain numbers; a LookupError that says by how much posenc and transformers differ."""
    read = read_rope(case.config)
    module = rotary_module(AutoConfig.for_model(**copy.deepcopy(case.config)))
    layers = model_from_config(read).layers
    kinds: dict[str, Any] = {}
    for kind, rotation in read.rotations.items():
        if rotation is None:
            kinds[kind] = None
            continue
        rope = text_rope(rotation)
        spectrum = rope.spectrum(case.length)
        theta, gain = spectrum.theta.tolist(), float(spectrum.gain)
        expected, expected_gain = transformers_frequencies(module, case.length, kind)
        if len(theta) != len(expected):
            raise LookupError(f"{case.name}: {len(theta)} and {len(expected)} pairs")
        gap = max(abs(a - b) / (b or 1.0) for a, b in zip(theta, expected, strict=True))
        if max(gap, abs(gain / expected_gain - 1)) > TOLERANCE:
            raise LookupError(f"{case.name}: frequencies differ by {gap:.1e}, gains {gain} and {expected_gain}")
        pairs = sorted({0, len(theta) // 3, 2 * len(theta) // 3, len(theta) - 1})
        angles = [[position * theta[pair] for pair in pairs] for position in positions(case.original)]
        kinds[kind] = {
            "layout": rope.layout, "rotary_dim": rope.rotary_dim, "inv_freq": theta, "gain": gain, "pairs": pairs,
            "cos": [[_short(gain * math.cos(angle)) for angle in row] for row in angles],
            "sin": [[_short(gain * math.sin(angle)) for angle in row] for row in angles],
        }  # fmt: skip
    layer_facts = [{"kind": layer.kind, "rotates": layer.spec is not None, "window": layer.window} for layer in layers]
    return {
        "name": case.name, "config": case.config, "length": case.length, "positions": positions(case.original),
        "layers": layer_facts, "kinds": kinds,
    }  # fmt: skip


def _short(number: float) -> float:
    return float(f"{number:.{DIGITS}g}")


def content() -> tuple[dict[str, Any], list[str]]:
    """The file, and the cases on which posenc and transformers differ."""
    written, disputed = [], []
    for case in vector_cases(ORIGINAL, HEAD):
        try:
            written.append(vector(case))
        except LookupError as error:
            disputed.append(str(error))
    import transformers

    about = "cos and sin are times the gain; kinds: null is a kind of layers that does not rotate; see README.md"
    return {
        "format": 1, "licence": "CC0-1.0", "about": about,
        "agreed": f"posenc and transformers {transformers.__version__}, frequencies and gains to {TOLERANCE:g}",
        "cases": written,
    }, disputed  # fmt: skip


def main() -> None:
    torch.set_num_threads(1)
    written, disputed = content()
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in written.pop("cases"))
    head = json.dumps(written, indent=1).removesuffix("\n}")
    FILE.write_text(f'{head},\n "cases": [\n{lines}\n]\n}}\n', encoding="utf-8")
    print(f"{lines.count(chr(10)) + 1} cases agree, {len(disputed)} are disputed", *disputed, sep="\n")


if __name__ == "__main__":
    main()
