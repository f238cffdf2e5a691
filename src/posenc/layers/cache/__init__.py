"""Caches between decoding steps: one that grows in place, one of fixed size for compilers, and keys that move."""

from posenc.layers.cache.kv_cache import KVCache as KVCache
from posenc.layers.cache.rerotation import rerotate as rerotate
from posenc.layers.cache.static import StaticKVCache as StaticKVCache
