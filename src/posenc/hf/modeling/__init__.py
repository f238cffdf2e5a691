"""A decoder with any encodings as a transformers model: `from_pretrained`, `generate`, training, export."""

from posenc.hf.modeling.causal_lm import PosencForCausalLM as PosencForCausalLM
from posenc.hf.modeling.causal_lm import PosencModel as PosencModel
from posenc.hf.modeling.model_config import PosencConfig as PosencConfig
