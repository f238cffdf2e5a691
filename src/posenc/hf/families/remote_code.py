"""Model types whose code comes with the checkpoint and is not in transformers, and whose keys no other family has.

Other model types of remote code (qwen, internlm2, exaone, minicpm, mimo) spell their rotation as a Llama does. They
have no record: their configs are read with a note that the model type is unknown.
"""

from __future__ import annotations

from posenc.hf.families.family import Family

REMOTE_CODE: dict[str, Family] = {
    "baichuan": Family(
        unsupported="has its code in the checkpoint: models of 7B rotate queries and keys, models of 13B have ALiBi, "
        "and no key says which"
    ),
    "chatglm": Family(
        unsupported="has its code in the checkpoint: GLM-4 rotates half of the kv_channels of a head, in interleaved "
        "pairs, with a base that rope_ratio multiplies; convert it to model type glm, which posenc reads"
    ),
    "phi3small": Family(
        unsupported="has its code in the checkpoint: rope_embedding_base and rope_position_scale decide its rotation, "
        "and layers other than every dense_attention_every_n_layers-th have block-sparse attention"
    ),
}
