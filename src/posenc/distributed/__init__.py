"""Attention over a sequence whose tokens are spread over processes, and the merging of partial results."""

from posenc.distributed.parallel import merged, sharded_attention

__all__ = ["merged", "sharded_attention"]
