"""Ready layers that take any list of encodings."""

from posenc.layers.cache import KVCache as KVCache
from posenc.layers.cache import StaticKVCache as StaticKVCache
from posenc.layers.cache import rerotate as rerotate
from posenc.layers.fox_pro import FoXPro as FoXPro
from posenc.layers.latent import LatentAttention as LatentAttention
from posenc.layers.self_attention import SelfAttention as SelfAttention

__all__ = [
    "FoXPro",
    "KVCache",
    "LatentAttention",
    "rerotate",
    "SelfAttention",
    "StaticKVCache",
]
