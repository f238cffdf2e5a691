"""Rules for a trained model: what its own configuration decides first, then how far its context is to be extended."""

from __future__ import annotations

from posenc.recommend.needs import DECODERS, SERVERS, TASKS, TEXT
from posenc.recommend.rule import Rule, When

_OLD: When = {"model": "checkpoint"}
_TEXT: When = {**_OLD, "kind": TEXT}
_ROPE: When = {**_TEXT, "plan": ("unknown", "extend")}
_PLANNED = (*TEXT, "vision-language")  # kinds whose configuration a plan of posenc.hf.plan is for
_USED_WHOLE = tuple(task for task in TASKS if task != "streaming")  # tasks that need all of the context
_LONGER, _TO_FOUR, _MORE = {"above": 1.0}, {"above": 1.0, "upto": 4.0}, {"above": 4.0}
_UNTRAINED, _TUNED = {**_ROPE, "tune": False}, {**_ROPE, "tune": True}
_SCALED: When = {**_UNTRAINED, "task": _USED_WHOLE}
_SUPPOSED: When = {**_SCALED, "plan": "unknown"}  # no configuration was given
_TRAINED: When = {**_TUNED, "task": _USED_WHOLE}
_WITHIN: When = {"ratio": {"upto": 1.0}}
_UNCHANGED: When = {"ratio": _LONGER, "plan": ("refused", "reached")}
_BILLIONS, _TEN_BILLIONS = ("none", "billions", "large"), ("none", "large")  # budgets of fine-tuning that reach so far
_OTHER_KINDS = ("video", "vision-language", "image-generation", "speech", "music", "protein", "algorithmic", "other")
_OTHER: When = {**_OLD, "kind": tuple(kind for kind in _OTHER_KINDS if kind not in ("image-generation", "video"))}
_OWN_CODE = ("any", "transformers")  # where posenc's own attention can run

# What the plan of the configuration says (`posenc.hf.plan.plan`), as posenc extend prints and writes it.
FACTS = (
    Rule("default", "Change nothing: {name} declares {declared} tokens, and every scaling changes what the model was "
         "trained with.", "by definition", ("docs/extend.md",), {**_OLD, "plan": "reached", "declares": True}),
    Rule("default", "{planned}.", "by definition", ("docs/extend.md",), {**_OLD, "plan": "refused", "kind": _PLANNED}),
    *(Rule("default", f"{{planned}}. Run: {{command}}{then}", "by definition", ("docs/extend.md",),
           {**_OLD, "plan": "extend", "kind": _PLANNED, "tune": tune, "task": _USED_WHOLE})
      for tune, then in ((False, ""), (True, "; then fine-tune DIR at {length} tokens."))),
    Rule("default", "Change nothing: {length} tokens are within the training length, and every scaling changes what "
         "the model was trained with.", "by definition", ("docs/rotary.md",),
         {**_OLD, "ratio": {"upto": 1.0}, "kind": (*TEXT, *_OTHER_KINDS), "declares": False}),
    Rule("note", "{notes}.", "by definition", ("docs/extend.md",), {**_OLD, "noted": True, "kind": _PLANNED}),
    Rule("note", "{windowed} layers attend within a window of {window} tokens: what lies outside reaches a token only "
         "through the layers in between, so do not expect exact retrieval of it.", "by definition",
         ("docs/extend.md",), {**_OLD, "window": {"above": 0}}),
    Rule("note", "The slowest pair of this base completes a rotation after {slowest} tokens, before the {length} that "
         "are wanted: distances beyond meet angles of nearer ones in every pair. Test retrieval there, or start from a "
         "checkpoint with a larger base.", "by definition", ("docs/rotary.md",),
         {**_TEXT, "plan": "reached", "turns": True}),
    Rule("note", "This supposes RoPE. Give the config.json: a learned table (BERT) ends at its last row, and a bias by "
         "distance (T5) or ALiBi has no frequencies to scale.", "by definition",
         ("docs/methods/learned.md", "docs/methods/t5.md", "docs/methods/alibi.md"),
         {**_TEXT, "given": False, "ratio": _LONGER}),
    Rule("engine", "{engine_line}", "engine table", ("docs/engine-table.md",),
         {**_OLD, "plan": ("reached", "extend"), "kind": _PLANNED, "engine": SERVERS}),
)  # fmt: skip

