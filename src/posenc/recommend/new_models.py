"""Rules for a model that is yet to be trained, by kind of model and task."""

from __future__ import annotations

from posenc.recommend.rule import Condition, Rule, When

_NEW: When = {"model": "new"}
_LM: When = {**_NEW, "kind": ("decoder", "code"), "algorithmic": False}
_RESEARCH: When = {**_NEW, "kind": "research", "algorithmic": False}
_ALGORITHM: When = {**_NEW, "algorithmic": True}
_FULL_CONTEXT: When = {**_LM, "task": ("general", "perplexity", "retrieval")}  # the whole context must be usable
_LONGER = {"above": 1.0}
_DIGITS = ("arithmetic", "general", "perplexity", "retrieval", "streaming")  # tasks that digits stand for
_OTHER_KINDS = ("encoder", "encoder-decoder", "video", "vision-language", "image-generation", "speech", "music",
                "protein", "other")  # fmt: skip


def _kind(kind: str, **more: Condition) -> When:
    return {**_NEW, "kind": kind, **more}


DECODER = (
    Rule("default", "RoPE with a sliding window in all or most layers, and first tokens that stay visible or learned "
         "sinks (gpt-oss): memory stays constant, and what left the window cannot be used.", "practice",
         ("streaming_llm", "mistral", "gpt_oss"), {**_LM, "task": "streaming"}),
    Rule("default", "RoPE (half layout), base 500,000, in local and global layers, because the cache of full attention "
         "does not fit; then continued pretraining in stages up to {length} tokens.", "practice",
         ("gemma3", "llama3", "qwen25"), {**_LM, "ratio": _LONGER, "budget": "over"}),
    Rule("default", "RoPE (half layout), base 500,000, then continued pretraining in stages up to {length} tokens.",
         "practice", ("llama3", "qwen25"), {**_LM, "ratio": _LONGER}),
    Rule("default", "RoPE (half layout), base 500,000 or more, so that the context can be extended later.", "practice",
         ("llama3", "qwen25"), {**_LM, "length": {"above": 4096}}),
    Rule("default", "RoPE (half layout), base 10,000; 500,000 or more if the context is to be extended later.",
         "practice", ("llama2", "llama3"), _LM),
    Rule("practice", "So did Llama 3 (base 500,000 from the start, 8k to 128k in six stages; 3.1 adds a factor-8 "
         "block), Qwen2.5 (base 1,000,000), and the recipe known as ABF.", "practice",
         ("llama3", "llama31", "qwen25", "abf"), {**_FULL_CONTEXT, "ratio": _LONGER}),
    Rule("practice", "Code models raise the base and train on whole repositories: Code Llama (base 1,000,000, "
         "fine-tuned at 16,384 tokens, used up to 100k), Qwen2.5-Coder (base 1,000,000 at 32,768, YaRN to 131,072).",
         "practice", ("codellama", "qwen25_coder"), _kind("code", algorithmic=False)),
    Rule("practice", "Expect less at the far end, even after training at that length: Llama 3.1 70B scores 94.8 on "
         "RULER at 32k and 66.6 at 128k. Rank checkpoints by retrieval, not by loss.", "practice", ("ruler",),
         {**_LM, "task": "retrieval"}),
    Rule("instead", "YaRN over a shorter training length, where long stages cost too much: DeepSeek-V3 (base 10,000, "
         "two further phases of 1,000 steps), gpt-oss (base 150,000, factor 32 over 4,096), Kimi-K2 (base 50,000, "
         "factor 32 over 4,096).", "practice", ("deepseek_v3", "deepseek_v3_card", "gpt_oss", "kimi_k2"),
         {**_FULL_CONTEXT, "ratio": _LONGER}),
    Rule("instead", "ALiBi, if contexts are longer than any that you can train on and recent tokens decide (MPT, "
         "BLOOM). Its weights decay with distance, so it gives up exact retrieval from far back.", "practice",
         ("alibi", "mpt", "bloom"), {**_LM, "ratio": _LONGER, "task": ("general", "perplexity", "streaming")}),
    Rule("check", "posenc evaluate MODEL --tasks niah,ruler,perplexity --lengths {train_length_digits},{length_digits}",
         "by definition", ("docs/evaluate.md",), _FULL_CONTEXT),
    Rule("check", "posenc evaluate MODEL --tasks perplexity --lengths {train_length_digits},{length_digits}",
         "by definition", ("docs/evaluate.md",), {**_LM, "task": "streaming"}),
)  # fmt: skip

