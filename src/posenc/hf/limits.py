"""Bounds of the numbers of a configuration: finite, and far above what any model has.

A number past its bound is an error that names the key, and comes before anything of that size is built. Each bound is
far above what models have, and low enough that everything here ends at once:

    tokens      2³¹: the angles of `RoPE` are exact below it; the longest model declared 10 million
    channels    4,096 of a head: the widest head has 512 (Gemma 4), the widest latent one 64
    width       2²⁰ of a stream, and as many heads: the widest stream has 18,432
    layers      16,384: the deepest transformer had 1,000 (DeepNet)
    base        10¹⁸: the largest in use is about 5·10¹⁰; in float32 transformers loses a base past 10³⁸
    times       2²⁰ longer than trained: the longest extension so far is by 512
    a number    10⁻⁹ … 10⁹ for all that has no unit of its own: ramps, gains
    a factor    10⁻⁹ … 10³⁰ of a single pair: published lists reach 65; 10³⁰ stops a pair (`frequencies.longrope`)
    depth       64 objects and lists within one another: configurations have 5
    a file      16 MiB: configurations have a few kB, tokenizers' a few MB
"""

from __future__ import annotations

from posenc.arguments import is_count as is_count
from posenc.arguments import is_number as is_number
from posenc.frequencies.longrope import STOPPED
from posenc.input_files import DEPTH as DEPTH

TOKENS = 2**31
CHANNELS = 4096
WIDTH = 2**20
LAYERS = 16_384
BASE = 1e18
TIMES = 2**20
SMALLEST, LARGEST = 1e-9, 1e9
LARGEST_FACTOR = STOPPED
FILE_BYTES = 16 * 2**20