STREAMS = (
    Rule("default", "Fine-tune it with a sliding window and visible first tokens, or with learned sinks.", "practice",
         ("streaming_llm", "gpt_oss"), {**_TUNED, "task": "streaming"}),
    Rule("default", "StreamingLLM: the first four tokens and a sliding window of {kept} tokens. Memory stays "
         "constant, and the loss stays near the loss at the training length.", "practice", ("streaming_llm",),
         {**_UNTRAINED, "task": "streaming", "ratio": _LONGER, "engine": _OWN_CODE}),
    Rule("default", "Send the last {kept} tokens with each request, or take a model with sliding-window layers: "
         "posenc's StreamingLLM runs in transformers only.", "practice", ("streaming_llm", "mistral"),
         {**_UNTRAINED, "task": "streaming", "ratio": _LONGER, "engine": SERVERS}),
    Rule("instead", "Where the context is full, llama-server --context-shift --keep 4 and mlx-lm's max_kv_size keep "
         "the first tokens and drop the oldest of the others; neither was measured here.", "practice",
         ("context_shift", "rotating_cache"),
         {**_ROPE, "task": "streaming", "ratio": _LONGER, "engine": ("llama.cpp", "mlx")}),
    Rule("costs", "What left the window is gone: such a model keeps its perplexity and cannot retrieve from there, as "
         "StreamingLLM's authors say themselves.", "practice", ("streaming_llm",),
         {**_ROPE, "task": "streaming", "ratio": _LONGER}),
)  # fmt: skip

UNTRAINED = (
    Rule("default", "YaRN with factor {factor}, if the model card documents such a factor (Qwen2.5 and Qwen3: factor "
         "4, 32,768 to 131,072). Otherwise fine-tune, or read the text in chunks.", "practice",
         ("yarn", "qwen25", "qwen3_card"), {**_SUPPOSED, "ratio": _TO_FOUR}),
    *(Rule(section, "Not without training: no model card known here documents more than 4 times. Fine-tune (--tune), "
           "take a checkpoint trained at {length} tokens, or read the text in chunks.", "practice", ("qwen3_card",),
           {**when, "ratio": _MORE})
      for section, when in (("default", _SUPPOSED), ("costs", {**_SCALED, "plan": "extend", "documented": False}))),
    Rule("practice", "Dynamic NTK needs no training and leaves prompts within the training length unchanged, where the "
         "engine computes it; beyond that length, keys cached with an earlier base no longer fit.", "practice",
         ("dynamic_ntk", "yarn"), {**_SUPPOSED, "ratio": _TO_FOUR, "engine": _OWN_CODE}),
    Rule("practice", "Never rank methods by loss alone where facts must be found: windows and sinks keep the "
         "perplexity and lose what left the window.", "practice", ("streaming_llm", "ruler"),
         {**_SCALED, "ratio": _LONGER, "task": "retrieval"}),
    Rule("costs", "A static factor acts on short prompts too; Qwen's card advises to add it only where long contexts "
         "are needed.", "practice", ("qwen3_card", "docs/howto/yarn-factor.md"), {**_SCALED, "ratio": _LONGER}),
    Rule("costs", "Expect less at {length} tokens than at {train_length}: on RULER Qwen2-72B has 94.1 at 32k, 79.8 at "
         "64k and 53.7 at 128k.", "practice", ("ruler",), {**_SCALED, "ratio": _LONGER, "kind": DECODERS}),
    Rule("measured", "At 1.5 times its length, without training, YaRN gives SmolLM2-135M a loss equivalent to "
         "truncating the text to the training length (100 documents, margin 0.02 nats a token), and Self-Extend a loss "
         "lower by 0.016 ± 0.007 nats.", "measured here",
         ("docs/results/context-study/likelihood/table.md", "docs/results/context-study/plan.md"),
         {**_SCALED, "kind": DECODERS, "ratio": {"above": 1.0, "upto": 2.0}}),
    Rule("instead", "Retrieve passages, or ask chunk by chunk: no change of the model is needed. posenc evaluate "
         "measures chunks as a baseline (--methods chunked).", "by definition", ("docs/evaluate.md",),
         {**_SCALED, "ratio": _LONGER, "kind": DECODERS, "task": ("general", "retrieval")}),
    Rule("instead", "Self-Extend remaps distances instead of frequencies and needs posenc's attention in transformers "
         "(posenc extend --method self_extend).", "practice", ("self_extend",),
         {**_SCALED, "ratio": _TO_FOUR, "engine": _OWN_CODE, "kind": DECODERS}),
)  # fmt: skip

