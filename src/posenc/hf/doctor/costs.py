"""What faults cost where somebody measured it, and the thread on GitHub that says so."""

from __future__ import annotations

COSTS = {
    "version-5-spelling": "0.765 nats a token (Open-Athena/MarinFold#184)",
    "base-lost": "perplexity 13.8 became 11,316 at position 7,800 (unslothai/unsloth#7028); gibberish "
    "(vllm-project/vllm#44158, keras-team/keras-hub#2729, microsoft/onnxruntime-genai#2311)",
    "linear-over-llama3": "perplexity 10 became 166 at position 65,000 (unslothai/unsloth#7028)",
    "scaling-lost": "a cosine of 0.76 between right and turned queries at 8,192 tokens, 0.50 at 60,000 "
    "(Blaizzy/mlx-vlm#1710)",
    "share-lost": "13.1 nats of divergence a token (huggingface/transformers#48241)",
    "yarn-on-short-prompts": "quality of short prompts (vllm-project/vllm#18728, sgl-project/sglang#6030)",
    "yarn-gain-in-engines": "a gain of 1.28 or 1.42 in the place of 1 (vllm-project/vllm#48621 and #48351, "
    "sgl-project/sglang#22711)",
    "gguf-scaling-lost": "quality past the trained length (ggml-org/llama.cpp#13322, ikawrakow/ik_llama.cpp#402)",
    "rotation-of-another-configuration": "a silent no-op: the loss stays that of the model before "
    "(MakazhanAlpamys/Soup#793)",
    "attention-without-mask": "wrong attention wherever a batch is padded (huggingface/transformers#45811)",
    "sinks-ignored": "another softmax in every layer (huggingface/transformers#43120, unslothai/unsloth#3142)",
    "frequencies-rounded": "an error of 180 degrees at 4,096 tokens (Modalities/modalities#462), 0.011 nats of "
    "divergence (NVIDIA-NeMo/Automodel#2549)",
    "frequencies-uninitialised": "training loss 5 to 11 times higher (unslothai/unsloth#4112), 11.08 in the place of "
    "3.63 (pytorch/torchtitan#4783)",
    "saved-frequencies-differ": "the base of a configuration that nobody reads goes wrong unseen (Zymrael/vortex#73)",
    "weights-of-another-layout": "fluent-looking nonsense after some 20 tokens (karpathy/llama2.c#286, "
    "nurl-lang/nurl#584)",
    "factor-and-lengths-differ": "engines take the one or the other (huggingface/transformers#38224)",
    "tokenizer-length-beyond": "none: it says nothing of the model (QwenLM/Qwen3#342)",
}
