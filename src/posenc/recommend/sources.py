"""The evidence for advice from outside this project: papers, model cards, and the code of released models.

Every source says one thing in `shows`, the fact that sentences cite it for, so that a reader can hold the sentence
against it. A file of transformers is named with a text that must stand in it; a test looks.
"""

from __future__ import annotations

from dataclasses import dataclass

TRANSFORMERS = "transformers 5.23"
_CODE = "https://github.com/huggingface/transformers/blob/main/src/transformers/models/"


@dataclass(frozen=True)
class Source:
    """A publication, a model card, or a file of code.

    Attributes:
        title: as sentences cite it.
        where: arXiv id and section, card, or version and file.
        url: of the page.
        shows: the fact that it is cited for.
        file: of transformers, below ``models``; "" for other sources.
        contains: text that stands in that file.
    """

    title: str
    where: str
    url: str
    shows: str
    file: str = ""
    contains: str = ""


def arxiv(title: str, number: str, shows: str, place: str = "") -> Source:
    """A publication by its arXiv number."""
    where = f"arXiv {number}" + (f", {place}" if place else "")
    return Source(title, where, f"https://arxiv.org/abs/{number}", shows)


def card(title: str, repository: str, shows: str) -> Source:
    """A model card."""
    return Source(title, f"model card and config.json of {repository}", f"https://huggingface.co/{repository}", shows)


def code(title: str, file: str, contains: str, shows: str) -> Source:
    """A file of transformers."""
    return Source(title, f"{TRANSFORMERS}, {file}", _CODE + file, shows, file, contains)


