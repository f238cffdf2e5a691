"""Whatever a model of transformers is given is taken, or refused by a ValueError that names the argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
import torch

pytest.importorskip("transformers")

from huggingface_hub.errors import StrictDataclassClassValidationError
from transformers import DynamicCache, LlamaConfig

from posenc.hf.modeling import PosencConfig, PosencForCausalLM, PosencModel
from tests.hf.config.test_arguments import WRONG
from tests.samples import expect_taken_or_named

VALUES = (
    *WRONG, LlamaConfig(), PosencConfig, torch.ones(2, 2, 2, 2), torch.zeros(0), torch.zeros(1, 0),
    torch.ones(1, 5).long(), torch.ones(1, 3, dtype=torch.complex64),
)  # fmt: skip
SIZES = {"vocab_size": 16, "hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 16}
KEYS = [name for name in vars(PosencConfig)["__annotations__"] if name not in ("model_type",)]
SMALL = PosencConfig(**SIZES, encodings="rope+learned", train_length=16)
MODEL = PosencForCausalLM(SMALL).eval()
IDS = torch.tensor([[1, 2, 3]])
CALLED = [name for name in inspect.signature(PosencForCausalLM.forward).parameters if name != "self"]


def takes_or_names(call: Callable[..., object], name: str, arguments: dict[str, object]) -> None:
    expect_taken_or_named(call, arguments, name, VALUES, also="No such file", refusal=(ValueError, FileNotFoundError))


@pytest.mark.parametrize("key", KEYS)
def test_configuration(key):
    def call(**arguments: object) -> None:
        try:
            PosencConfig(**arguments).encoding_specs()
        except StrictDataclassClassValidationError as error:  # transformers wraps what is found between keys
            raise ValueError(str(error)) from error

    takes_or_names(call, key, SIZES)


@pytest.mark.parametrize(("method", "argument"), [("create", "spec"), ("to_json_file", "json_file_path")])
def test_methods_of_a_configuration(method, argument, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    takes_or_names(getattr(SMALL, method), argument, {})


@pytest.mark.parametrize("build", [PosencModel, PosencForCausalLM])
def test_construction(build):
    takes_or_names(build, "config", {})


@pytest.mark.parametrize("name", CALLED)
@pytest.mark.parametrize("embedded", [False, True])
@pytest.mark.parametrize("head", [False, True])
@torch.no_grad()
def test_call(name, embedded, head):
    model = MODEL if head else MODEL.model
    if name not in inspect.signature(model.forward).parameters:
        return
    first = {"inputs_embeds": torch.randn(1, 3, 16)} if embedded else {"input_ids": IDS}

    def call(**arguments: object) -> None:
        if arguments.get(name) is not None and {"input_ids", "inputs_embeds"} <= set(arguments):
            arguments = {name: arguments[name]}  # one of them, and not both
        model(**arguments)

    call(**first, past_key_values=DynamicCache())
    with pytest.raises(ValueError, match=r"input_ids.*inputs_embeds"):
        model()
    takes_or_names(call, name, first)