TUNED = (
    Rule("default", "YaRN with factor {factor}, then fine-tuning at {length} tokens: a few hundred steps in YaRN's "
         "paper, two phases of 1,000 in DeepSeek-V3.", "practice", ("yarn", "deepseek_v3"),
         {**_TUNED, "ratio": {"above": 1.0, "upto": 32.0}}),
    Rule("default", "In stages: LongRoPE's searched factors, fine-tuned at a part of {length} tokens and searched "
         "again (Phi-3 128k).", "practice", ("longrope", "phi3"), {**_TUNED, "ratio": {"above": 32.0}}),
    Rule("note", "{tune_tokens} tokens are {tune_texts} texts of {length} tokens.", "by definition",
         ("docs/howto/fine-tune-to-64k.md",), {**_TUNED, "tuning": ("small", "billions", "large")}),
    Rule("practice", "A raised base with continued pretraining in stages, where the budget allows billions of tokens "
         "(Llama 3: base 500,000 and 8k to 128k in six stages; ABF: 500,000).", "practice", ("llama3", "abf"),
         {**_TRAINED, "ratio": _LONGER, "tuning": _BILLIONS}),
    Rule("practice", "LongRoPE2, where short prompts must stay good: factors searched by hidden numbers, then short "
         "documents trained under the original rotation together with long ones (2k and 8k to 128k with 10 billion "
         "tokens).", "practice", ("longrope2", "docs/howto/train-for-a-longer-context.md"),
         {**_TRAINED, "ratio": _LONGER, "tuning": _TEN_BILLIONS}),
    Rule("practice", "DroPE, where long texts are few and the budget is large: the rotation dropped in all layers, "
         "then training at the training length alone (Llama-2-7B and SmolLM with at least 10 billion tokens).",
         "practice", ("drope", "docs/howto/train-for-a-longer-context.md"),
         {**_TRAINED, "ratio": _LONGER, "kind": DECODERS, "tuning": _TEN_BILLIONS}),
    Rule("practice", "With an adapter (LoRA): its authors for long contexts train embeddings and norms too, because "
         "attention alone falls behind full fine-tuning there. An adapter holds no scaling: write it into the base's "
         "config first, and load both together.", "practice", ("longlora", "docs/howto/fine-tune-to-64k.md"),
         {**_TRAINED, "ratio": _LONGER, "kind": DECODERS}),
    Rule("practice", "Save the scaling with the weights, and look at the config again after merging and converting: "
         "posenc doctor and posenc explain read it at each step.", "by definition", ("docs/doctor.md",),
         {**_TUNED, "ratio": _LONGER}),
    Rule("costs", "With fewer than a billion tokens a raised base in stages, LongRoPE2 and DroPE are out of reach: "
         "their authors trained on billions. YaRN's fine-tuned for a few hundred steps.", "practice",
         ("yarn", "abf", "longrope2", "drope"), {**_TRAINED, "ratio": _LONGER, "tuning": "small"}),
    Rule("costs", "Expect less at {length} tokens than at {train_length} after training too: on RULER Llama 3.1 70B "
         "has 94.8 at 32k and 66.6 at 128k.", "practice", ("ruler",),
         {**_TRAINED, "ratio": _LONGER, "kind": DECODERS}),
)  # fmt: skip

OTHERS = (
    Rule("default", "Change nothing: this is the length that the model was trained at.", "by definition",
         ("docs/vision.md",), {**_OLD, "kind": "vision", "ratio": {"above": 0.999, "upto": 1.0}}),
    Rule("default", "Interpolate a learned table (ViT), or scale the coordinates of axial RoPE to the range of "
         "training (DINOv3: [−1, 1]); then fine-tune briefly at the new resolution.", "practice", ("vit", "dinov3"),
         {**_OLD, "kind": "vision", "tune": True}),
    Rule("default", "Interpolate a learned table (ViT), or scale the coordinates of axial RoPE to the range of "
         "training (DINOv3: [−1, 1]), and test it: without fine-tuning every encoding of the record here loses "
         "accuracy on a finer grid.", "practice", ("vit", "dinov3", "docs/results/images"), {**_OLD, "kind": "vision"}),
    *(Rule("default", "YaRN in the block of the text part (text_config), with its mrope keys kept, if the model card "
           f"documents it: image and text positions share its frequencies.{then}", "practice",
           ("qwen3_vl_card", "qwen3_vl"), {**_OLD, "kind": "vision-language", "ratio": _LONGER, "tune": tune})
      for tune, then in ((False, ""), (True, " Then fine-tune at {length} tokens, with images."))),
    Rule("costs", "Qwen3-VL's card takes a factor of 2 or 3, not 4, from 256k to 1M, because its position ids grow "
         "more slowly than tokens. Qwen2.5-VL's advises against YaRN: it harms localization in time and space.",
         "practice", ("qwen3_vl_card", "qwen25_vl_card"), {**_OLD, "kind": "vision-language", "ratio": _LONGER}),
    Rule("default", "Fine-tune at the larger size with YaRN on rows and columns, each with its own factor; UltraFlux "
         "trains FLUX at 4K so, over rounded wavelengths.", "practice", ("ultraflux",),
         {**_OLD, "kind": "image-generation", "ratio": _LONGER, "tune": True}),
    Rule("default", "Generate at a size of training (FLUX.1: up to 2 megapixels) and upscale in a second pass. If one "
         "pass must do it: DyPE on rows and columns, up to about twice the side: "
         "posenc.diffusion.attach(transformer, dype()).", "practice", ("flux_sizes", "dype"),
         {**_OLD, "kind": "image-generation", "ratio": _LONGER}),
    Rule("costs", "Without training, structure and detail suffer: FLUX.1 shows bands at 2,048 pixels as it is; users "
         "of DyPE report wrong proportions above.", "practice", ("flux_bands", "dype_users"),
         {**_OLD, "kind": "image-generation", "ratio": _LONGER, "tune": False}),
    Rule("default", "RIFLEx on the frames, if longer videos start again; then fine-tune: its authors report better "
         "videos after 1,000 steps at the original length.", "practice", ("riflex", "riflex_training"),
         {**_OLD, "kind": "video", "ratio": _LONGER, "tune": True}),
    Rule("default", "Stay within the trained frames and join clips, or slide a context window over them. RIFLEx on the "
         "frames helps where videos start again (HunyuanVideo and Wan from 201 frames on): "
         "posenc.diffusion.attach(transformer, riflex(k, repeats_at=N)).", "practice", ("wan_frames", "riflex"),
         {**_OLD, "kind": "video", "ratio": _LONGER}),
    Rule("costs", "RIFLEx treats repetition alone: quality degrades beyond the trained frames in all models, as its "
         "authors found later, and a port reports a loss on Wan.", "practice", ("ultravico", "riflex_port"),
         {**_OLD, "kind": "video", "ratio": _LONGER}),
    Rule("note", "Which sizes and frames each model repeats at, what each method costs and who says so: the page on "
         "images and video.", "by definition", ("docs/images.md",),
         {**_OLD, "kind": ("image-generation", "video"), "ratio": _LONGER}),
    *(Rule("default", "Nothing is known here about extending {a_what}. If it rotates, YaRN with factor {factor} "
           f"is what language models do; {then}.", "practice", ("yarn",), {**_OTHER, "tune": tune})
      for tune, then in ((True, "fine-tune and test it at {length} tokens"),
                         (False, "test it at {length} tokens before anybody uses it"))),
)  # fmt: skip

