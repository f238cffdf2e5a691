"""Extend a model's context length in ten lines; here a tiny one of random weights, to be quick."""

import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from posenc.hf.extend import extend

torch.manual_seed(0)
sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=256, max_position_embeddings=64))
text = torch.randint(256, (1000,))  # tokens; of a folder with a tokenizer: a file, or nothing for the built-in text

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        done = extend(model, 128, "yarn", text=text, out=f"{folder}/longer")  # or a checkpoint's folder for the model
        print(done)  # the losses before and after, decoding, and whether it is worth having
        again = AutoModelForCausalLM.from_pretrained(f"{folder}/longer")  # transformers alone
        print(again.config.rope_parameters, again.config.max_position_embeddings)
        print(Path(f"{folder}/longer/SERVING.md").read_text())
