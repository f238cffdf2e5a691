"""Entries: rotations by positions with several coordinates."""

from __future__ import annotations

from posenc.catalogue.entry import Entry

ENTRIES: tuple[Entry, ...] = ()
