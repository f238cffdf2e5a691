"""Compares the tensors of a GGUF file with its keys: heads, layers, sinks, norms, latent projections, positions.

Shapes are as the file has them, inputs first. With N = attention.head_count, K = attention.head_count_kv, Dk and Dv =
attention.key_length and value_length, H = embedding_length:

    attn_q (H, N·Dk)    attn_k (H, K·Dk)    attn_v (H, K·Dv)    attn_output (N·Dv, H)
    attn_qkv (H, (N + K)·Dk + K·Dv)         attn_q_norm, attn_k_norm (Dk), or of all heads
    attn_kv_a_mqa (H, attention.kv_lora_rank + rope.dimension_count)
    attn_sinks (N)                          position_embd (H, context_length)

Source: llama.cpp, src/llama-model.cpp (load_tensors); the package gguf, constants.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from posenc.hf.explanation.describe import ranges
from posenc.hf.families import FAMILIES
from posenc.hf.findings import Finding
from posenc.hf.limits import LAYERS, is_count
from posenc.hf.sources.gguf_metadata import ARCHITECTURES

_BLOCK = re.compile(r"^blk\.(\d+)\.(.+)$")
_GATED = ("qwen3next", "qwen35", "qwen35moe")  # attn_q has a gate of each channel next to the queries
_OWN_WIDTHS = re.compile(r"^attention\..*_swa$")  # keys of layers with other widths: then shapes are left alone
_OWN_WIDTHS_IN_LAYERS = ("kimi-linear",)  # whose linear layers have attn_q, attn_k and attn_v as well
_AGAIN = "convert the checkpoint again"

Shapes = Mapping[str, tuple[int, ...]]


def on_gguf(file: Path) -> tuple[list[Finding], list[str], list[str]]:
    """Findings on the tensors of a GGUF file, what was checked and what not.

    Raises:
        UnreadableFileError: for a file that is no GGUF; it names the path.
        OSError: where it cannot be read.
    """
    from posenc.hf.sources.gguf_file import scanned

    scan = scanned(file)
    arch = scan.fields.get("general.architecture")
    count = f"names and shapes of {len(scan.shapes):,} tensors"
    if not isinstance(arch, str) or arch not in ARCHITECTURES:
        return [], [], [f"{count} (no rules for architecture {arch!r})"]
    keys = {key.removeprefix(f"{arch}."): value for key, value in scan.fields.items() if key.startswith(f"{arch}.")}
    findings = [*_on_layers(arch, keys, scan.shapes), *_on_heads(arch, keys, scan.shapes),
                *_on_positions(arch, keys, scan.shapes)]  # fmt: skip
    named = [finding._replace(file=file.name) for finding in findings]
    return named, [count], ["order of rows in attn_q and attn_k"]


def _blocks(shapes: Shapes) -> dict[int, dict[str, tuple[int, ...]]]:
    blocks: dict[int, dict[str, tuple[int, ...]]] = {}
    for name, shape in shapes.items():
        if match := _BLOCK.match(name):
            blocks.setdefault(int(match.group(1)), {})[match.group(2)] = shape
    return blocks


def _on_layers(arch: str, keys: Mapping[str, Any], shapes: Shapes) -> Iterator[Finding]:
    count, blocks = keys.get("block_count"), _blocks(shapes)
    if not is_count(count, LAYERS) or not blocks:
        return
    missing = [number for number in range(count) if number not in blocks]
    extra = sorted(number for number in blocks if number >= count)
    if missing:
        text = f"is {count}, but the file has {len(blocks)} blocks, without blk.{ranges(missing)}: llama.cpp does not "
        text += f"load it; {_AGAIN}"
        yield Finding(f"{arch}.block_count", text, "layers-missing", "fault")
    elif extra:
        text = f"is {count}, but the file has blk.{ranges(extra)} as well: llama.cpp refuses them, or ends early"
        yield Finding(f"{arch}.block_count", f"{text}; {_AGAIN}", "layers-unread", "fault")
    family = FAMILIES.get(ARCHITECTURES[arch][0])
    if family is not None and family.attention.sinks == ("all",) and not family.attention.sink_by_token:
        without = [
            number
            for number, block in sorted(blocks.items())
            if "attn_q.weight" in block and not any(name.startswith("attn_sinks") for name in block)
        ]
        if without:
            text = f"are missing in blk.{ranges(without)}: attention of {arch} has a learned sink for each head, and "
            text += f"without them the softmax changes; {_AGAIN}"
            yield Finding("attn_sinks", text, "sinks-missing", "fault")


def _per_layer(value: Any, number: int) -> int | None:
    """A key that holds one number for all layers or a list; None where it has none for this one."""
    if isinstance(value, list | tuple):
        value = value[number] if number < len(value) else None
    return value if is_count(value) else None


def _on_heads(arch: str, keys: Mapping[str, Any], shapes: Shapes) -> Iterator[Finding]:
    hidden = keys.get("embedding_length")
    has_variants = arch in _OWN_WIDTHS_IN_LAYERS or any(_OWN_WIDTHS.match(key) for key in keys)
    groups: dict[tuple[str, str, str], list[int]] = {}
    for number, block in sorted(_blocks(shapes).items()):
        heads = _per_layer(keys.get("attention.head_count"), number)
        kv_heads = _per_layer(keys.get("attention.head_count_kv", keys.get("attention.head_count")), number)
        if heads is None or not is_count(hidden) or has_variants:
            continue
        width = keys.get("attention.key_length", hidden // heads)
        value_width = keys.get("attention.value_length", hidden // heads)
        if not is_count(width) or not is_count(value_width):
            continue
        for contradiction in _in_block(arch, keys, block, heads, kv_heads, width, value_width):
            groups.setdefault(contradiction, []).append(number)
    for (key, text, name), numbers in groups.items():
        fact, colon, rest = text.partition(": ")
        yield Finding(f"{arch}.{key}", f"{fact} (blk.{ranges(numbers)}){colon}{rest}; {_AGAIN}", name, "fault")


def _in_block(
    arch: str, keys: Mapping[str, Any], block: Shapes, heads: int, kv_heads: int | None, width: int, value_width: int
) -> Iterator[tuple[str, str, str]]:
    """Key, text and name of what contradicts the keys in one block."""
    fails = ": llama.cpp does not load it"
    latent = "attn_kv_a_mqa.weight" in block
    rows = {name: shape[1] for name in ("attn_q", "attn_k", "attn_v", "attn_qkv", "attn_kv_a_mqa")
            if len(shape := block.get(f"{name}.weight", ())) == 2}  # fmt: skip
    query = rows.get("attn_q")
    gates = (1, 2) if arch in _GATED else (1,)
    if not latent and query is not None and query not in [gate * heads * width for gate in gates]:
        key = "attention.key_length" if "attention.key_length" in keys else "attention.head_count"
        value = width if key == "attention.key_length" else heads
        text = f"is {value}, and {heads} heads of {width} make {heads * width:,}, but attn_q has {query:,} rows{fails}"
        yield key, text, "heads-differ"
    elif not latent and kv_heads is not None:
        output = block.get("attn_output.weight", ())
        read = output[0] if len(output) == 2 and query is not None else heads * value_width
        if "attn_k" in rows and rows["attn_k"] != kv_heads * width:
            yield (
                "attention.head_count_kv",
                _key_rows("attn_k", rows["attn_k"], kv_heads, width),
                "key-value-heads-differ",
            )
        elif read != heads * value_width:
            text = f"is {value_width}, and {heads} heads make {heads * value_width:,}, but attn_output reads {read:,}"
            yield "attention.value_length", text + fails, "projection-differs"
        elif "attn_v" in rows and rows["attn_v"] != kv_heads * value_width:
            text = _key_rows("attn_v", rows["attn_v"], kv_heads, value_width)
            yield "attention.head_count_kv", text, "key-value-heads-differ"
        fused = (heads + kv_heads) * width + kv_heads * value_width
        if "attn_qkv" in rows and rows["attn_qkv"] != fused:
            text = f"is {kv_heads}, and {heads} query heads and {kv_heads} of keys and values make {fused:,} rows, but "
            text += f"attn_qkv has {rows['attn_qkv']:,}{fails}"
            yield "attention.head_count_kv", text, "key-value-heads-differ"
    for name, shape in block.items():
        if name.startswith("attn_sinks") and len(shape) == 1 and shape != (heads,):
            text = f"is {heads}, but attn_sinks has {shape[0]:,} numbers, one for each head{fails}"
            yield "attention.head_count", text, "sinks-differ"
    for name, all_heads in (("attn_q_norm.weight", query), ("attn_k_norm.weight", rows.get("attn_k"))):
        norm = block.get(name, ())
        if len(norm) == 1 and norm[0] not in (width, all_heads) and not latent:
            text = f"is {width}, but {name} has {norm[0]:,} numbers, neither of one head nor of all{fails}"
            yield "attention.key_length", text, "norm-width-differs"
    rank, rotated = keys.get("attention.kv_lora_rank"), keys.get("rope.dimension_count")
    if latent and is_count(rank) and is_count(rotated) and rows.get("attn_kv_a_mqa", rank + rotated) != rank + rotated:
        text = f"is {rank}, and with rope.dimension_count {rotated} makes {rank + rotated:,}, but attn_kv_a_mqa has "
        text += f"{rows['attn_kv_a_mqa']:,} rows{fails}"
        yield "attention.kv_lora_rank", text, "latent-width-differs"


def _key_rows(name: str, rows: int, kv_heads: int, width: int) -> str:
    """That a projection has other rows than its heads make, in words."""
    count, rest = divmod(rows, width)
    text = f"is {kv_heads}, but {name} has {rows:,} rows"
    text += f" = {count} head{'s' if count > 1 else ''} of {width}" if not rest else ""
    return f"{text}: llama.cpp does not load it"


def _on_positions(arch: str, keys: Mapping[str, Any], shapes: Shapes) -> Iterator[Finding]:
    length, table = keys.get("context_length"), shapes.get("position_embd.weight", ())
    if len(table) == 2 and is_count(length) and table[1] != length:
        text = f"is {length:,}, but position_embd has {table[1]:,} rows: llama.cpp does not load it; {_AGAIN}"
        yield Finding(f"{arch}.context_length", text, "position-table-differs", "fault")
    rules = FAMILIES[ARCHITECTURES[arch][0]].rotation if ARCHITECTURES[arch][0] in FAMILIES else None
    if rules is not None and rules.base != 10_000 and "rope.freq_base" not in keys and not rules.kinds:
        text = (
            f"is missing: llama.cpp takes 10000, and models of {arch} were made with {rules.base:g} where nothing else "
        )
        text += f"is said (the default of their config class); {_AGAIN}, or give llama.cpp --rope-freq-base"
        yield Finding(f"{arch}.rope.freq_base", text, "gguf-base-lost", "suspicion")