CHECKS = (
    Rule("check", "posenc extend {weights} --length {length_digits} --method streaming_llm --out NEW, then posenc "
         "evaluate {weights} --tasks perplexity,niah_single --methods as_is,cut,streaming_llm --lengths "
         "{length_digits}", "by definition", ("docs/extend.md",),
         {**_UNTRAINED, "kind": DECODERS, "task": "streaming", "ratio": _LONGER, "engine": _OWN_CODE}),
    Rule("check", "posenc evaluate {weights} --tasks perplexity,niah_single --methods as_is,cut --lengths "
         "{length_digits}", "by definition", ("docs/evaluate.md",),
         {**_UNTRAINED, "kind": DECODERS, "task": "streaming", "ratio": _LONGER, "engine": SERVERS}),
    Rule("check", "posenc extend {weights} --length {length_digits} --out NEW, then posenc evaluate NEW --tasks "
         "niah,ruler,perplexity --lengths {train_length_digits},{length_digits}, and the same for {weights} with "
         "--methods as_is,cut,chunked", "by definition", ("docs/extend.md", "docs/evaluate.md"),
         {**_SCALED, "kind": DECODERS, "ratio": _LONGER}),
    *(Rule("check", f"posenc evaluate NEW --tasks {tasks} --lengths {{train_length_digits}},{{length_digits}}     "
           "(NEW: the fine-tuned model)", "by definition", ("docs/evaluate.md",),
           {**when, "kind": DECODERS, "ratio": _LONGER})
      for tasks, when in (("niah,ruler,perplexity", _TRAINED),
                          ("perplexity,niah_single", {**_TUNED, "task": "streaming"}))),
    *(Rule("check", f"posenc evaluate {{weights}} --tasks niah,ruler,perplexity --lengths {lengths}", "by definition",
           ("docs/evaluate.md",), {**_OLD, "kind": DECODERS, **when})
      for lengths, when in (("{length_digits}", _WITHIN), ("{train_length_digits},{length_digits}", _UNCHANGED))),
    Rule("check", "posenc compare --task images     (finer and larger grids, counted or scaled positions, from your "
         "own folder with --data)", "by definition", ("docs/vision.md",), {**_OLD, "kind": "vision"}),
    Rule("check", "Your own task at {train_length} and {length} tokens, before and after: no command of posenc "
         "evaluates {a_what}.", "by definition", ("docs/evaluate.md",),
         {**_OLD, "kind": ("encoder", "encoder-decoder", *_OTHER_KINDS)}),
)  # fmt: skip

RULES = (*FACTS, *STREAMS, *UNTRAINED, *TUNED, *OTHERS, *CHECKS)
