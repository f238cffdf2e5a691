"""TRL: a checkpoint with ALiBi in addition to its rotation, fine-tuned by SFTTrainer; needs `pip install trl`."""

from tempfile import TemporaryDirectory

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM
from trl import SFTConfig, SFTTrainer

from posenc.hf.attach import attach
from posenc.hf.modeling.export import byte_tokenizer

torch.manual_seed(0)
shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(vocab_size=300, **shape))  # or one from a checkpoint
attach(model, "own+fire")  # before the trainer, which makes the optimizer

with TemporaryDirectory() as folder:
    settings = SFTConfig(
        folder, max_steps=8, max_length=32, use_cpu=True, bf16=False, report_to="none", save_strategy="no"
    )
    texts = Dataset.from_dict({"text": ["one two three four five six seven"] * 32})
    trainer = SFTTrainer(model, settings, train_dataset=texts, processing_class=byte_tokenizer())
    before = [p.detach().clone() for name, p in model.named_parameters() if "posenc" in name]
    print("loss", trainer.train().training_loss)
after = [p for name, p in model.named_parameters() if "posenc" in name]
print("FIRE was trained:", all(not torch.equal(old, new) for old, new in zip(before, after, strict=True)))
