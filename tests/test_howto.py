"""The pages in docs/howto: their Python runs, their commands print what the page shows, their links lead somewhere.

The blocks of a page share one folder and run in their order. A ``console`` block has commands of posenc after "$ " and
the output of each, a ``text`` block what the Python before it prints; "…" stands for anything within a line, and for
any lines on a line of its own. An ``sh`` block has commands that do not run here; those of posenc must exist.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from posenc_cli import run
from posenc_cli.arguments import parser_of
from posenc_cli.commands import COMMANDS
from posenc_cli.exit_codes import BAD_INPUT

ROOT = Path(__file__).parents[1]
HOWTO = ROOT / "docs" / "howto"
PAGES = sorted(HOWTO.glob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
NEEDED = {
    "fine-tune-to-64k": ("transformers", "tokenizers", "peft", "gguf"),
    "llama-server-context": ("transformers", "gguf"),
}

ELSEWHERE = {"larger-pictures-longer-videos"}  # run by tests/reference/test_diffusers_page.py, on tiny models


def convert_merged() -> None:
    """What llama.cpp's converter writes of a Llama under plain YaRN: the base and three keys of its scaling."""
    from transformers import AutoModelForCausalLM

    from tests.hf.gguf.files import as_gguf

    block = json.loads(Path("merged/config.json").read_text(encoding="utf-8"))["rope_scaling"]
    scaling = {"type": "yarn", "factor": block["factor"]}
    scaling["original_context_length"] = block["original_max_position_embeddings"]
    model = AutoModelForCausalLM.from_pretrained("merged")
    as_gguf(model, Path("merged.gguf"), base=5e5, **{f"rope.scaling.{key}": value for key, value in scaling.items()})


def small_gguf() -> None:
    """A GGUF file of a Llama for 4,096 tokens, in the place of a downloaded one."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from tests.hf.gguf.files import as_gguf

    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=256, max_position_embeddings=4096))
    as_gguf(model, Path("model.gguf"), base=1e4)


STAND_INS = {
    "python convert_hf_to_gguf.py merged --outfile merged.gguf": convert_merged,
    "llama-server -m model.gguf -c 16384 --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 4096": small_gguf,
}


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block with the output below it."""
    first, *parts = re.split(r"^\$ ", text, flags=re.M)
    assert not first, "a console block begins with a command"
    for part in parts:
        command, _, shown = part.partition("\n")
        yield command, shown


def pattern(shown: str) -> re.Pattern[str]:
    """What a command must print: each "…" within a line is any characters, alone on a line any lines."""
    lines = [r"(?:.*\n)*?" if line.strip() == "…" else re.escape(line.rstrip()).replace("…", ".*") + "\n"
             for line in shown.strip().splitlines()]  # fmt: skip
    return re.compile("".join(lines))


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the configuration of Qwen3-8B as it was published."""
    published = (ROOT / "tests" / "golden" / "published_configs.jsonl").read_text(encoding="utf-8").splitlines()
    config = next(record["config"] for record in map(json.loads, published) if record["model"] == "Qwen/Qwen3-8B")
    (tmp_path / "Qwen3-8B").mkdir()
    (tmp_path / "Qwen3-8B" / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem not in ELSEWHERE], ids=lambda page: page.stem)
@pytest.mark.usefixtures("workplace")
def test_blocks_of_a_page_do_what_the_page_shows(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for module in NEEDED.get(page.stem, ()):
        pytest.importorskip(module)
    run_blocks(page, capsys)


def run_blocks(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the blocks of a page in their order, and compare what they print with what the page shows."""
    names: dict[str, object] = {"__name__": page.stem}
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert blocks
    printed = ""
    for language, text in blocks:
        if language == "python":
            capsys.readouterr()
            exec(compile(text, page.name, "exec"), names)
            printed = capsys.readouterr().out
        elif language == "text":
            assert pattern(text).fullmatch(printed), printed
        elif language == "sh":
            for line in text.splitlines():
                STAND_INS.get(line.split(" # ")[0].strip(), lambda: None)()
        elif language == "console":
            for command, shown in commands(text):
                capsys.readouterr()
                code = run(shlex.split(command)[1:])
                printed, errors = capsys.readouterr()
                assert code != BAD_INPUT, errors
                printed = "".join(f"{line.rstrip()}\n" for line in printed.strip().splitlines())
                assert pattern(shown).fullmatch(printed), f"$ {command}\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_posenc_on_a_page_exist(page: Path) -> None:
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        lines = [line.removeprefix("$ ").split("#")[0].strip() for line in text.splitlines()]
        if language == "console":
            assert all(line.removeprefix("$ ").startswith("posenc ") for line in text.splitlines() if line[:2] == "$ ")
        for line in lines:
            if language in ("console", "sh") and line.startswith("posenc "):
                name, *arguments = shlex.split(line)[1:]
                assert name in COMMANDS
                parser_of(name).parse_args(arguments)


def test_every_stand_in_is_on_a_page() -> None:
    lines = "\n".join(page.read_text(encoding="utf-8") for page in PAGES).splitlines()
    assert set(STAND_INS) <= {line.split(" # ")[0].strip() for line in lines}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_a_page_that_shows_other_output_is_noticed() -> None:
    assert pattern("a\n…\nc …\n").fullmatch("a\nb\nb\nc 3\n")
    assert not pattern("a\n…\nc 4\n").fullmatch("a\nb\nc 3\n")
    assert not pattern("a\n").fullmatch("a\nb\n")
