"""Wrong formulas that the tests must notice: ``python -m tests.mutants [PATTERN]`` plants each and runs its tests.

A mutant is one formula with one mistake that people make: a wrong end of a ramp, a missing root, a bucket too far. The
sources are copied, the copy is changed, and the tests named with it have to fail. It takes about ten minutes, so
it is not part of the suite; run it after a change of tests. Exit code 1: some mutant lived, or no name matches.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
MIXED = ("tests/hf/extend/test_longrope2.py",)
STEPS = ("tests/hf/modeling/test_steps.py",)
PACKED = ("tests/hf/modeling/test_packing.py",)
FREQUENCIES = ("tests/frequencies", "tests/rotary/test_rope.py")


class Mutant(NamedTuple):
    """One mistake: text of a source file, and what stands there instead."""

    name: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]


MUTANTS = (
    Mutant("YaRN's ramp: ends not rounded outwards", "frequencies/yarn.py",
           "low, high = low.floor(), high.ceil()", "low, high = low.ceil(), high.floor()", FREQUENCIES),
    Mutant("YaRN's ramp: ends clamped to d/2 - 1", "frequencies/yarn.py",
           "high.clamp(max=2.0 * theta.shape[-1] - 1 if", "high.clamp(max=theta.shape[-1] - 1.0 if", FREQUENCIES),
    Mutant("YaRN's ramp: upside down", "frequencies/yarn.py",
           "stays = 1 - by_index(theta, *options, truncate=self.truncate, scaling=\"YaRN\")",
           "stays = by_index(theta, *options, truncate=self.truncate, scaling=\"YaRN\")", FREQUENCIES),
    Mutant("Llama 3's blend: parts exchanged", "frequencies/llama3.py",
           "(1 - stays) * theta / self.factor + stays * theta", "stays * theta / self.factor + (1 - stays) * theta",
           FREQUENCIES),
    Mutant("Llama 3's blend: ramp in wavelengths", "frequencies/llama3.py",
           "((turns - low) / (high - low)).clamp(0.0, 1.0)",
           "((1 / low - turns**-1) / (1 / low - 1 / high)).clamp(0.0, 1.0)", FREQUENCIES),
    Mutant("dynamic NTK's base: no correction below the original length", "frequencies/ntk.py",
           "scale = (self.factor * longer - (self.factor - 1)).clamp(min=1.0)", "scale = self.factor * longer",
           FREQUENCIES),
    Mutant("dynamic NTK's base: factor forgotten", "frequencies/ntk.py",
           "scale = (self.factor * longer - (self.factor - 1)).clamp(min=1.0)", "scale = longer.clamp(min=1.0)",
           FREQUENCIES),
    Mutant("LongRoPE's gain: logarithms of the wrong length", "frequencies/longrope.py",
           "math.sqrt(1 + math.log(factor) / math.log(original_length))",
           "math.sqrt(1 + math.log(factor) / math.log(original_length * factor))", FREQUENCIES),
    Mutant("LongRoPE's gain: no root", "frequencies/longrope.py",
           "math.sqrt(1 + math.log(factor) / math.log(original_length))",
           "(1 + math.log(factor) / math.log(original_length))", FREQUENCIES),
    Mutant("LongRoPE2's critical pair: rounded down", "frequencies/host.py",
           "math.ceil(pairs * math.log(length / (2 * math.pi * periods), base))",
           "math.floor(pairs * math.log(length / (2 * math.pi * periods), base))", ("tests/search/test_longrope2.py",)),
    Mutant("LongRoPE2's rule: a pair too far", "frequencies/longrope.py",
           "factor ** (pair / critical)", "factor ** ((pair + 1) / critical)", ("tests/search/test_longrope2.py",)),
    Mutant("LongRoPE2's bounds: from 1 on", "search/longrope2.py",
           "range(candidates.theoretical, candidates.first - 1, -1)), factor\n",
           "range(candidates.theoretical, candidates.first - 1, -1)), 1.0\n", ("tests/search/test_longrope2.py",)),
    Mutant("needle's loss: a token of the question counts", "evaluation/needles.py",
           "len(prompt.question) - shared", "len(prompt.question) - shared + 1", MIXED),
    Mutant("mixed windows: documents attend to each other", "hf/extend/tuning.py",
           "mask = None if row.packed else torch.ones_like(row.tokens)", "mask = torch.ones_like(row.tokens)", MIXED),
    Mutant("mixed windows: a document's first token counts", "hf/extend/tuning.py",
           "(positions > 0).expand", "(positions >= 0).expand", MIXED),
    Mutant("mixed windows: kinds weighted alike", "hf/extend/tuning.py",
           " * (len(row.tokens) / recipe.batch)", "", MIXED),
    Mutant("mixed windows: short windows under a gain", "hf/extend/extension.py",
           "gain=1.0 if self.documents else None", "gain=None", MIXED),
    Mutant("ALiBi's slopes: the other half of the finer ladder", "bias/alibi.py",
           "_powers(2 * power, max_exponent)[::2]", "_powers(2 * power, max_exponent)[1::2]", ("tests/bias",)),
    Mutant("ALiBi's slopes: from exponent 0", "bias/alibi.py",
           "for head in range(1, num_heads + 1)]", "for head in range(num_heads)]", ("tests/bias",)),
    Mutant("T5's buckets: upper ends", "bias/t5.py", "right=True) - 1", "right=False) - 1", ("tests/bias",)),
    Mutant("T5's buckets: all logarithmic", "bias/t5.py",
           "exact = buckets // 2\n", "exact = buckets // 4\n", ("tests/bias",)),
    Mutant("T5's buckets: directions exchanged", "bias/t5.py",
           "(distance > 0) * (self.num_buckets // 2)", "(distance < 0) * (self.num_buckets // 2)", ("tests/bias",)),
    Mutant("stick-breaking's sum: the key's own break counts", "weight/stick_breaking.py",
           "left[..., 1:]).exp()", "left[..., :-1]).exp()", ("tests/weight",)),
    Mutant("stick-breaking's sum: logsigmoid of the wrong sign", "weight/stick_breaking.py",
           "log_left = F.logsigmoid(-scores)", "log_left = -F.logsigmoid(scores)", ("tests/weight",)),
    Mutant("FoX's gates: the key's own gate counts", "score/_inputs.py",
           "F.pad(backwards.cumsum(-1).flip(-1), (0, 1))[..., 1:]", "backwards.cumsum(-1).flip(-1)",
           ("tests/score/test_forget.py",)),
    Mutant("FoX's gates: sigmoid in place of its logarithm", "score/forget.py",
           "F.logsigmoid(wide_linear(x, self.weight, self.bias).transpose(1, 2))",
           "-wide_linear(x, self.weight, self.bias).transpose(1, 2).sigmoid()", ("tests/score/test_forget.py",)),
    Mutant("CoPE's interpolation: shares exchanged", "score/cope.py",
           "by_position.gather(-1, first) * (1 - share) + by_position.gather(-1, second) * share",
           "by_position.gather(-1, first) * share + by_position.gather(-1, second) * (1 - share)",
           ("tests/score/test_cope.py",)),
    Mutant("CoPE's interpolation: nearest row", "score/cope.py",
           "share = counts - below", "share = (counts - below).round()", ("tests/score/test_cope.py",)),
    Mutant("exact phase: product in float64", "frequencies/phase.py",
           "return (positions * fractions) * _unit(positions.device)",
           "return (positions.double() * fractions.double() * 2.0**-64) % 1.0 * (2 * math.pi)", FREQUENCIES),
    Mutant("exact phase: carry of the low halves dropped", "frequencies/phase.py",
           "top = near_top + far_top + (rest >> 32)", "top = near_top + far_top", FREQUENCIES),
    Mutant("exact phase: upper half of the position dropped", "frequencies/phase.py",
           "far_top, far_rest = _product(positions >> 31, far)", "far_top, far_rest = _product(positions >> 62, far)",
           FREQUENCIES),
    Mutant("a model's step: encodings that layers share are dropped", "layers/self_attention.py",
           "        acting = self._acting()\n        rotated",
           "        own = [e for e in self.encodings if isinstance(e, Encoding)]\n"
           "        acting = own if cache is not None and x.shape[1] == 1 else self._acting()\n        rotated", STEPS),
    Mutant("a model's step: one position late", "hf/modeling/causal_lm.py",
           "torch.arange(1, tokens + 1, device=x.device)", "torch.arange(2, tokens + 2, device=x.device)", STEPS),
    Mutant("packed rows: documents see each other behind a cache", "hf/modeling/packing.py",
           "return last + begins.cumsum(-1)", "return last + 0 * begins.cumsum(-1)", PACKED),
)  # fmt: skip


def survives(mutant: Mutant) -> str | None:
    """What is wrong if the tests do not fail: None where they do."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        path = source / "posenc" / mutant.file
        text = path.read_text(encoding="utf-8")
        if text.count(mutant.right) < 1:
            return f"{mutant.file} has no {mutant.right!r}: bring the mutant up to date"
        path.write_text(text.replace(mutant.right, mutant.wrong), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", *mutant.tests]
        environment = os.environ | {"PYTHONPATH": f"{source}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
        ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if ran.returncode == 1:
            return None
        return "lives" if ran.returncode == 0 else f"pytest ended with {ran.returncode}: {ran.stdout[-500:]}"


def main(pattern: str = "") -> int:
    chosen = [mutant for mutant in MUTANTS if re.search(pattern, mutant.name)]
    living = 0
    for mutant in chosen:
        trouble = survives(mutant)
        living += trouble is not None
        sys.stdout.write(f"{trouble or 'caught'}: {mutant.name}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(chosen) - living} of {len(chosen)} mutants caught\n")
    return 1 if living or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
