"""What transformers' loader of GGUF files keeps of a rotation that posenc wrote: the base alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from posenc import Llama3, RoPE, YaRN
from posenc.hf import read_rope
from posenc.hf.gguf import write_gguf

pytest.importorskip("gguf")
pytest.importorskip("transformers")
from tests.hf.gguf.test_gguf_write import BASE, write_file

pytestmark = pytest.mark.reference
YARN = YaRN(4.0, original_length=8192)


def loaded(path: Path) -> dict[str, Any]:
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config: dict[str, Any] = load_gguf_checkpoint(str(path))["config"]
    return config


@pytest.mark.parametrize("scaling", [YARN, Llama3(8.0, original_length=8192)], ids=lambda one: type(one).__name__)
def test_scaling_is_dropped_and_posenc_says_so(tmp_path: Path, scaling: Any) -> None:
    target = tmp_path / "new.gguf"
    write_gguf(write_file(tmp_path / "old.gguf"), target, RoPE(128, base=2 * BASE, scaling=scaling))
    config = loaded(target)
    assert config["rope_theta"] == 2 * BASE
    assert not {"rope_scaling", "rope_parameters"} & set(config), "should transformers read it now, the finding goes"
    read = read_rope(target)
    assert read.rope.scaling is not None
    assert [finding.name for finding in read.findings] == ["gguf-scaling-dropped"]


def test_gpt_oss_does_not_load(tmp_path: Path) -> None:
    """transformers 5.23 takes the length of a key's name for its value, which NumPy 2.4 makes an error."""
    target = tmp_path / "new.gguf"
    source = write_file(tmp_path / "old.gguf", "gpt-oss", attention__sliding_window=128)
    write_gguf(source, target, RoPE(128, base=BASE, scaling=YARN))
    assert read_rope(target).rope.scaling.factor == 4.0
    try:
        factor = loaded(target)["rope_scaling"]["factor"]
    except TypeError:
        factor = None
    assert factor != 4.0, "should transformers read it now, the page on serving says otherwise"
