"""Attention over a sequence whose tokens are spread over processes, and the merging of partial results."""
