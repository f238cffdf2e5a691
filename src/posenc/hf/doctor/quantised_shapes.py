"""The shapes that packed projections of GPTQ and AWQ checkpoints have unpacked, and what contradicts their config.

    GPTQ   qweight (in · bits / 32, out)    scales (in / group, out)    qzeros (in / group, out · bits / 32)
    AWQ    qweight (in, out · bits / 32)    scales (in / group, out)    qzeros (in / group, out · bits / 32)

So the number of query and key/value heads is compared with the config in such checkpoints too.

Other packings of the same methods (Marlin, AWQ's GEMV) are left alone.

Source: the ``QuantLinear`` of AutoGPTQ and the ``WQLinear_GEMM`` of AutoAWQ, which name and pack these tensors. Written
    down from memory of their code, and not tried on a released quantised folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from posenc.hf.findings import Finding
from posenc.hf.limits import is_count

_METHODS = ("gptq", "awq")
_FORMS = ("gptq", "gptq_v2", "gemm")  # of a checkpoint; AWQ's other versions pack the other axis
_BITS = (2, 3, 4, 8)
_WORD = 32  # bits of the integers that hold packed values
Shape = tuple[int, ...]


def unpacked_shapes(shapes: Mapping[str, Shape], quantisation: Any) -> dict[str, Shape]:
    """``(out, in)`` of each packed projection, by the name that its weight has unpacked; empty for other methods."""
    method, bits = _method(quantisation)
    if method is None:
        return {}
    unpacked: dict[str, Shape] = {}
    for name, shape in shapes.items():
        base = name.removesuffix("qweight")
        scales = shapes.get(f"{base}scales", ())
        if base != name and len(shape) == 2 and len(scales) == 2:
            inputs = shape[0] * _WORD // bits if method == "gptq" else shape[0]
            unpacked[f"{base}weight"] = (scales[1], inputs)
    return unpacked


def on_quantisation(shapes: Mapping[str, Shape], quantisation: Any) -> Iterator[Finding]:
    """A declared quantisation that the weights do not have, and groups of another size."""
    method, _ = _method(quantisation)
    if method is None or not shapes:
        return
    unpacked = unpacked_shapes(shapes, quantisation)
    if not unpacked:
        if not any(name.endswith("qweight") for name in shapes):
            text = f"declares {method}, and the weights have no packed tensor (qweight): a loader that follows it "
            text += (
                "finds none of the projections, and they start at random; remove it from the config of plain weights"
            )
            yield Finding("quantization_config", text, "quantisation-not-in-weights", "suspicion")
        return
    size = quantisation.get("group_size", quantisation.get("q_group_size"))
    for name, (_, inputs) in unpacked.items():
        groups = shapes[f"{name.removesuffix('weight')}scales"][0]
        expected = 1 if size == -1 else -(-inputs // size) if is_count(size) else groups
        if groups != expected:
            text = f"is {size}, which makes {expected:,} groups of {inputs:,} channels, but {name[:-6]}scales has "
            text += f"{groups:,}: the file does not load"
            keys = {"group_size": inputs // groups} if "group_size" in quantisation and inputs % groups == 0 else None
            yield Finding("group_size", text, "group-size-differs", "fault", keys, inside="quantization_config")
            return  # all projections have groups of one size


def _method(quantisation: Any) -> tuple[str | None, int]:
    """The method and the bits of a value; None for methods whose packing is another one."""
    if not isinstance(quantisation, dict):
        return None, 0
    method, bits = quantisation.get("quant_method"), quantisation.get("bits", quantisation.get("w_bit"))
    form = quantisation.get("checkpoint_format", quantisation.get("version"))
    if isinstance(form, str) and form.lower() not in _FORMS:
        return None, 0
    return (method, bits) if method in _METHODS and bits in _BITS else (None, 0)
