"""What models without a rotation have instead: the encoding in words, and the class of posenc that builds it.

One line of `_TABLE` a family, by ``model_type``. Models of two halves or two senses have a line for each. Where keys of
the configuration turn encodings on, the family is in `_SWITCHED`; others decide too (``alibi``,
``position_embedding_type``): see `instead_of`.

Source: the modelling files of transformers 5.23; transfo-xl: version 4.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from posenc.hf.config.text_config import Section, flag_at

Found = TypeVar("Found")


class Instead(NamedTuple):
    """An encoding that is no RoPE.

    Attributes:
        text: what it is, for readers.
        builds: the call of posenc that builds it, "" where there is none.
    """

    text: str
    builds: str = ""

    def of(self, part: str) -> Instead:
        """The same, in one part of a model."""
        return self._replace(text=f"{part}: {self.text}")


class Switch(NamedTuple):
    """An encoding that keys of a configuration turn on.

    Attributes:
        encoding: which.
        keys: one that is true is enough; none: it is always there.
        default: what a key says that is not given.
    """

    encoding: Instead
    keys: tuple[str, ...] = ()
    default: bool = True


LEARNED = Instead("learned embeddings of the positions, added to the tokens'; there are none past the table",
                  "Learned(dim, max_length=max_length)")  # fmt: skip
OFFSET = Instead("learned embeddings of the positions; the first two rows of the table are not for positions of text",
                 "Learned(dim, max_length=max_length, offset=2)")  # fmt: skip
TEXT_AND_MORE = LEARNED._replace(text=f"{LEARNED.text}; places on a page have tables of their own")
PAPER = Instead("sinusoidal embeddings of the positions, added to the tokens'", "Sinusoidal(dim)")
HALVES = PAPER._replace(builds='Sinusoidal(dim, layout="half")')
FAIRSEQ = PAPER._replace(builds='Sinusoidal(dim, layout="half", spacing="tensor2tensor")')
ALIBI = Instead("ALiBi: scores lose a slope times the distance", "ALiBi(num_heads)")
FALCON = ALIBI._replace(builds="ALiBi(num_heads, bias_scale=head_dim ** -0.5)")
T5 = Instead("T5's bias: a learned number for each head and bucket of the distance, one table for all layers",
             "T5Bias(num_heads, bidirectional=True) in the encoder, False in the decoder")  # fmt: skip
T5_EACH = T5._replace(text=T5.text.replace("one table for all layers", "a table for each layer"))
XL = Instead("Transformer-XL's relative scores, from waves of the distance", "TransformerXL(dim, num_heads=num_heads)")
SHAW = Instead("learned vectors of the clipped distance in the scores, after Shaw",
               "Shaw(head_dim, max_distance=..., values=False)")  # fmt: skip
DISENTANGLED = Instead("disentangled attention: content to distance and distance to content, by buckets")
PATCHES = Instead("learned embeddings of the patches of an image, resized for another image",
                  "LearnedGrid(dim, size=(rows, columns), prefix=1)")  # fmt: skip
BARE_PATCHES = PATCHES._replace(builds="LearnedGrid(dim, size=(rows, columns))")
DINO = PATCHES._replace(text=f"{PATCHES.text}: resized(size, offset=0.1) as its authors do, without the offset here")
REGISTERS = PATCHES._replace(text=f"{PATCHES.text}: resized(size, antialias=True); registers have none")
NEAREST = BARE_PATCHES._replace(text="learned embeddings of the patches of an image; another image reads the nearest "
                                "rows, at positions.nearest")  # fmt: skip
WAVES = Instead("sinusoidal embeddings of the patches of an image", "SinusoidalGrid(dim)")
SWIN = Instead("a learned bias for each offset within a window", "SwinBias(num_heads, window)")
CPB = Instead("a bias by a small network of the log offset within a window", "LogCPB(num_heads, axes=2, window=...)")
BEIT = Instead("a learned bias for each offset of patches, and for the class token", "BEiTBias(num_heads, window)")
BY_TOKEN = Instead("a bias of the distance whose numbers each query makes from its token, up to a longest distance")
CONVOLVED = Instead("a convolution over the tokens, added to them, tells their order")
ORDERED = Instead("none: a recurrence reads the tokens in their order, and attention there is none")
HYBRID = Instead("none in attention (NoPE): recurrent layers between tell the order", "encodings=[]")
IMAGE_ONLY = Instead("none: convolutions see which pixels are neighbours")
AXES = Instead("learned axial embeddings: a table for each factor of the length, joined")
LATENT = Instead("learned embeddings of its latents; inputs have Fourier features or a table, as the task wants")
FOURIER = Instead("Fourier features of the pixels behind their channels, at positions.signed(..., corners=True)",
                  'SinusoidalGrid(258, family="perceiver", resolution=(224, 224), combine="concat")')  # fmt: skip
DECOMPOSED = Instead("a learned vector for each offset of rows and of columns, which each query reads",
                     "DecomposedRelative(head_dim, window)")  # fmt: skip
RANDOM = Instead(
    "random Fourier features of points, corners and the patches, at positions.signed", "RandomFourier(dim)"
)
LAYOUT = Instead("T5's bias for the place in the text, for x and for y, one table an axis for all layers",
                 "T5GridBias(num_heads, axes=3, num_buckets=(32, 64, 64), max_distance=(128, 256, 256))")  # fmt: skip
LAYOUT_SCALED = LAYOUT._replace(builds=f"{LAYOUT.builds[:-1]}, bias_scale=head_dim**-0.5)")
UDOP = LAYOUT._replace(builds="T5GridBias(num_heads, axes=3, num_buckets=32, max_distance=(128, 100, 100), "
                       "factor=(1, 100, 100)) in the encoder")  # fmt: skip


def _all(names: str, *encodings: Found) -> dict[str, tuple[Found, ...]]:
    return dict.fromkeys(names.split(), encodings)


_TABLE: dict[str, tuple[Instead, ...]] = {
    **_all(
        "albert bert bert-generation big_bird bigbird_pegasus blenderbot blenderbot-small blip_text_model bros "
        "chinese_clip_text_model clip_text_model clipseg_text_model coarse_acoustics convbert decision_transformer "
        "distilbert dpr electra ernie fine_acoustics flaubert flava_text_model fnet gpt2 gpt_bigcode gpt_neo "
        "groupvit_text_model imagegpt led lxmert megatron-bert metaclip_2_text_model mobilebert openai-gpt "
        "owlv2_text_model owlvit_text_model prophetnet rembert roc_bert semantic siglip2_text_model siglip_text_model "
        "splinter squeezebert tapas tvp visual_bert xclip_text_model xlm",
        LEARNED,
    ),
    **_all(
        "altclip_text_model bart barthez biogpt bridgetower_text_model camembert data2vec-text "
        "ibert luke longformer markuplm mbart mra mvp nystromformer opt plbart roberta roberta-prelayernorm trocr "
        "xlm-roberta xlm-roberta-xl xmod yoso",
        OFFSET,
    ),
    **_all("layoutlm lilt", TEXT_AND_MORE),
    "udop": (TEXT_AND_MORE._replace(text="learned embeddings of places on a page, added to the tokens'", builds=""),
             UDOP, T5.of("decoder")._replace(builds="T5Bias(num_heads)")),
    **_all("ctrl marian pegasus", HALVES),
    **_all("fsmt m2m_100 nllb-moe speech_to_text xglm", FAIRSEQ),
    **_all("musicgen_decoder musicgen_melody_decoder pegasus_x", PAPER._replace(builds="")),
    **_all("longt5 mt5 pop2piano switch_transformers t5", T5),
    "umt5": (T5_EACH,),
    "mpnet": (OFFSET, T5._replace(builds="T5Bias(num_heads, bidirectional=True)")),
    **_all("bloom mpt", ALIBI),
    **_all("funnel transfo-xl xlnet", XL),
    **_all("inkling_text inkling2_text", BY_TOKEN),
    **_all(
        "altclip chinese_clip clip clipseg flava groupvit metaclip_2 owlv2 owlvit xclip",
        LEARNED.of("text"), PATCHES.of("image"),
    ),
    **_all("siglip siglip2", LEARNED.of("text"), BARE_PATCHES.of("image")),
    **_all("blip vilt", LEARNED.of("text"), PATCHES.of("image")),
    **_all(
        "audio-spectrogram-transformer clip_vision_model deit ijepa vit vit_msn vitpose_backbone yolos",
        PATCHES,
    ),
    "dinov2": (DINO,),
    "dinov2_with_registers": (REGISTERS,),
    **_all("idefics2_vision idefics3_vision smolvlm_vision", NEAREST),
    **_all("sam sam_hq", BARE_PATCHES.of("image"), DECOMPOSED.of("image"), RANDOM.of("prompts")),
    **_all("hiera pvt siglip2_vision_model siglip_vision_model", BARE_PATCHES),
    **_all("videomae vit_mae", WAVES),
    **_all("donut-swin maskformer-swin swin", SWIN),
    **_all("swin2sr swinv2", CPB),
    "whisper": (FAIRSEQ.of("audio"), LEARNED.of("text")),
    **_all("data2vec-audio hubert sew unispeech unispeech-sat wav2vec2", CONVOLVED),
    "wavlm": (CONVOLVED, T5_EACH._replace(text=f"{T5.text}, gated by the token", builds="")),
    "speecht5": (CONVOLVED.of("audio"), PAPER.of("text, times a learned number"), SHAW.of("encoder")),
    **_all("falcon_mamba mamba mamba2 rwkv xlstm", ORDERED),
    **_all("glm5_next_text jamba kimi_linear nemotron_h zamba", HYBRID),
    **_all(
        "bit convnext convnextv2 dinov3_convnext efficientnet mobilenet_v1 mobilenet_v2 poolformer regnet resnet "
        "segformer",
        IMAGE_ONLY,
    ),
    "reformer": (AXES,),
    "perceiver": (LATENT, FOURIER.of("images")),
    "canine": (LEARNED._replace(text="learned embeddings of the positions, of characters"),),
}  # fmt: skip


def _names(text: str) -> list[str]:
    return text.split()


# Which tokens attend to which; of a model that is in none of the three it is not read. ``is_decoder`` makes a decoder
# of the first.
BIDIRECTIONAL = frozenset(_names(
    "albert altclip_text_model audio-spectrogram-transformer beit bert big_bird blip_text_model "
    "bridgetower_text_model bros camembert canine clip_vision_model convbert data2vec-audio data2vec-text "
    "data2vec-vision deberta deberta-v2 deepseek_ocr2_sam_vision_model deit dinov2 dinov2_with_registers "
    "distilbert dpr electra ernie esm flaubert flava_text_model funnel got_ocr2_vision hiera hubert ibert "
    "idefics2_vision idefics3_vision ijepa layoutlm layoutlmv2 layoutlmv3 lilt longformer luke lxmert "
    "markuplm megatron-bert mobilebert mpnet mra nystromformer perceiver pvt rembert roberta "
    "roberta-prelayernorm roc_bert sam_hq_vision_model sam_vision_model sew sew-d siglip2_text_model "
    "siglip2_vision_model siglip_text_model siglip_vision_model smolvlm_vision splinter squeezebert swin "
    "swin2sr swinv2 tapas tvp unispeech unispeech-sat videomae vilt visual_bert vit vit_mae vit_msn vitdet "
    "vitpose_backbone wav2vec2 wavlm xlm-roberta xlm-roberta-xl xmod yolos yoso"
))  # fmt: skip
CAUSAL = frozenset(_names(
    "biogpt bloom clip_text_model clipseg_text_model coarse_acoustics ctrl decision_transformer "
    "glm5_next_text gpt2 gpt_bigcode gpt_neo groupvit_text_model imagegpt inkling2_text inkling_text jamba "
    "kimi_linear metaclip_2_text_model mpt musicgen_decoder musicgen_melody_decoder nemotron_h openai-gpt opt "
    "owlv2_text_model owlvit_text_model semantic transfo-xl trocr xclip_text_model xglm zamba"
))  # fmt: skip
ENCODER_DECODER = frozenset(_names(
    "bart barthez bigbird_pegasus blenderbot blenderbot-small fsmt led longt5 m2m_100 marian mbart moonshine "
    "moonshine_streaming mt5 mvp nllb-moe pegasus pegasus_x plbart pop2piano prophetnet speech_to_text "
    "speecht5 switch_transformers t5 udop umt5 whisper"
))  # fmt: skip
# Models in which no token attends to another.
WITHOUT_ATTENTION = frozenset(_names(
    "bit convnext convnextv2 dinov3_convnext efficientnet falcon_mamba mamba mamba2 mobilenet_v1 mobilenet_v2 "
    "poolformer regnet resnet rwkv xlstm"
))  # fmt: skip
# Attention that reaches less than every token by keys that are not read yet, in words.
PARTIAL_ATTENTION: dict[str, str] = {
    **dict.fromkeys(["longformer", "led"], "a window of attention_window tokens, half to each side, and global tokens"),
    **dict.fromkeys(["big_bird", "bigbird_pegasus"], "blocks by attention_type, block_size and num_random_blocks"),
    "longt5": "a local radius, or local and global tokens, by encoder_attention_type",
    "reformer": "hashed and local chunks by attn_layers",
    "funnel": "blocks of pooled tokens",
    **dict.fromkeys(["swin", "swinv2", "swin2sr", "donut-swin", "maskformer-swin"], "windows of window_size patches"),
    "gpt_neo": "layers in turn global and local, by attention_types and window_size",
}
_OTHERWISE = {"esm": (OFFSET,)}  # of families that turn only if a key says so
_BY_BUCKETS = ("has_relative_attention_bias", "has_spatial_attention_bias")
_SWITCHED: dict[str, tuple[Switch, ...]] = {
    **_all(
        "deberta deberta-v2",
        Switch(LEARNED, ("position_biased_input",)), Switch(DISENTANGLED, ("relative_attention",), default=False),
    ),
    "sew-d": (Switch(CONVOLVED), Switch(DISENTANGLED, ("relative_attention",))),
    **_all(
        "beit data2vec-vision",
        Switch(PATCHES, ("use_absolute_position_embeddings",), default=False),
        Switch(BEIT, ("use_relative_position_bias", "use_shared_relative_position_bias"), default=False),
    ),
    **_all(
        "sam_vision_model sam_hq_vision_model got_ocr2_vision deepseek_ocr2_sam_vision_model pp_formulanet_vision "
        "slanext_vision unlimited_ocr_sam_vision_model",
        Switch(BARE_PATCHES, ("use_abs_pos",)), Switch(DECOMPOSED, ("use_rel_pos",)),
    ),
    "vitdet": (
        Switch(PATCHES, ("use_absolute_position_embeddings",)),
        Switch(DECOMPOSED, ("use_relative_position_embeddings",), default=False),
    ),
    "layoutlmv2": (Switch(TEXT_AND_MORE), Switch(LAYOUT, _BY_BUCKETS)),
    "layoutlmv3": (Switch(TEXT_AND_MORE), Switch(LAYOUT_SCALED, _BY_BUCKETS)),
}  # fmt: skip
_WAVES_BY = ("sinusoidal_pos_embds", "sinusoidal_embeddings")  # of distilbert, of xlm and flaubert
_NOTHING = Instead("none: no key of the configuration turns one on", "encodings=[]")
KNOWN = frozenset([*_TABLE, *_SWITCHED])


def instead_of(section: Section, whole: object = None) -> tuple[Instead, ...]:
    """The encodings of a model that does not turn queries and keys; empty for one that does, or is not known.

    Args:
        section: the text part.
        whole: model type of the whole, where that has parts.

    Raises:
        ValueError: for a key that decides and is neither true nor false.
    """
    config, name, kind = section.config, section.model_type, section.config.get("position_embedding_type")
    if flag_at(section, "alibi") or (kind == "alibi" and name in KNOWN):
        return (FALCON,)
    if section.family.turns_if is not None and config.get(section.family.turns_if[0]) != section.family.turns_if[1]:
        return _OTHERWISE.get(name, (HYBRID,))
    if section.known or kind in ("rotary", "rope"):
        return ()
    if name in _SWITCHED:
        return tuple(switch.encoding for switch in _SWITCHED[name] if _on(switch, section)) or (_NOTHING,)
    found = _TABLE.get(name, ())
    if found == (LEARNED,) and any(flag_at(section, key) for key in _WAVES_BY):
        return (PAPER,)
    return _TABLE.get(whole, found) if isinstance(whole, str) else found


def _on(switch: Switch, section: Section) -> bool:
    """Whether a configuration has the encoding."""
    told = [flag_at(section, key) for key in switch.keys]
    return not told or any(switch.default if flag is None else flag for flag in told)