SOURCES: dict[str, Source] = {
    # decoders
    "llama2": arxiv("Llama 2", "2307.09288", "RoPE with base 10,000, trained at 4,096 tokens"),
    "llama3": arxiv("Llama 3", "2407.21783",
         "RoPE with base 500,000; context raised from 8k to 128k in six stages of continued pretraining",
         "sections 3.2 and 3.4.2"),
    "longlora": arxiv("LongLoRA", "2309.12307",
                       "LoRA for longer contexts needs trainable embeddings and normalization layers to come near full "
                       "fine-tuning"),
    "llama31": card("Llama 3.1", "meta-llama/Llama-3.1-8B",
                     "rope_type llama3 with factor 8 over 8,192 tokens, 131,072 declared; full attention, grouped "
                     "keys"),
    "qwen25": arxiv("Qwen2.5", "2412.15115",
         "base raised from 10,000 to 1,000,000 for the stage at 32,768 tokens; YaRN at inference, to 131,072",
         "section 3.3"),
    "qwen3_card": card("Qwen3", "Qwen/Qwen3-8B",
         "YaRN with factor 4 over 32,768 tokens for 131,072; a static factor may cost performance on shorter texts, so "
         "add it only where long contexts are needed"),
    "abf": arxiv("ABF", "2309.16039", "continued pretraining at up to 32,768 tokens with the base raised to 500,000"),
    "deepseek_v3": arxiv("DeepSeek-V3", "2412.19437", "YaRN in two phases of 1,000 steps, 4k to 32k to 128k",
                          "section 4.3"),
    "deepseek_v3_card": card("DeepSeek-V3", "deepseek-ai/DeepSeek-V3",
                              "base 10,000, YaRN with factor 40 over 4,096 tokens, 163,840 declared; latent keys"),
    "kimi_k2": card("Kimi-K2", "moonshotai/Kimi-K2-Instruct", "base 50,000, YaRN with factor 32 over 4,096 tokens"),
    "gpt_oss": code("gpt-oss", "gpt_oss/configuration_gpt_oss.py", "32.0",
                     "base 150,000, YaRN with factor 32 over 4,096 tokens; every second layer has a window of 128 and "
                     "all have learned sinks"),
    "gemma3": arxiv("Gemma 3", "2503.19786",
         "five local layers with a window of 1,024 to one global layer, base 10,000 local and 1,000,000 global; image "
         "tokens in the same sequence as text", "section 2"),
    "qwen3_5": code("Qwen3.5", "qwen3_5/configuration_qwen3_5.py", "linear_attention",
                     "three linear-attention layers to one with full attention"),
    "mistral": arxiv("Mistral 7B", "2310.06825", "a sliding window of 4,096 tokens in all layers"),
    "codellama": arxiv("Code Llama", "2308.12950",
         "base raised to 1,000,000 and fine-tuned at 16,384 tokens, used up to 100k", "section 2.4"),
    "qwen25_coder": arxiv("Qwen2.5-Coder", "2409.12186",
         "repository-level pretraining at 32,768 tokens with base 1,000,000, YaRN to 131,072", "section 3.2.2"),
    "mpt": card("MPT-7B", "mosaicml/mpt-7b", "ALiBi in a released decoder"),
    "bloom": arxiv("BLOOM", "2211.05100", "ALiBi in a released decoder of 176 billion parameters"),
    # context extension
    "yarn": arxiv("YaRN", "2309.00071",
         "fine-tuned for a few hundred steps at 64k and 128k; also without training; where frequencies follow the "
         "length, keys must be cached before their rotation (section 3.3)"),
    "dynamic_ntk": Source("Dynamic NTK", "post of June 2023, r/LocalLLaMA",
                  "https://www.reddit.com/r/LocalLLaMA/comments/14mrgpr/",
                  "a base that grows with the text beyond the training length, without training"),
    "longrope": arxiv("LongRoPE", "2402.13753",
         "searched factors, fine-tuned in stages, a second search for short texts"),
    "longrope2": arxiv("LongRoPE2", "2502.20082",
         "critical pair and factors searched by needles, then 10 billion tokens in mixed windows: Phi-3-mini from 2k "
         "and Llama-3-8B from 8k to 128k (section 4)"),
    "drope": arxiv("DroPE", "2512.12167",
         "rotation dropped after pretraining, then a recalibration at the training length; budgets in cfgs/run_cfg of "
         "github.com/SakanaAI/DroPE: 10 billion tokens for Llama-2-7B"),
    "phi3": card("Phi-3", "microsoft/Phi-3-mini-128k-instruct", "LongRoPE factors for a released model at 131,072"),
    "self_extend": arxiv("Self-Extend", "2401.01325", "remaps distances at inference, without training"),
    "streaming_llm": arxiv("StreamingLLM", "2309.17453",
         "window plus four first tokens: stable loss at constant memory; what left the window cannot be used"),
    "quantized_cache": Source("vLLM on quantised caches", "documentation, Quantized KV Cache",
                              "https://docs.vllm.ai/en/stable/features/quantization/quantized_kvcache.html",
                              "an 8-bit key/value cache, half as large as one of 16 bits"),
    "ruler": Source("RULER", "arXiv 2404.06654, and the table of its repository", "https://github.com/NVIDIA/RULER",
                    "Qwen2-72B: 94.1 at 32k, 79.8 at 64k, 53.7 at 128k; Llama 3.1 70B: 94.8 at 32k, 66.6 at 128k; "
                    "most models score well in the plain needle test and fall on the other tasks"),
    "context_shift": Source("llama-server", "README of llama.cpp's tools/server, --context-shift and --keep",
                            "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
                            "context shift for texts without end; --keep holds the first tokens"),
    "rotating_cache": Source("mlx-lm", "mlx_lm/models/cache.py, make_prompt_cache: RotatingKVCache(…, keep=4)",
                             "https://github.com/ml-explore/mlx-lm/blob/main/mlx_lm/models/cache.py",
                             "with max_kv_size a cache that rotates and keeps the first four tokens"),
    # encoders and encoder-decoders
    "modernbert": code("ModernBERT", "modernbert/configuration_modernbert.py",
                        '{"global": 160_000.0, "local": 10_000.0}',
                        "base 160,000 in global layers and 10,000 in local ones; 8,192 tokens (arXiv 2412.13663)"),
    "bert": code("BERT", "bert/modeling_bert.py", "self.position_embeddings = nn.Embedding",
                  "a learned table of positions"),
    "t5": arxiv("T5", "1910.10683", "a learned bias of bucketed distances in encoder and decoder"),
    "t5gemma": code("T5Gemma", "t5gemma/modeling_t5gemma.py", "class T5GemmaRotaryEmbedding",
                     "RoPE in an encoder-decoder"),
    # images and video
    "dinov3": code("DINOv3", "dinov3_vit/configuration_dinov3_vit.py", "rope_theta: float = 100.0",
                    "axial RoPE, base 100, coordinates in [−1, 1], rescaled at random in training (arXiv 2508.10104)"),
    "swin_v2": arxiv("Swin V2", "2111.09883", "a bias by log-spaced coordinates, moved to larger windows"),
    "vit": arxiv("ViT", "2010.11929", "a learned table, interpolated for another resolution", "section 3.2"),
    "vjepa2": code("V-JEPA 2", "vjepa2/modeling_vjepa2.py", "class VJEPA2RopeAttention",
                    "RoPE on time, row and column (arXiv 2506.09985)"),
    "cogvideox": arxiv("CogVideoX", "2408.06072", "3D RoPE in video generation"),
    "qwen2_vl": arxiv("Qwen2-VL", "2409.12191", "M-RoPE: channels shared among time, row and column"),
    "qwen25_vl": arxiv("Qwen2.5-VL", "2502.13923", "M-RoPE with time in seconds"),
    "qwen3_vl": code("Qwen3-VL", "qwen3_vl/configuration_qwen3_vl.py", "mrope_interleaved",
                      "M-RoPE with interleaved channels; timestamps as text (arXiv 2511.21631)"),
    "qwen3_vl_card": card("Qwen3-VL", "Qwen/Qwen3-VL-8B-Instruct",
                           "YaRN with factor 2 or 3, not 4, from 256k to 1M: position ids grow more slowly"),
    "qwen25_vl_card": card("Qwen2.5-VL", "Qwen/Qwen2.5-VL-7B-Instruct",
                            "YaRN to more than 32,768 tokens harms temporal and spatial localization"),
    "flux": Source("FLUX.1", "config of black-forest-labs/FLUX.1-dev: axes_dims_rope 16, 56, 56",
                   "https://huggingface.co/black-forest-labs/FLUX.1-dev",
                   "axial RoPE over an index, row and column, base 10,000"),
    "flux_sizes": Source("Black Forest Labs on FLUX.1", "blog of 1 August 2024", "https://bfl.ai/blog/24-08-01-bfl",
                         "FLUX.1 is made for 0.1 to 2 megapixels"),
    "flux_bands": Source("forge#1821", "issue with pictures", "https://github.com/lllyasviel/stable-diffusion-webui-forge/issues/1821",
                         "FLUX.1 shows bands at 2,048 pixels and a checkerboard at 3,072"),
    "qwen_image": arxiv("Qwen-Image", "2508.02324", "a centred picture, text behind it on all axes"),
    "dype": arxiv("DyPE", "2510.20766", "rows and columns interpolated at the start of denoising, plain at its end"),
    "dype_users": Source("ComfyUI-DyPE#14", "issue", "https://github.com/wildminder/ComfyUI-DyPE/issues/14",
                         "wrong proportions and extra limbs above 2,048 pixels"),
    "ultraflux": arxiv("UltraFlux", "2511.18050", "FLUX trained at 4K with YaRN over rounded wavelengths"),
    "wan": arxiv("Wan", "2503.20314", "3D RoPE with 44, 42 and 42 channels in its code"),
    "hunyuan_video": arxiv("HunyuanVideo", "2412.03603", "3D RoPE with 16, 56 and 56 channels"),
    "wan_frames": Source("Wan2.1#54", "issue, answered by the authors", "https://github.com/Wan-Video/Wan2.1/issues/54",
                         "trained mostly at 81 frames; beyond, slightly worse; sliding context windows recommended"),
    "riflex": arxiv("RIFLEx", "2502.15894", "one frequency of the frames slowed, twice the length without training"),
    "riflex_training": Source("HunyuanVideo#228", "issue by RIFLEx's authors",
                              "https://github.com/Tencent-Hunyuan/HunyuanVideo/issues/228",
                              "1,000 steps of batch 8 at the original length improve it"),
    "riflex_port": Source("WanVideoWrapper#178", "issue, answered by the maintainer",
                          "https://github.com/kijai/ComfyUI-WanVideoWrapper/issues/178",
                          "RIFLEx on Wan costs quality"),
    "ultravico": arxiv("UltraViCo", "2511.20123", "content repeats in some models, quality degrades in all"),
    "sd3": arxiv("Stable Diffusion 3", "2403.03206", "a 2D sinusoid, interpolated and cropped for other sizes"),
    "dit": arxiv("DiT", "2212.09748", "a 2D sinusoid added to the patches"),
    # sound, molecules, algorithms
    "conformer": arxiv("Conformer", "2005.08100", "Transformer-XL's relative encoding for speech"),
    "moonshine": code("Moonshine", "moonshine/modeling_moonshine.py", "class MoonshineRotaryEmbedding",
                       "RoPE for speech of any duration (arXiv 2410.15608)"),
    "whisper": code("Whisper", "whisper/modeling_whisper.py", "Returns sinusoids for positional embedding",
                     "sinusoids in an encoder of fixed windows of 30 s, a learned table in the decoder"),
    "music_transformer": arxiv("Music Transformer", "1809.04281", "relative attention for music"),
    "musicgen": code("MusicGen", "musicgen/modeling_musicgen.py", "class MusicgenSinusoidalPositionalEmbedding",
                      "sinusoids for music tokens"),
    "yue": arxiv("YuE", "2503.08638", "a Llama decoder, so RoPE, for songs of minutes"),
    "esm": code("ESM-2", "esm/modeling_esm.py", "apply_rotary_pos_emb", "RoPE for protein sequences"),
    "abacus": arxiv("Abacus", "2405.17399",
         "digit positions with a random offset; sums of 100 digits after training on 20, also sorting and "
         "multiplication"),
    "nope_paper": arxiv("Kazemnejad et al.", "2305.19466",
         "NoPE generalizes to longer algorithmic tasks better than ALiBi, RoPE and learned tables"),
    "randomized": arxiv("randomized positions", "2305.16843",
         "positions drawn from a longer range generalise over algorithmic tasks"),
    # research
    "fox": arxiv("FoX", "2503.02130", "forget gates; its authors report that needles are still found"),
    "path": arxiv("PaTH", "2505.16381", "products of Householder-like matrices that depend on the tokens"),
    "stick_breaking": arxiv("stick-breaking attention", "2410.17980", "extrapolates in its authors' language models"),
    "cope": arxiv("CoPE", "2405.18719", "positions counted by content"),
    "alibi": arxiv("ALiBi", "2108.12409", "trained at 1,024 tokens, perplexity stays low at 2,048 and beyond"),
}  # fmt: skip