RESEARCH = (
    Rule("default", "RoPE (half layout), base 10,000, as the baseline that readers expect. Beyond the training length "
         "its loss rises sharply; a sliding window of that length prevents this in the small models here (findings 1 "
         "to 3).", "measured here", ("docs/findings.md",), _RESEARCH),
    Rule("practice", "What to compare it with: ALiBi and NoPE as simple references; FoX (its authors report that "
         "needles are still found), PaTH, stick-breaking and CoPE as encodings that depend on content.", "practice",
         ("alibi", "nope_paper", "fox", "path", "stick_breaking", "cope"), _RESEARCH),
    Rule("check", "posenc compare rope alibi fox nope --data YOUR-TEXT --seeds 5     (equal budgets; the report names "
         "what is not testable with such models)", "by definition", ("docs/compare.md",), _RESEARCH),
)  # fmt: skip

ALGORITHMS = (
    Rule("default", "Abacus, with one token a digit and the least significant digit first: each digit gets its place "
         "within its number, with a random offset in training.", "practice", ("abacus",),
         {**_ALGORITHM, "task": _DIGITS}),
    Rule("default", "Abacus if the items are numbers written in digits; otherwise positions drawn at random from a "
         "range longer than any that you will test.", "practice", ("abacus", "randomized"),
         {**_NEW, "task": "sorting"}),
    Rule("default", "RoPE with a sliding window of the training length where the answer lies within it; positions "
         "drawn at random from a longer range where it does not.", "practice", ("randomized", "docs/findings.md"),
         _ALGORITHM),
    Rule("practice", "Its authors train on sums of up to 20 digits and solve sums of 100, with recurrent layers that "
         "see the input again. Here, without them, no encoding adds numbers of 13 digits after sums of up to 6 "
         "(finding 9).", "practice", ("abacus", "docs/findings.md"), {**_ALGORITHM, "task": (*_DIGITS, "sorting")}),
    Rule("instead", "NoPE: Kazemnejad et al. find that it generalizes to longer algorithmic tasks better than ALiBi, "
         "RoPE and learned tables. Here it learned none of the tasks within the steps given.", "practice",
         ("nope_paper", "docs/findings.md"), _ALGORITHM),
    *(Rule("check", f"posenc compare {names} --task {task} --seeds 5", "by definition", ("docs/compare.md",),
           {**_ALGORITHM, "task": tasks})
      for tasks, task, names in (
          (_DIGITS, "addition", "abacus abacus+rope rope nope"), (("copying",), "copy", "rope alibi nope"),
          (("counting",), "counting", "rope cope alibi"), (("state",), "flipflop", "rope cope alibi"),
      )),
    Rule("check", "A task of your own (one class with a function that makes examples), then posenc compare abacus rope "
         "nope --task my_module:Sorting --seeds 5", "by definition", ("docs/extending.md",),
         {**_ALGORITHM, "task": "sorting"}),
)  # fmt: skip

