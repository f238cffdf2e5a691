"""The lines that `posenc extend --config-only` prints, read by the engines' own argument parsers.

Skipped where an engine is not installed; the packages' sources on PYTHONPATH suffice (benchmarks/engines/README.md).
"""

from __future__ import annotations

import argparse
import shlex

import pytest

from posenc.hf import extend_config
from tests.hf.extend.ten_models import TEN

pytestmark = pytest.mark.reference


def lines_of(engine: str) -> list[tuple[list[str], int]]:
    """The words behind the program of each line of an engine, and the length of the model."""
    lines = []
    for model in TEN:
        for line in extend_config(model.config, model.length).engines:
            if line.engine.startswith(engine) and line.command:
                lines.append((shlex.split(line.command), model.length))
    assert len(lines) > 2
    return lines


def test_vllm() -> None:
    pytest.importorskip("vllm")
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    vllm.platforms._current_platform = CpuPlatform()
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    for words, length in lines_of("vLLM"):
        assert words[:2] == ["vllm", "serve"]
        parsed = parser.parse_args(["--model", *words[2:]])
        assert (parsed.model, parsed.max_model_len) == ("DIR", length)


def test_sglang() -> None:
    pytest.importorskip("sglang.srt.server_args")
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    for words, length in lines_of("SGLang"):
        assert words[:3] == ["python", "-m", "sglang.launch_server"]
        parsed = parser.parse_args(words[3:])
        assert (parsed.model_path, parsed.context_length) == ("DIR", length)
