"""Entries: biases between tokens that lie on a grid."""

from __future__ import annotations

from posenc.catalogue.entry import Entry

ENTRIES: tuple[Entry, ...] = ()
