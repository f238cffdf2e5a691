"""Wrong formulas that the tests must notice: ``python -m tests.mutants [PATTERN]`` plants each and runs its tests.

A mutant is one line with one mistake that people make: a wrong end of a ramp, a missing root, a bucket too far, a
window one key too wide, a dropped row of a cache. The tests named with it, all of them quick, have to fail. Each is
tried in a forked process whose loader reads the changed text (`tests.mutation`); all of them take some minutes, so it
is not part of the suite: run it after a change of tests. Exit code 1: some mutant lived, or no name matches.

Mistakes that nobody thought of: `tests.drawn_mutants`.
"""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

from tests.mutation import SOURCE, catches, outcome

NEEDLES, MIXED = ("tests/hf/extend/test_longrope2.py",), ("tests/long_context/test_progressive.py",)
_TRAINING = "../../examples/long_context"
STEPS = ("tests/hf/modeling/test_modeling.py",)
PACKED = ("tests/hf/modeling/test_packing.py",)
FREQUENCIES = ("tests/golden/test_frequencies.py",)
ROTATIONS = ("tests/golden/test_rotations.py",)
PHASE = ("tests/frequencies/test_phase.py",)
CALLS = ("tests/fuzz/test_attention.py",)
CACHES = ("tests/fuzz/test_caches.py",)
EDITS, EDITED = ("tests/layers/test_keep_and_join.py",), ("tests/hf/test_caches.py",)
RESULTS = ("tests/golden/test_attention.py",)
BIASES = ("tests/golden/test_biases.py",)
SCORES = ("tests/golden/test_scores.py",)
DROPOUT = ("tests/backends/test_dropout.py",)
TILES = ("tests/backends/tiles/test_equals_dense.py",)


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
           "len(prompt.question) - shared", "len(prompt.question) - shared + 1", NEEDLES),
    Mutant("mixed windows: documents attend to each other", f"{_TRAINING}/tuning.py",
           "mask = None if row.packed else torch.ones_like(row.tokens)", "mask = torch.ones_like(row.tokens)", MIXED),
    Mutant("mixed windows: a document's first token counts", f"{_TRAINING}/tuning.py",
           "(positions > 0).expand", "(positions >= 0).expand", MIXED),
    Mutant("mixed windows: kinds weighted alike", f"{_TRAINING}/tuning.py",
           " * (len(row.tokens) / recipe.batch)", "", MIXED),
    Mutant("mixed windows: short windows under a gain", f"{_TRAINING}/progressive.py",
           "gain=1.0 if recipe.short_share else None", "gain=None", MIXED),
    Mutant("ALiBi's slopes: the other half of the finer ladder", "bias/alibi.py",
           "_powers(2 * power, max_exponent)[::2]", "_powers(2 * power, max_exponent)[1::2]", BIASES),
    Mutant("ALiBi's slopes: from exponent 0", "bias/alibi.py",
           "for head in range(1, num_heads + 1)]", "for head in range(num_heads)]", BIASES),
    Mutant("T5's buckets: upper ends", "bias/t5.py", "torch.bucketize(-distance, edges, right=True)",
           "torch.bucketize(-distance, edges, right=False)", BIASES),
    Mutant("T5's buckets: all logarithmic", "bias/t5.py",
           "exact = buckets // 2\n", "exact = buckets // 4\n", BIASES),
    Mutant("T5's buckets: directions exchanged", "bias/t5.py",
           "(distance > 0) * later", "(distance < 0) * later", BIASES),
    Mutant("stick-breaking's sum: the key's own break counts", "weight/stick_breaking.py",
           "left[..., 1:]).exp()", "left[..., :-1]).exp()", RESULTS),
    Mutant("stick-breaking's sum: logsigmoid of the wrong sign", "weight/stick_breaking.py",
           "log_left = F.logsigmoid(-scores)", "log_left = -F.logsigmoid(scores)", RESULTS),
    Mutant("FoX's gates: the key's own gate counts", "score/_inputs.py",
           "F.pad(backwards.cumsum(-1).flip(-1), (0, 1))[..., 1:]", "backwards.cumsum(-1).flip(-1)",
           SCORES),
    Mutant("FoX's gates: sigmoid in place of its logarithm", "score/_inputs.py",
           "F.logsigmoid(wide_linear(x, weight, bias).transpose(1, 2))",
           "-wide_linear(x, weight, bias).transpose(1, 2).sigmoid()", SCORES),
    Mutant("CoPE's interpolation: shares exchanged", "score/cope.py",
           "by_position.gather(-1, first) * (1 - share) + by_position.gather(-1, second) * share",
           "by_position.gather(-1, first) * share + by_position.gather(-1, second) * (1 - share)",
           RESULTS),
    Mutant("CoPE's interpolation: nearest row", "score/cope.py",
           "share = counts - below", "share = (counts - below).round()", RESULTS),
    Mutant("exact phase: product in float64", "frequencies/phase.py",
           "return (positions * fractions).to(dtype) * _RADIANS",
           "return (positions.double() * fractions.double() * 2.0**-64) % 1.0 * (2 * math.pi)", PHASE),
    Mutant("exact phase: carry of the low halves dropped", "frequencies/phase.py",
           "top = near_top + far_top + (rest >> 32)", "top = near_top + far_top", PHASE),
    Mutant("exact phase: upper half of the position dropped", "frequencies/phase.py",
           "far_top, far_rest = _product(positions >> 31, far)", "far_top, far_rest = _product(positions >> 62, far)",
           PHASE),
    Mutant("KERPLE's logarithm: one token further", "bias/kerple.py",
           "torch.log1p(a * far)", "torch.log(2 + a * far)", RESULTS),
    Mutant("KERPLE's power: gradients at distance 0", "bias/kerple.py",
           "torch.where(far > 0, far.clamp(min=torch.finfo(dtype).tiny), 1.0).pow(p)", "far.pow(p)",
           ("tests/bias/test_kerple.py",)),
    Mutant("FIRE's limit: the threshold is not learned", "bias/fire.py",
           "(self.multiplier.to(dtype) * self.threshold).abs()", "torch.full_like(self.multiplier, self.threshold)",
           RESULTS),
    Mutant("xPos: zeta of the next pair", "score/xpos.py",
           "(2 * pair / head_dim + gamma) / (1 + gamma)", "(2 * (pair + 1) / head_dim + gamma) / (1 + gamma)",
           SCORES),
    Mutant("RoPE: rotated the other way", "rotary/_rotate.py",
           "torch.stack([(a * cos - b * sin).to(x.dtype), (b * cos + a * sin).to(x.dtype)], axis)",
           "torch.stack([(a * cos + b * sin).to(x.dtype), (b * cos - a * sin).to(x.dtype)], axis)",
           ROTATIONS),
    Mutant("Shaw's clip: a row too far", "score/shaw.py",
           "distance.clamp(-self.max_distance, self.max_distance)",
           "distance.clamp(-self.max_distance + 1, self.max_distance)", RESULTS),
    Mutant("CoPE's counts: from the first key on", "score/cope.py",
           "gates.flip(-1).cumsum(-1).flip(-1)", "gates.cumsum(-1)", RESULTS),
    Mutant("Transformer-XL's clamp: one side alone", "score/transformer_xl.py",
           "return torch.where(distance < -self.clamp, even - odd, result)", "return result",
           ("tests/score/test_xpos.py",)),
    Mutant("data-dependent ALiBi: the future counts the past", "score/forget.py",
           "torch.where(after, future, 0.0).cumsum(-1)", "torch.where(after, past, 0.0).cumsum(-1)",
           SCORES),
    Mutant("PaTH: beta up to one", "score/path.py", "beta = 2 * torch.sigmoid(", "beta = torch.sigmoid(", CALLS),
    Mutant("a stepped temperature: begins a token late", "score/temperature.py",
           "positions = _positions(context) + self.offset", "positions = _positions(context)",
           ("tests/score/test_xpos.py",)),
    Mutant("a sink: its weight is given to keys", "weight/sink.py",
           "return torch.cat([scores, sink], -1).softmax(-1)[..., :-1]", "return scores.softmax(-1)",
           RESULTS),
    Mutant("softcap: not scaled back", "context.py",
           "(products / softcap).tanh() * softcap", "(products / softcap).tanh()", DROPOUT),
    Mutant("sinusoidal: cosines first", "embedding/sinusoidal.py",
           "torch.cat([sin, cos], -1) if self.layout", "torch.cat([cos, sin], -1) if self.layout",
           ("tests/golden/test_embeddings.py",)),
    Mutant("causal order: no query sees its own key", "visibility.py",
           "(index <= own_key if", "(index < own_key if", CALLS),
    Mutant("order of positions: equal positions hide each other", "visibility.py",
           "allowed = k_pos <= q_pos", "allowed = k_pos < q_pos", CALLS),
    Mutant("window: one key too many", "visibility.py",
           "(own_key - index).abs() < self.window", "(own_key - index).abs() <= self.window", CALLS),
    Mutant("window by positions: one key too many", "visibility.py",
           "(q_pos - k_pos < self.window)", "(q_pos - k_pos <= self.window)",
           ("tests/backends/test_visibility.py",)),
    Mutant("documents: earlier ones are seen", "visibility.py",
           "(q_segments[:, start:stop, None] == k_segments[:, None, first:last])",
           "(q_segments[:, start:stop, None] >= k_segments[:, None, first:last])", CALLS),
    Mutant("mask: the rows of a block are the first ones", "visibility.py",
           "else self.mask[:, :, start:stop]", "else self.mask[:, :, : stop - start]",
           ("tests/backends/test_visibility.py",)),
    Mutant("keys that count: a window of one key more", "visibility.py",
           "(own_key - self.window + 1).clamp(min=0)", "(own_key - self.window).clamp(min=0)",
           ("tests/score/test_xpos.py",)),
    Mutant("predecessors: a token precedes itself", "visibility.py",
           "seen & (index < own_key)", "seen & (index <= own_key)", ("tests/score/test_path.py",)),
    Mutant("rows without keys: NaN", "backends/dense.py",
           "return torch.where(seen, scores.softmax(-1), torch.zeros_like(scores))", "return scores.softmax(-1)",
           CALLS),
    Mutant("16 bits: scores as narrow as q", "backends/dense.py",
           "by_key_head(widened(call.q), call.k.mT)", "by_key_head(call.q, call.k.mT)",
           ("tests/backends/test_dense.py",)),
    Mutant("16 bits: encodings read narrow queries and keys", "call.py",
           "return self.replace(q=widened(self.q), k=widened(self.k), v=widened(self.v), unrotated=unrotated)",
           "return self", CALLS),
    Mutant("shared key heads: dealt out in turns", "heads.py",
           "folded = rows.reshape(*groups, batch",
           "folded = rows.unflatten(1, (-1, groups.numel() // batch)).transpose(1, 2).reshape(*groups, batch", CALLS),
    Mutant("SDPA: its causal flag for the last queries", "backends/sdpa.py",
           "call.q.shape[2] == 1 or call.q.shape[2] == call.k.shape[2]", "call.q.shape[2] >= 1", CALLS),
    Mutant("SDPA: a negative scale taken as positive", "backends/sdpa.py",
           "(-1.0 if call.scale < 0 else 0.0)", "(1.0 if call.scale < 0 else 0.0)", CALLS),
    Mutant("blocks of rows: keys of square calls", "backends/rows.py",
           "seen = stop + keys - queries", "seen = stop", ("tests/backends/test_rows.py",)),
    Mutant("tiles: the backward pass divides by the wrong sum", "backends/tiles/softmax.py",
           "norm = largest + total.log2()", "norm = largest - total.log2()", TILES),
    Mutant("dropout: what stays is not scaled", "dropout.py",
           ".mul_(1 / (1 - self.p))", "", DROPOUT),
    Mutant("dropout: heads share a mask", "dropout.py",
           "bits ^ _numbers(heads, keys)", "bits ^ (_numbers(heads, keys) * 0)", DROPOUT),
    Mutant("dropout: each block of queries begins anew", "dropout.py",
           "self._replace(first=self.first + start)", "self._replace(first=self.first)", DROPOUT),
    Mutant("crop: positions go on after what was cropped", "layers/cache/kv_cache.py",
           "self.seen - tokens, self.next - tokens, self.version + 1",
           "self.seen - tokens, self.next, self.version + 1",
           CACHES),
    Mutant("repeat: the batch as a whole", "layers/cache/kv_cache.py",
           "t.repeat_interleave(times, 0)", "t.repeat(times, *([1] * (t.ndim - 1)))", CACHES),
    Mutant("shift: rotated the other way", "layers/cache/kv_cache.py",
           "rerotate(k[:, :, first:], encodings, moved,", "rerotate(k[:, :, first:], encodings, -moved,",
           ("tests/layers/test_moving.py",)),
    Mutant("edited cache: closed up the other way", "layers/cache/editing.py",
           "inside, shared, closed.to(old.dtype), held.length)", "inside, closed.to(old.dtype), shared, held.length)",
           EDITS),
    Mutant("edited cache: the next token follows those that stay", "layers/cache/editing.py",
           "return EditedTokens(new, held.following, heads_differ)", "return EditedTokens(new, None, heads_differ)",
           EDITS),
    Mutant("edited caches of transformers: a window of one token less", "hf/caches.py",
           "last = min(layer.window - 1, order.shape[-1])", "last = min(layer.window - 2, order.shape[-1])", EDITED),
    Mutant("edited caches of transformers: a joined text stays where it was", "hf/caches.py",
           "zero, zero + start)", "zero, zero)", EDITED),
    Mutant("static cache: a window of one key more", "layers/cache/static.py",
           "visible & (age < window)", "visible & (age <= window)", CACHES),
    Mutant("static cache: padding counts", "layers/cache/static.py",
           "(self.count + attention_mask.cumsum(-1) - 1)",
           "(self.count + torch.ones_like(attention_mask).cumsum(-1) - 1)",
           CACHES),
    Mutant("positions of a mask: padding counts", "positions/text.py",
           "mask.bool().long().cumsum(-1) - 1", "mask.bool().long().cumsum(-1)", ("tests/positions/test_text.py",)),
    Mutant("positions of documents: go on", "positions/text.py",
           "positions = index - torch.where(starts, index, 0).cummax(-1).values", "positions = index.clone()",
           ("tests/positions/test_text.py",)),
    Mutant("a stream: the next part begins within the last", "positions/streams.py",
           "start += int(sides.max()) + 1", "start += int(sides.max())", ("tests/positions/test_streams.py",)),
    Mutant("a model's step: encodings that layers share are dropped", "layers/self_attention.py",
           "            acting = self._acting()\n            states",
           "            own = [e for e in self.encodings if isinstance(e, Encoding)]\n"
           "            acting = own if cache is not None and x.shape[1] == 1 else self._acting()\n            states",
           STEPS),
    Mutant("a model's step: one position late", "hf/modeling/causal_lm.py",
           "segments=documents, cache=first)\n", "segments=documents, cache=first) + (past > 0)\n", STEPS),
    Mutant("packed rows: documents see each other behind a cache", "hf/modeling/packing.py",
           "return last + begins.cumsum(-1)", "return last + 0 * begins.cumsum(-1)", PACKED),
)  # fmt: skip


def survives(mutant: Mutant) -> str | None:
    """What is wrong if the tests do not fail: None where they do."""
    text = (SOURCE / mutant.file).read_text(encoding="utf-8")
    if mutant.right not in text:
        return f"{mutant.file} has no {mutant.right!r}: bring the mutant up to date"
    code, said = outcome(mutant.file, text.replace(mutant.right, mutant.wrong), mutant.tests)
    if catches(code):
        return None
    return "lives" if code == 0 else f"pytest ended with {code}: {said[-500:]}"


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
