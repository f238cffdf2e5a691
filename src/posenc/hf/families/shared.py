"""Values that several records share: blocks and kinds of layers of one lineage, and reasons for refusals."""

from __future__ import annotations

from posenc.hf.families.family import FULL, SLIDING, KindKeys

GEMMA_3_KINDS = {
    FULL: KindKeys("rope_theta", 1e6, scaled=True),
    SLIDING: KindKeys("rope_local_base_freq", 1e4, scaled=False),
}
MODERNBERT_KINDS = {
    FULL: KindKeys("global_rope_theta", 1.6e5, scaled=True),
    SLIDING: KindKeys("local_rope_theta", 1e4, scaled=True),
}
GEMMA_4_BLOCKS = {
    SLIDING: {"rope_type": "default", "rope_theta": 1e4},
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
}
GPT_OSS_BLOCK = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}
AXIAL = "rotates by the row and the column of an image patch, as AxialRoPE does, and by no position in a text"
AXIAL_TIME = "rotates by the time, the row and the column of a patch of a video, and by no position in a text"
AUDIO_ENCODER = "has a rotation only in an encoder of sound, by keys of its own (rotary_embedding_base)"
BY_HEAD = "rotates queries and keys alike by the number of their head, which changes no score: there is no position"
BIG_BIRD_BLOCKS = (
    "blocks of {block_size} tokens: its own, both neighbours, the first, the last and {num_random_blocks} random ones"
)
