"""The state of a cache that grows: what it holds, and the numbers that say what of the text that is."""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.layers.cache.tracks import FEATURES, PADDING, POSITIONS, SEGMENTS, K, Tracks, V

AHEAD = 64  # steps


class CacheState:
    """What `posenc.layers.KVCache` knows of a text; its other halves change that."""

    def __init__(
        self, *, capacity: int | None = None, window: int | None = None, sinks: int = 0, slack: int = 0
    ) -> None:
        for name, given, least in (("capacity", capacity, 1), ("window", window, 1), ("sinks", sinks, 0),
                                   ("slack", slack, 0)):  # fmt: skip
            if given is None and name in ("capacity", "window"):
                continue
            if isinstance(given, bool) or not isinstance(given, int) or given < least:
                raise ValueError(f"{name} must be an integer of at least {least}, in tokens, got {given!r}")
        self.window, self.sinks, self.slack = window, sinks, slack
        self._tracks = Tracks(capacity)
        self._forget()

    def _forget(self) -> None:
        """Everything that is known of a text."""
        self._tracks.start = self._tracks.stop = 0
        self.rotated = True  # whether k is
        self.length: int | None = None  # the length that was declared for their rotation
        self.last: tuple[Tensor, ...] = ()  # what the layer itself needs of each row's newest token (FoXPro)
        self.seen = 0  # tokens that came, padding and forgotten ones included
        self.next = 0  # position of the next token, where positions count
        self.given = False  # whether a caller gave positions
        self.apart = 0  # sinks whose neighbours are gone
        self.reach: int | None = None  # window by which tokens were forgotten
        self.raw: int | None = None  # newest tokens that lie as they came; None: all
        self.version = 0  # drafts of another version are refused
        self._coming: tuple[Tensor, ...] = ()  # positions of some steps ahead, from `_coming_from` on
        self._coming_from = 0

    def __len__(self) -> int:
        """Tokens kept, padding included."""
        return self._tracks.stop - self._tracks.start

    @property
    def k(self) -> Tensor | None:
        """``(batch, num_kv_heads, tokens, head_dim)``, a view; None while empty."""
        return self._tracks.live(K) if len(self) else None

    @property
    def v(self) -> Tensor | None:
        """``(batch, num_kv_heads, tokens, value_dim)``, a view; None while empty."""
        return self._tracks.live(V) if len(self) else None

    @property
    def positions(self) -> Tensor | None:
        """``(batch | 1, tokens, ...)``; None: counted."""
        return self._tracks.live(POSITIONS) if len(self) else None

    @property
    def attention_mask(self) -> Tensor | None:
        """``(batch | 1, tokens)`` bool, True at real tokens; None: all are."""
        return self._tracks.live(PADDING) if len(self) else None

    @property
    def segments(self) -> Tensor | None:
        """``(batch | 1, tokens)``; None: one document a row."""
        return self._tracks.live(SEGMENTS) if len(self) else None

    @property
    def features(self) -> list[Tensor | None]:
        """What each encoding remembers, ``(batch, heads, tokens, ...)`` or None; one per encoding."""
        return [self._tracks.live(track) for track in range(FEATURES, len(self._tracks.held))] if len(self) else []

    @property
    def plain(self) -> bool:
        """Whether positions count, and there is neither padding nor any document."""
        tracks = self._tracks
        held = tracks.held
        if tracks.stop == tracks.start:
            return True
        return held[POSITIONS] is None and held[PADDING] is None and held[SEGMENTS] is None

    def counted(self, device: torch.device) -> Tensor:
        """Positions of the kept tokens where they count, ``(tokens,)``."""
        if not self.apart:
            return torch.arange(self.next - len(self), self.next, device=device)
        index = torch.arange(len(self), device=device)
        return torch.where(index < self.apart, index, index + (self.next - len(self)))

    def coming(self, device: torch.device) -> Tensor:
        """The position of the next token where positions count, ``(1,)``; made for some steps at once."""
        at = self.next - self._coming_from
        if not 0 <= at < len(self._coming) or self._coming[at].device != device:
            with torch.inference_mode(False):
                made = torch.arange(self.next, self.next + AHEAD, device=device).unsqueeze(-1).unbind(0)
            if type(made[0]) is not Tensor:  # a stand-in of a tracing mode
                return made[0]
            self._coming, self._coming_from, at = made, self.next, 0
        return self._coming[at]

    @property
    def gap(self) -> int:
        """Positions between the sinks, or the start, and the oldest other token kept, where positions count."""
        return self.next - len(self)

    def check_positions(self, positions: Tensor | None) -> None:
        """Raise a ValueError where a caller who gave positions gives none any more."""
        if positions is None and self.given and len(self):
            raise ValueError("positions must be given, as they were in an earlier call that shares this cache")
