"""posenc's rotation in a transformer of diffusers: attached, scaled for larger pictures and longer videos, detached.

    from posenc.diffusers import attach, detach, dype, riflex
    attach(flux.transformer, dype())                                       # pictures above 1,024 pixels
    attach(wan.transformer, riflex(6, repeats_at=51))                      # videos longer than the trained ones
    attach(flux.transformer, (None, YaRN(2.0, original_length=64), YaRN(2.0, original_length=64)))
    detach(flux.transformer)

`attach` replaces the modules that compute a model's tables of cos and sin by modules that compute them with posenc, in
float32 of exact angles. Nothing else of the model changes: its own code still applies the tables. `KNOWN` has the
classes that are replaced, whatever their sizes; `classes` has the facts of each.
"""

from __future__ import annotations

from posenc.diffusers.attached import AttachedPositions, attach, detach
from posenc.diffusers.classes import KNOWN
from posenc.diffusers.scalings import dype, riflex

__all__ = ["KNOWN", "AttachedPositions", "attach", "detach", "dype", "riflex"]