OTHERS = (
    Rule("default", "RoPE with local and global layers, base 10,000 in local and 160,000 in global ones, as ModernBERT "
         "has it for 8,192 tokens.", "practice", ("modernbert",), _kind("encoder", length={"above": 512})),
    Rule("default", "RoPE. A learned table as in BERT is enough only if texts never grow beyond its rows.", "practice",
         ("modernbert", "bert"), _kind("encoder")),
    Rule("default", "RoPE in the self-attention of both halves, and no encoding in cross-attention.", "practice",
         ("t5gemma",), _kind("encoder-decoder")),
    *(Rule("default", "Axial RoPE on patch coordinates in [−1, 1], rescaled at random in training (DINOv3), or a 2D "
           "sinusoid on coordinates that are scaled with the image. Train both: among encodings without that rescaling "
           "the sinusoid was ahead on a finer grid of small pictures here.", "practice",
           ("dinov3", "docs/results/images"), _kind("vision", ratio=another))
      for another in (_LONGER, {"upto": 0.999})),
    Rule("default", "Axial RoPE: one half of the channels rotates by row, the other by column.", "practice",
         ("dinov3",), _kind("vision")),
    Rule("default", "RoPE on three axes: time, row and column, each with its share of the channels (V-JEPA 2; "
         "CogVideoX 16, 24 and 24, HunyuanVideo 16, 56, 56, Wan 44, 42, 42). Give time in seconds where frame rates "
         "differ (Qwen2.5-VL), or as text between the frames (Qwen3-VL).", "practice",
         ("vjepa2", "cogvideox", "hunyuan_video", "wan", "qwen25_vl", "qwen3_vl"), _kind("video")),
    Rule("default", "M-RoPE in the layout of the family that you start from: contiguous sections in Qwen2-VL and "
         "Qwen2.5-VL, interleaved channels in Qwen3-VL.", "practice", ("qwen2_vl", "qwen25_vl", "qwen3_vl"),
         _kind("vision-language")),
    Rule("default", "Axial RoPE over row and column, and a narrow axis that tells pictures apart (FLUX.1 and "
         "Qwen-Image: 56, 56 and 16 channels, base 10,000).", "practice", ("flux", "qwen_image"),
         _kind("image-generation")),
    Rule("default", "RoPE, which needs no fixed duration (Moonshine); Transformer-XL's relative encoding if you build "
         "a Conformer.", "practice", ("moonshine", "conformer"), _kind("speech")),
    Rule("default", "RoPE in a decoder over music tokens, as in language models (YuE).", "practice", ("yue",),
         _kind("music")),
    Rule("default", "RoPE (ESM-2).", "practice", ("esm",), _kind("protein")),
    Rule("default", "Where positions are places in one sequence: RoPE, as in most language models. Where they are "
         "coordinates: axial RoPE. Nothing more is known here about {a_what}.", "practice", ("llama3", "dinov3"),
         _kind("other")),
    *(Rule("instead", words, "practice", sources, _kind(kind)) for kind, words, sources in (
        ("encoder", "T5's bias or a table, if you continue from a released encoder that has it: an encoding cannot be "
         "exchanged without training.", ("t5", "bert")),
        ("encoder-decoder", "T5's bias, if you continue from T5: distances beyond its last bucket (128) share one "
         "number, so that far tokens are not told apart by distance.", ("t5",)),
        ("vision", "A learned table (ViT), interpolated for another resolution and then fine-tuned, or for windows of "
         "patches a bias by log-spaced coordinates (log-CPB, Swin V2), if you continue from such a model.",
         ("vit", "swin_v2")),
        ("vision-language", "Plain RoPE over one sequence of text and image tokens, as in Gemma 3.", ("gemma3",)),
        ("image-generation", "A 2D sinusoid added to the patches (DiT), interpolated and cropped for other sizes "
         "(Stable Diffusion 3).", ("dit", "sd3")),
        ("speech", "Sinusoids in the encoder, if audio always comes in windows of one duration (Whisper: 30 s).",
         ("whisper",)),
        ("music", "Relative attention (Music Transformer) or sinusoids (MusicGen), if you continue from such a model.",
         ("music_transformer", "musicgen")),
    )),
    Rule("check", "posenc compare axial sinusoidal_grid learned_grid mixed --task images --data FOLDER --seeds 5",
         "by definition", ("docs/vision.md",), _kind("vision")),
    Rule("check", "Train the default and one alternative with equal budgets and several seeds, and compare them at "
         "{length} tokens. With a corpus of tokens as text: posenc compare rope t5 alibi --data FOLDER --seeds 5",
         "by definition", ("docs/compare.md",), {**_NEW, "kind": _OTHER_KINDS}),
)  # fmt: skip

RULES = (*ALGORITHMS, *DECODER, *RESEARCH, *OTHERS)
