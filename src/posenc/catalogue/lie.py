"""Entries: rotations by learned generators."""

from __future__ import annotations

from posenc.catalogue.entry import Entry

ENTRIES: tuple[Entry, ...] = ()
