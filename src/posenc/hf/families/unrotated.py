"""Text decoders without rotation: learned tables, ALiBi, Transformer-XL's scores.

One record a model type, read in the modelling and configuration files of transformers 5.23.
"""

from __future__ import annotations

from posenc.hf.families.family import (
    FULL,
    HYBRID,
    HYBRID_SLIDING,
    INKLING,
    INKLING_2,
    SLIDING,
    Attention,
    Family,
    LayerPattern,
    Listing,
    Window,
)
from posenc.hf.families.position_schemes import (
    ALIBI,
    BY_TOKEN,
    SINUSOIDAL_FAIRSEQ,
    SINUSOIDAL_HALVES,
    TRANSFORMER_XL,
    learned,
    learned_with_offset,
)

UNROTATED: dict[str, Family] = {
    "biogpt opt": Family(schemes=(learned_with_offset(),)),
    "bloom mpt": Family(schemes=(ALIBI,)),
    "decision_transformer gpt2 gpt_bigcode openai-gpt": Family(schemes=(learned(key="n_positions"),)),
    "ctrl": Family(schemes=(SINUSOIDAL_HALVES.with_rows(256, "n_positions"),)),
    "gpt_neo": Family(
        layers=LayerPattern(
            (FULL, SLIDING),
            listing=Listing("spans", "attention_types", names={"global": FULL, "local": SLIDING}),
            count_key="num_layers",
            window=Window(key="window_size"),
        ),
        attention=Attention(scale="one"),
        schemes=(learned(),),
    ),
    "inkling2_text": Family(
        layers=LayerPattern((*5 * (HYBRID_SLIDING,), HYBRID), window=Window(key="sliding_window_size")),
        attention=Attention(sinks=("all",), sink_by_token=True, temperature=INKLING_2),
        schemes=(BY_TOKEN,),
    ),
    "inkling_text": Family(
        layers=LayerPattern(
            (*5 * (HYBRID_SLIDING,), HYBRID),
            window=Window(key="sliding_window_size"),
            listing=Listing("numbers", "local_layer_ids", names={"listed": HYBRID_SLIDING, "others": HYBRID}),
        ),
        attention=Attention(scale="inverse", temperature=INKLING),
        schemes=(BY_TOKEN,),
    ),
    "transfo-xl": Family(schemes=(TRANSFORMER_XL,)),
    "xglm": Family(layers=LayerPattern(count_key="num_layers"), schemes=(SINUSOIDAL_FAIRSEQ,)),
    "xlnet": Family(attention=Attention(direction=""), schemes=(TRANSFORMER_XL,)),
}
