"""Compares the shapes of attention's projections, norms, sinks and latent projections with the config.

With N query heads, K key/value heads, heads of D channels (values of Dv) and a stream of H channels:

    q_proj (N·D, H)    k_proj (K·D, H)    v_proj (K·Dv, H)    o_proj (H, N·Dv)    fused ((N + K)·D + K·Dv, H)
    q_norm, k_norm     D numbers, or as many as the projection has rows            sinks     N numbers
    latent             kv_a_proj_with_mqa (rank + rope, H)    kv_b_proj (N·(nope + Dv), rank)
                       q_b_proj (N·(nope + rope), rank of the queries)

A product that fits two explanations names both. All layers with equal shapes are one finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from posenc.hf.doctor.head_sizes import HeadSizes, Number, head_sizes
from posenc.hf.doctor.model_parts import Part, Shape
from posenc.hf.explanation.describe import ranges
from posenc.hf.families.saved_tensors import ALWAYS_SINKS, EQUAL_HEADS, TRANSPOSED, VARYING
from posenc.hf.limits import is_count

_CROSS = r"(?:layer\.\d+\.)?(?:encoder_attn|EncDecAttention|crossattention\.self)"
_ATTENTION = (
    r"(?:(?:layer|albert_layers)\.\d+\.)?(?:self_attn\.longformer_self_attn|self_attn|self_attention|attention\.self"
    r"|attention\.attention|attention\.attn|attention|attn\.attention|attn|SelfAttention|LocalSelfAttention"
    r"|TransientGlobalSelfAttention|norm_attn_norm\.attn)"
)
_LEAVES = {
    "q": r"q_proj|query|q_lin|q|wq|query_proj|linear_q",
    "k": r"k_proj|key|k_lin|k|wk|key_proj|linear_k",
    "v": r"v_proj|value|v_lin|v|wv|value_proj|linear_v",
    "o": r"o_proj|out_proj|dense|output\.dense|out_lin|o|wo|Wo|c_proj|projection|proj|linear_out|projection_layer",
    "fused": r"qkv_proj|query_key_value|c_attn|Wqkv|qkv|wqkv|W_pack",
}
_SELF_ATTENTION, _CROSS_ATTENTION = (
    {kind: re.compile(rf"^{where}\.(?:{leaves})(?:\.linear)?\.(weight|bias)$") for kind, leaves in _LEAVES.items()}
    for where in (_ATTENTION, _CROSS)
)
_NORM = re.compile(rf"^{_ATTENTION}\.([qk])_(?:norm|layernorm|layer_norm|ln)\.weight$")
_NORM_ENDINGS = ("norm.weight", "_ln.weight")
_SINK = re.compile(rf"^{_ATTENTION}\.(?:sinks|attention_sink_bias)$")
_LATENT_KEYS = ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "kv_lora_rank", "q_lora_rank")
_LATENT = re.compile(
    rf"^{_ATTENTION}\.(q_proj|q_a_proj|q_b_proj|kv_a_proj_with_mqa|kv_b_proj|o_proj|kv_a_layernorm|q_a_layernorm)\.weight$"
)


class Mismatch(NamedTuple):
    """A shape that contradicts the config.

    Attributes:
        name: of the finding.
        key: of the config, or the name of the tensor.
        text: what is wrong, without the layers.
        part: whose tensors.
        layers: their numbers.
        candidates: keys of the part that would agree with the weights, the likeliest first, and whether the weights
            decide.
    """

    name: str
    key: str
    text: str
    part: Part
    layers: tuple[int, ...] = ()
    candidates: tuple[tuple[dict[str, Any], bool], ...] = ()


def on_attention(part: Part, covered: set[str]) -> Iterator[Mismatch]:
    """Contradictions between the shapes of attention and the config; adds the tensors looked at to ``covered``."""
    if part.config.model_type in VARYING:
        return
    sizes = head_sizes(part)
    if part.config.family.rotation is not None and part.config.rotation.latent:
        yield from _on_latent(part, sizes[0], covered)
    else:
        yield from _on_projections(part, sizes, covered)
    yield from _on_sinks(part, sizes, covered)


class _Layer(NamedTuple):
    """The projections of one layer: rows and columns by kind, widths of norms, names, and lengths of biases."""

    shapes: tuple[tuple[str, int, int], ...]
    norms: tuple[tuple[str, int], ...]
    names: tuple[tuple[str, str], ...]
    biases: tuple[tuple[str, int], ...]

    def rows(self, kind: str) -> int | None:
        return next((rows for other, rows, _ in self.shapes if other == kind), None)

    def columns(self, kind: str) -> int | None:
        return next((columns for other, _, columns in self.shapes if other == kind), None)

    def norm(self, kind: str) -> int | None:
        return next((width for other, width in self.norms if other == kind), None)

    def named(self, kind: str) -> str:
        return next((name for other, name in self.names if other == kind), kind)


@lru_cache(maxsize=1 << 14)  # every layer has the same names; experts have thousands
def _kind_of(rest: str, *, cross: bool) -> tuple[str, str] | None:
    """The kind of projection that a tensor of a layer belongs to, and "weight" or "bias"; None for any other."""
    for kind, pattern in (_CROSS_ATTENTION if cross else _SELF_ATTENTION).items():
        if match := pattern.match(rest):
            return kind, match.group(1)
    return None


def _layers(part: Part, covered: set[str], *, cross: bool) -> dict[_Layer, list[int]]:
    """The layers by their projections, of attention to themselves or of that to an encoder."""
    groups: dict[_Layer, list[int]] = {}
    for number, tensors in sorted(part.layers.items()):
        shapes, norms, names, biases = [], [], [], []
        for rest, shape in tensors.items():
            known = _kind_of(rest, cross=cross)
            if known is not None:
                covered.add(part.name_of(number, rest))
                kind, ending = known
                if ending == "bias" and len(shape) == 1:
                    biases.append((kind, shape[0]))
                if ending == "bias" or len(shape) < 2 or any(side != 1 for side in shape[2:]):
                    continue
                rows, columns = shape[:2]
                if part.config.model_type in TRANSPOSED and kind in ("fused", "o"):
                    rows, columns = columns, rows
                shapes.append((kind, rows, columns))
                names.append((kind, rest))
            elif rest.endswith(_NORM_ENDINGS) and (norm := _NORM.match(rest)):
                covered.add(part.name_of(number, rest))
                if len(shape) == 1:
                    norms.append((norm.group(1), shape[0]))
                    names.append((f"{norm.group(1)}_norm", rest))
        kinds = [kind for kind, _, _ in shapes]
        if len(set(kinds)) == len(kinds) and kinds:  # two projections of one kind: names that no rule tells apart
            layer = _Layer(tuple(sorted(shapes)), tuple(sorted(norms)), tuple(sorted(names)), tuple(sorted(biases)))
            groups.setdefault(layer, []).append(number)
    return groups


def _on_projections(part: Part, sizes: list[HeadSizes], covered: set[str]) -> Iterator[Mismatch]:
    groups = [_layers(part, covered, cross=cross) for cross in (False, True)]
    for layer, numbers in (item for group in groups for item in group.items()):
        results = [list(_compare(part, layer, of)) for of in sizes]
        best = min(results, key=len)
        for mismatch in best if all(results) else ():
            yield mismatch._replace(layers=tuple(numbers))


def _compare(part: Part, layer: _Layer, sizes: HeadSizes) -> Iterator[Mismatch]:
    """What contradicts the sizes in layers of these shapes."""
    reads = {kind: layer.columns(kind) for kind in ("q", "k", "v", "fused") if layer.columns(kind) is not None}
    streams = set(reads.values())
    if sizes.hidden is not None and len(streams) == 1 and streams != {sizes.hidden.value}:
        (stream,) = streams
        kind = next(iter(reads))
        text = f"is {sizes.hidden.value:,}, but {layer.named(kind)} reads {stream:,} channels: the file does not load"
        yield Mismatch("hidden-size-differs", sizes.hidden.key, text, part,
                       candidates=(({sizes.hidden.key: stream}, True),))  # fmt: skip
        return
    output = layer.rows("o")
    if sizes.hidden is not None and output is not None and output != sizes.hidden.value:
        text = f"has {output:,} rows, and {sizes.hidden.key} is {sizes.hidden.value:,}: the file does not load"
        yield Mismatch("projection-differs", layer.named("o"), text, part)
    for kind, length in layer.biases:
        rows = layer.rows(kind)
        if rows is not None and length != rows:
            text = f"has {rows:,} rows, and its bias {length:,} numbers: the file does not load"
            yield Mismatch("projection-differs", layer.named(kind), text, part)
    if layer.rows("fused") is not None:
        yield from _compare_fused(part, layer, sizes)
    else:
        mismatches = list(_compare_separate(part, layer, sizes))
        yield from mismatches or _compare_norms(part, layer, sizes)


def _compare_separate(part: Part, layer: _Layer, sizes: HeadSizes) -> Iterator[Mismatch]:
    q, k, v = (layer.rows(kind) for kind in "qkv")
    heads, kv_heads, head_dim = sizes.heads, sizes.kv_heads, sizes.head_dim
    if heads is None or head_dim is None:
        return
    norm = layer.norm("q")
    if norm and norm not in (head_dim.value, q) and q and q % norm == 0 and kv_heads and k == kv_heads.value * norm:
        keys = {"head_dim" if "/" in head_dim.key else head_dim.key: norm, heads.key: q // norm}
        text = (
            f"is {head_dim.value:,}, but {layer.named('q_norm')} has {norm:,} numbers, one for each channel of a head, "
        )
        text += f"and {layer.named('q')} {q:,} rows = {q // norm} heads of {norm}: the file does not load"
        yield Mismatch("head-dim-differs", next(iter(keys)), text, part, candidates=((keys, True),))
        return
    gates = (1, 2) if _is_gated(part) else (1,)
    if q is not None and q not in [gate * heads.value * head_dim.value for gate in gates]:
        yield _on_queries(part, layer, sizes, q, k)
        return
    if k is not None and sizes.keys is not None and k != sizes.keys:
        yield _on_keys(part, layer, sizes, "k", k)
        return
    if k is not None and kv_heads is None and k % head_dim.value:
        text = f"has {k:,} rows, which is no multiple of {head_dim.key} = {head_dim.value}: the file does not load"
        yield Mismatch("head-dim-differs", layer.named("k"), text, part)
        return
    if v is not None and sizes.values is not None and v != sizes.values:
        yield _on_keys(part, layer, sizes, "v", v)
        return
    columns = layer.columns("o")
    if columns is not None and q is not None and sizes.outputs is not None and columns != sizes.outputs:
        text = f"reads {columns:,} channels, and {_product(heads, sizes.value_dim)} make {sizes.outputs:,}"
        yield Mismatch("projection-differs", layer.named("o"), f"{text}: the file does not load", part)


def _on_queries(part: Part, layer: _Layer, sizes: HeadSizes, q: int, k: int | None) -> Mismatch:
    """The rows of q_proj differ from heads times width: which of the two is wrong?"""
    heads, kv_heads, head_dim = sizes.heads, sizes.kv_heads, sizes.head_dim
    assert heads is not None
    assert head_dim is not None
    product = heads.value * head_dim.value
    candidates: list[tuple[dict[str, Any], bool]] = []
    grouped = kv_heads is not None and kv_heads.explicit and kv_heads.value != heads.value
    key = "head_dim" if "/" in head_dim.key else head_dim.key
    name, about = "heads-differ", head_dim.key if head_dim.explicit else heads.key
    width = q // heads.value if q % heads.value == 0 else None
    if width and (k is None or kv_heads is None or k == kv_heads.value * width):
        decided = grouped or layer.norm("q") == width
        candidates.append(({key: width}, decided))
        name, about = "head-dim-differs", key
    count = q // head_dim.value if q % head_dim.value == 0 else None
    if count and "/" not in head_dim.key and (k is None or kv_heads is None or k == sizes.keys or not grouped):
        fitting = {heads.key: count}
        if not grouped and kv_heads is not None and kv_heads.explicit and k is not None and k % head_dim.value == 0:
            fitting[kv_heads.key] = k // head_dim.value
        candidates.append((fitting, layer.norm("q") == head_dim.value or (grouped and not candidates)))
        if not candidates[0][0].keys() & {key} or layer.norm("q") == head_dim.value:
            candidates.reverse()
            name, about = "heads-differ", heads.key
    value = head_dim if about in (key, head_dim.key) else heads
    text = f"is {value.value:,}" if about == value.key else f"is not given, which makes {value.value:,} of {value.key}"
    other = heads if value is head_dim else head_dim
    text += f" ({_product(heads, head_dim)} make {product:,}), but {layer.named('q')} has {q:,} rows"
    if candidates:
        first = next(iter(candidates[0][0].values()))
        text += f" = {heads.value} heads of {first}" if about == key else f" = {first} heads of {other.value}"
    text += ": the file does not load, or its heads are cut at the wrong channels"
    return Mismatch(name, about, text, part, candidates=tuple(candidates))


def _on_keys(part: Part, layer: _Layer, sizes: HeadSizes, kind: str, rows: int) -> Mismatch:
    """The rows of k_proj or v_proj differ from key/value heads times width."""
    heads, kv_heads = sizes.heads, sizes.kv_heads
    head_dim = sizes.head_dim if kind == "k" else sizes.value_dim
    assert heads is not None
    assert kv_heads is not None
    assert head_dim is not None
    if not kv_heads.explicit and (part.config.model_type in EQUAL_HEADS or part.config.family.rotation is None):
        text = (
            f"has {rows:,} rows, and {_product(heads, head_dim)} make {heads.value * head_dim.value:,}: the file does "
        )
        return Mismatch("projection-differs", layer.named(kind), text + "not load", part)
    candidates: list[tuple[dict[str, Any], bool]] = []
    count = rows // head_dim.value if rows % head_dim.value == 0 else None
    name = "key-value-heads-differ" if kind == "k" else "projection-differs"
    key = kv_heads.key if kv_heads.explicit else "num_key_value_heads"
    text = f"is {kv_heads.value:,}" if kv_heads.explicit else f"is not given, which means {kv_heads.value:,}"
    text += f", but {layer.named(kind)} has {rows:,} rows"
    if count:
        text += f" = {count} head{'s' if count > 1 else ''} of {head_dim.value}"
    if kind == "k" and count and heads.value % count == 0 and "multi_query" not in key:
        decided = sizes.head_dim is not None and (sizes.head_dim.explicit or layer.norm("k") == head_dim.value)
        candidates.append(({key: count}, decided))
        query_rows = layer.rows("q")
        if not decided and query_rows is not None:  # with the quotient for a width, another number of heads fits too
            width = rows // kv_heads.value if rows % kv_heads.value == 0 else 0
            if width and query_rows % width == 0:
                text += f"; {heads.key} = {query_rows // width} would fit as well, with heads of {width}"
                candidates.append(({heads.key: query_rows // width}, False))
    text += ": the file does not load, or loads with heads that share the wrong keys"
    return Mismatch(name, key, text, part, candidates=tuple(candidates))


def _compare_fused(part: Part, layer: _Layer, sizes: HeadSizes) -> Iterator[Mismatch]:
    rows, heads, head_dim = layer.rows("fused"), sizes.heads, sizes.head_dim
    if rows is None or heads is None or head_dim is None or rows == sizes.fused:
        return
    pairs, rest = divmod(rows - heads.value * head_dim.value, 2 * head_dim.value)
    if sizes.kv_heads is None and rest == 0 and pairs > 0 and heads.value % pairs == 0:
        return  # any number of key/value heads that divides the query heads
    name = layer.named("fused")
    if sizes.kv_heads is None or sizes.fused is None:
        text = f"has {rows:,} rows, which {_product(heads, head_dim)} and equal heads of keys and values cannot make"
        yield Mismatch("heads-differ", name, f"{text}: the file does not load", part)
        return
    kv_heads = sizes.kv_heads
    fits = rest == 0 and pairs > 0 and heads.value % pairs == 0 and kv_heads.explicit
    by_flag = kv_heads.key == "multi_query"
    value: Any = pairs == 1 if by_flag else pairs
    candidates = (({kv_heads.key: value}, head_dim.explicit or by_flag),) if fits else ()
    about = kv_heads if fits else heads
    number = str(kv_heads.value == 1).lower() if fits and by_flag else f"{about.value:,}"
    text = f"is {number} ({_product(heads, head_dim)}, {kv_heads.value} of keys and of values, make "
    text += f"{sizes.fused:,} rows), but {name} has {rows:,}"
    text += (
        f" = {heads.value} query heads and {pairs} key/value head{'s' if pairs > 1 else ''} of {head_dim.value}"
        if fits
        else ""
    )
    finding = "key-value-heads-differ" if fits else "heads-differ"
    yield Mismatch(finding, about.key, f"{text}: the file does not load", part, candidates=candidates)


def _compare_norms(part: Part, layer: _Layer, sizes: HeadSizes) -> Iterator[Mismatch]:
    head_dim = sizes.head_dim
    if head_dim is None or sizes.heads is None:
        return
    for kind, all_heads in (("q", layer.rows("q")), ("k", layer.rows("k"))):
        width = layer.norm(kind)
        if width is None or width in (head_dim.value, all_heads, sizes.queries, sizes.keys):
            continue
        text = (
            f"has {width:,} numbers, and neither a head ({head_dim.value}, from {head_dim.key}) nor all heads of the "
        )
        text += "projection have as many channels: the file does not load"
        yield Mismatch("norm-width-differs", layer.named(f"{kind}_norm"), text, part)


def _product(heads: Number | None, width: Number | None) -> str:
    """Heads times width, in words."""
    assert heads is not None
    assert width is not None
    return f"{heads.value} heads of {width.value}"


def _is_gated(part: Part) -> bool:
    """Whether q_proj has a gate of each channel next to the queries, as in Qwen3-Next."""
    return part.config.model_type.startswith(("qwen3_next", "qwen3_5", "qwen4")) or bool(
        part.config.get("attn_output_gate")
    )


def _on_sinks(part: Part, sizes: list[HeadSizes], covered: set[str]) -> Iterator[Mismatch]:
    family = part.config.family.attention
    with_sinks: dict[int, list[int]] = {}
    name = ""
    for number, tensors in sorted(part.layers.items()):
        for rest, shape in tensors.items():
            if "sink" in rest and _SINK.match(rest):
                covered.add(part.name_of(number, rest))
                with_sinks.setdefault(_count(shape), []).append(number)
                name = rest
    expected = {of.heads.value for of in sizes if of.heads is not None}
    if not with_sinks:
        if part.config.model_type in ALWAYS_SINKS and any(map(_has_queries, part.layers.values())):
            text = "are missing: attention of this model type has a learned sink for each head, which now starts at "
            text += "random or untrained: the softmax of every layer changes"
            yield Mismatch("sinks-missing", "self_attn.sinks", text, part, tuple(sorted(part.layers)))
        return
    numbered = {number for numbers in with_sinks.values() for number in numbers}
    lost = [
        number for number, tensors in sorted(part.layers.items()) if number not in numbered and _has_queries(tensors)
    ]
    if lost and part.config.model_type in ALWAYS_SINKS:
        text = "are missing next to the sinks of other layers: these start untrained, and the softmax changes"
        yield Mismatch("sinks-missing", "self_attn.sinks", text, part, tuple(lost))
    if not family.sinks:
        text = "are in the weights, and the code of this model type reads none: attention is computed without"
        yield Mismatch("sinks-unread", name, text, part, tuple(sorted({n for ns in with_sinks.values() for n in ns})))
        return
    for count, numbers in with_sinks.items():
        if expected and count not in expected:
            heads = next(of.heads for of in sizes if of.heads is not None)
            text = f"has {count:,} numbers, one for each head, and {heads.key} is {heads.value:,}: the file does not "
            text += "load"
            yield Mismatch("sinks-differ", name, text, part, tuple(numbers))


def _has_queries(tensors: dict[str, Shape]) -> bool:
    return any(_SELF_ATTENTION["q"].match(rest) or _SELF_ATTENTION["fused"].match(rest) for rest in tensors)


def _count(shape: Shape) -> int:
    count = 1
    for side in shape:
        count *= side
    return count


def _on_latent(part: Part, sizes: HeadSizes, covered: set[str]) -> Iterator[Mismatch]:
    """Multi-head latent attention: what each projection has of the ranks and of the rotated part."""
    counts = {key: value for key in _LATENT_KEYS if is_count(value := part.config.get(key))}
    groups: dict[tuple[tuple[str, Shape], ...], list[int]] = {}
    for number, tensors in sorted(part.layers.items()):
        matching = {match.group(1): shape for rest, shape in tensors.items() if (match := _LATENT.match(rest))}
        matching = {name: shape for name, shape in matching.items() if len(shape) == (1 if "norm" in name else 2)}
        if "kv_a_proj_with_mqa" not in matching:
            continue
        covered.update(part.name_of(number, rest) for rest in tensors if _LATENT.match(rest))
        groups.setdefault(tuple(sorted(matching.items())), []).append(number)
    if sizes.heads is None or not all(key in counts for key in _LATENT_KEYS[:4]):
        return
    heads = sizes.heads.value
    rope, nope, value, rank = (counts[key] for key in _LATENT_KEYS[:4])
    for found_shapes, numbers in groups.items():
        shapes = dict(found_shapes)
        hidden, stream = sizes.hidden, shapes["kv_a_proj_with_mqa"][1]
        if hidden is not None and stream != hidden.value:
            text = f"is {hidden.value:,}, but self_attn.kv_a_proj_with_mqa.weight reads {stream:,} channels: the file "
            text += "does not load"
            fits = (({hidden.key: stream}, True),)
            yield Mismatch("hidden-size-differs", hidden.key, text, part, tuple(numbers), fits)
            continue
        norm_rank = shapes.get("kv_a_layernorm", (rank,))[0]
        if "q_a_proj" in shapes and part.config.get("q_lora_rank", 0) is None:
            text = "is null, which means queries of one projection, but the weights have q_a_proj and q_b_proj: they "
            text += "are dropped as the model loads, and the queries start at random"
            fits = (({"q_lora_rank": shapes["q_a_proj"][0]}, True),)
            yield Mismatch("latent-width-differs", "q_lora_rank", text, part, tuple(numbers), fits)
        rows = {
            "kv_a_proj_with_mqa": (rank + rope, f"kv_lora_rank {rank} and qk_rope_head_dim {rope}"),
            "kv_b_proj": (heads * (nope + value), f"{heads} heads of qk_nope_head_dim {nope} and v_head_dim {value}"),
            "o_proj": (0 if hidden is None else hidden.value, "hidden_size"),
            "q_a_proj": (counts.get("q_lora_rank", 0), "q_lora_rank"),
            "q_b_proj" if "q_b_proj" in shapes else "q_proj": (
                heads * (nope + rope), f"{heads} heads of qk_nope_head_dim {nope} and qk_rope_head_dim {rope}"
            ),
        }  # fmt: skip
        for name, (expected, words) in rows.items():
            if name not in shapes or not expected or shapes[name][0] == expected:
                continue
            makes = "make" if " " in words else "is"
            text = f"has {shapes[name][0]:,} rows, and {words} {makes} {expected:,}: the file does not load"
            rotated = shapes["kv_a_proj_with_mqa"][0] - norm_rank
            keys: dict[str, Any] = {}
            if norm_rank != rank:
                keys["kv_lora_rank"] = norm_rank
            if rotated != rope and rotated > 0:
                keys["qk_rope_head_dim"] = rotated
            candidates = ((keys, True),) if keys else ()
            tensor = f"self_attn.{name}.weight"
            yield Mismatch("latent-width-differs", tensor, text, part, tuple(numbers), candidates)
            break
        for name, key in (("kv_b_proj", "kv_lora_rank"), ("q_b_proj", "q_lora_rank")):
            if name in shapes and key in counts and shapes[name][1] != counts[key]:
                text = f"is {counts[key]:,}, but self_attn.{name}.weight reads {shapes[name][1]:,} channels: the file "
                text += "does not load"
                fits = (({key: shapes[name][1]}, True),)
                yield Mismatch("latent-width-differs", key, text, part, tuple(numbers), fits)
        if "o_proj" in shapes and shapes["o_proj"][1] != heads * value:
            text = f"reads {shapes['o_proj'][1]:,} channels, and {heads} heads of v_head_dim {value} make "
            text += f"{heads * value:,}"
            yield Mismatch("latent-width-differs", "self_attn.o_proj.weight", f"{text}: the file does not load", part,
                           tuple(numbers))  # fmt: skip


def in_layers(numbers: tuple[int, ...]) -> str:
    """The layers of a finding, in words."""
    if not numbers:
        return ""
    return f" (layer {numbers[0]})" if len(numbers) == 1 else f" (layers {ranges(list(numbers))})"
