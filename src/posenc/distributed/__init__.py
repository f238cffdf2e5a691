"""Attention over several processes: context parallelism, tensor parallelism of encodings, merged partial results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posenc.lazy_imports import lazy_names

if TYPE_CHECKING:
    from posenc.distributed.heads import HeadParallel as HeadParallel
    from posenc.distributed.parallel import merged as merged
    from posenc.distributed.parallel import sharded_attention as sharded_attention

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {"posenc.distributed.heads": "HeadParallel", "posenc.distributed.parallel": "merged sharded_attention"},
)
