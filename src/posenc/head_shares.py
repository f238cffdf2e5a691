"""Some heads of an encoding: which query and key heads they are, and where its parameters hold them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn

Encoding = Any  # whose module imports this one


class HeadAxis(NamedTuple):
    """Where a parameter holds something of each head.

    Attributes:
        axis: along which heads follow one another, each with equally many numbers.
        of_keys: whether key heads do, rather than query heads.
        repeats: how often all heads follow one another along the axis.
    """

    axis: int = 0
    of_keys: bool = False
    repeats: int = 1


KEYS = HeadAxis(of_keys=True)  # the usual cases: along the first axis
QUERIES = HeadAxis()


@dataclass(frozen=True)
class HeadShare:
    """Query heads ``start`` … ``stop − 1`` of ``num_heads``; None: nothing of the encoding depends on how many."""

    start: int
    stop: int
    num_heads: int | None

    @classmethod
    def checked(cls, encoding: Encoding, start: int, stop: int, num_heads: int | None) -> HeadShare:
        """A share of an encoding's heads; a ValueError where it does not have them."""
        name = type(encoding).__name__
        own, num_kv_heads = getattr(encoding, "num_heads", None), getattr(encoding, "num_kv_heads", None)
        for word, number in (("start", start), ("stop", stop), ("num_heads", num_heads)):
            whole = isinstance(number, int) and not isinstance(number, bool)
            if not whole and not (word == "num_heads" and number is None):
                raise ValueError(f"{word} must be a whole number of heads, got {number!r}")
        if own is not None and num_heads not in (None, own):
            raise ValueError(f"num_heads of this {name} is {own}, got {num_heads}")
        if own is None and num_heads is None and num_kv_heads is not None:
            raise ValueError(
                f"num_heads must be given: {name} knows its {num_kv_heads} key heads, not how many query heads share "
                "them; call .heads(start, stop, num_heads=...)"
            )
        total = own if num_heads is None else num_heads
        if not 0 <= start < stop or (total is not None and stop > total):
            among = "" if total is None else f" among 0 … {total}"
            raise ValueError(f"start and stop must be heads{among}, start below stop, got {start} and {stop}")
        share = cls(start, stop, total)
        if num_kv_heads is not None:
            share.key_heads(num_kv_heads)
        return share

    @property
    def heads(self) -> slice:
        """The query heads."""
        return slice(self.start, self.stop)

    def key_heads(self, num_kv_heads: int) -> slice:
        """The key heads of these query heads; a ValueError where groups of query heads are cut."""
        assert self.num_heads is not None
        if self.num_heads % num_kv_heads:
            raise ValueError(f"num_heads must be a multiple of the {num_kv_heads} key heads, got {self.num_heads}")
        group = self.num_heads // num_kv_heads
        first, last = self.start // group, (self.stop - 1) // group
        if first != last and (self.start % group or self.stop % group):
            raise ValueError(
                f"start and stop must take whole groups of {group} query heads, which share a key head, or heads of "
                f"one group, got {self.start} and {self.stop}"
            )
        return slice(first, last + 1)

    def of(self, tensor: Tensor, where: HeadAxis, num_kv_heads: int | None) -> Tensor:
        """The part of a whole encoding's tensor."""
        if where.of_keys:
            assert num_kv_heads is not None
            kept, total = self.key_heads(num_kv_heads), num_kv_heads
        else:
            assert self.num_heads is not None
            kept, total = self.heads, self.num_heads
        by_head = tensor.unflatten(where.axis, (where.repeats, total, -1))  # type: ignore[no-untyped-call]
        part: Tensor = by_head.narrow(where.axis + 1, kept.start, kept.stop - kept.start)
        return part.flatten(where.axis, where.axis + 2).contiguous()


def keep_heads(encoding: Encoding, share: HeadShare) -> None:
    """Cut an encoding's parameters and numbers of heads, and those of the encodings inside it, to a share."""
    num_kv_heads: int | None = getattr(encoding, "num_kv_heads", None)
    for name, where in encoding.head_axes().items():
        owner, _, leaf = name.rpartition(".")
        module = encoding.get_submodule(owner)
        whole = getattr(module, leaf)
        part = share.of(whole.detach(), where, num_kv_heads).clone()
        setattr(module, leaf, nn.Parameter(part, whole.requires_grad) if isinstance(whole, nn.Parameter) else part)
    if getattr(encoding, "num_heads", None) is not None:
        encoding.num_heads = share.stop - share.start
    if num_kv_heads is not None:
        kept = share.key_heads(num_kv_heads)
        encoding.num_kv_heads = kept.stop - kept.start
    for inner in encodings_inside(encoding):
        inner._keep_heads(share)


def encodings_inside(module: nn.Module) -> Iterator[Encoding]:
    """The direct members of an encoding that wraps others, without the members of these."""
    for child in module.children():
        if hasattr(child, "_keep_heads"):
            yield child
        else:
            yield from encodings_inside(child)


def cut_hint(whole: int, local: int) -> str:
    """What to call where a tensor has ``local`` heads and an encoding is for ``whole``: "" unless it may be a share."""
    if not 0 < local < whole:
        return ""
    return (
        f"; under tensor parallelism, where a rank has {local} of {whole} heads, pass encoding.heads(start, stop), the "
        "encoding of the rank's heads, rather than a new one for fewer heads"
    )
