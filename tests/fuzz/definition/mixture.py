"""Score encodings that hold other encodings: DAPE around a bias, and weighted sums of lists."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tests.fuzz.definition.terms import Call, Encoded, linear, products

Bias = Callable[[Encoded, Call], Tensor]
Rotation = Callable[[Encoded, Call], Call]
Score = Callable[[Encoded, Tensor, Call], Tensor]
Read = Callable[[Encoded, Tensor, Call], Tensor | None]


def dape(encoded: Encoded, scores: Tensor, call: Call, biases: dict[str, Bias]) -> Tensor:
    inner: Encoded = encoded.option("bias")  # type: ignore[assignment]
    parameters, rounding = encoded.parameters, call.rounding
    bias = biases[inner.kind](inner, call).expand_as(scores)
    both = torch.cat([scores, bias], 1).movedim(1, -1)
    units = linear(both, parameters["inner.weight"], parameters["inner.bias"], rounding)
    units = torch.where(units > 0, units, 0.01 * units)
    bent = linear(units, parameters["outer.weight"], parameters["outer.bias"], rounding).movedim(-1, 1)
    return rounding.near(scores + bias + bent)


def kernel(encoded: Encoded, scores: Tensor, call: Call, biases: dict[str, Bias]) -> Tensor:
    """KERPLE's weight: the product of queries and keys, times exp(bias) − 1, added to what there is."""
    inner: Encoded = encoded.option("bias")  # type: ignore[assignment]
    bias = biases[inner.kind](inner, call)
    lost = call.rounding.near(torch.expm1(bias), bias.detach().exp() * (1 + bias.detach().abs()))
    product = call.capped(products(call.q, call.for_queries(call.k), call.rounding) * call.scale)
    return call.rounding.near(scores + call.rounding.near(lost * product))


class Members:
    """A mixture's lists, with the rules for what each may hold."""

    def __init__(
        self,
        encoded: Encoded,
        rotations: dict[str, Rotation],
        biases: dict[str, Bias],
        scores: dict[str, Score],
        reads: dict[str, Read],
    ) -> None:
        self.encoded, self.rotations, self.biases = encoded, rotations, biases
        self.scores, self.reads = scores, reads
        self.lists: list[list[Encoded]] = encoded.option("members")  # type: ignore[assignment]

    def shares(self, call: Call) -> Tensor:
        """How far heads, or each of their queries, heed members, ``(batch | 1, heads, queries | 1, members)``."""
        logits = self.encoded.parameters["logits"][None, :, None, :]
        if self.encoded.option("adaptive", False):
            assert call.x is not None
            asked = linear(call.x, self.encoded.parameters["weight"], None, call.rounding)
            of_heads = asked.unflatten(-1, (-1, len(self.lists))).transpose(1, 2)
            logits = logits + of_heads[:, :, call.own.clamp(min=0)]
        return call.rounding.near(logits.softmax(-1))

    def mixed(self, scores: Tensor, call: Call) -> Tensor:
        total = torch.zeros(())
        for member, share in zip(self.lists, self.shares(call).unbind(-1), strict=True):
            total = total + share.unsqueeze(-1) * self.alone(member, scores, call)
        return call.rounding.near(total)

    def alone(self, member: list[Encoded], scores: Tensor, call: Call) -> Tensor:
        """What one list makes of the scores: rotations, then biases, then score encodings."""
        after = self.rotated(member, call)
        if any(e.kind in self.rotations for e in member):
            changed = _bare(after) - _bare(call)
            scores = call.rounding.near(scores + changed)
        for e in member:
            if e.kind in self.biases:
                scores = call.rounding.near(scores + self.biases[e.kind](e, call))
        for e in member:
            if e.kind in self.scores:
                scores = self.scores[e.kind](e, scores, after)
        return scores

    def rotated(self, member: list[Encoded], call: Call) -> Call:
        for e in member:
            if e.kind in self.rotations:
                call = self.rotations[e.kind](e, call)
        return call

    def read(self, weights: Tensor, call: Call) -> Tensor | None:
        """What the members read beside v, with the same shares."""
        total: Tensor | None = None
        for member, share in zip(self.lists, self.shares(call).unbind(-1), strict=True):
            for e in member:
                found = self.reads[e.kind](e, weights, self.rotated(member, call)) if e.kind in self.reads else None
                if found is not None:
                    part = share.unsqueeze(-1) * found
                    total = part if total is None else total + part
        return total


def _bare(call: Call) -> Tensor:
    return call.capped(products(call.q, call.for_queries(call.k), call.rounding) * call.scale)
