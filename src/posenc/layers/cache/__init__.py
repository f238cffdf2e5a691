"""Caches between decoding steps: a growing cache, one of fixed size for compilers, and moving cached keys."""

from posenc.layers.cache.kv_cache import KVCache as KVCache
from posenc.layers.cache.rerotation import rerotate as rerotate
from posenc.layers.cache.static import StaticKVCache as StaticKVCache
