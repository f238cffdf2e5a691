"""Hook point 5, weights: a_i· ← w(s_i·), instead of softmax. One file, one encoding."""

from posenc.weight.sink import AttentionSink as AttentionSink
from posenc.weight.stick_breaking import StickBreaking as StickBreaking

__all__ = ["AttentionSink", "StickBreaking"]
