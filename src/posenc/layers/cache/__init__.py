"""Caches between decoding steps: one that grows in place, one of fixed size for compilers, and keys that move."""

from posenc.layers.cache.growing import KVCache as KVCache
from posenc.layers.cache.moving import rerotate as rerotate
from posenc.layers.cache.static import StaticKVCache as StaticKVCache
