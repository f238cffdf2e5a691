"""What the documentation shows is run: docstring examples, every file in examples/, the blocks of pages."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import json
import pkgutil
import re
import runpy
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import posenc
from posenc_cli import parser_of, run
from posenc_cli.commands import COMMANDS, STANDALONE
from posenc_cli.exit_codes import BAD_INPUT

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCE = Path(posenc.__file__).parent
SHOWN = [path for path in sorted(SOURCE.rglob("*.py")) if ">>> " in path.read_text()]
MODULES = [".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__") for path in SHOWN]
SLOW = ("custom_encoding", "custom_score", "clex_training", "context_parallel")
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
HOWTO = ROOT / "docs" / "howto"
# README, first pages and how-to pages: every block runs. Other pages: their Python.
FIRST = [ROOT / "README.md", *(ROOT / "docs" / name for name in ("index.md", "install.md"))]
RUN_WHOLE = [*FIRST, *sorted(HOWTO.glob("*.md"))]
PAGES = sorted(set((ROOT / "docs").glob("*.md")) - set(FIRST))
CHAPTERS = [page for folder in ("learn", "methods") for page in sorted((ROOT / "docs" / folder).glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
NEEDED = {
    "README": ("transformers", "accelerate"),
    "longer-context-for-gpt2": ("transformers",),
    "recipes": ("transformers",),
    "measure-an-extension": ("transformers", "accelerate"),
    "extend-qwen3-to-128k": ("transformers",),
    "yarn-factor": ("transformers",),
    "fine-tune-to-64k": ("transformers", "tokenizers", "peft", "gguf"),
    "llama-server-context": ("transformers", "gguf"),
    "huggingface": ("transformers",),
    "extend": ("transformers",),
}
# run by tests/reference/test_diffusers_page.py, test_vision_page.py, tests/lab, tests/distributed
ELSEWHERE = {
    "larger-pictures-longer-videos", "vision-transformer-at-another-size", "extending", "tensor-parallel-and-fsdp2",
}  # fmt: skip
PUBLIC = (
    "posenc", "posenc.hf", "posenc.hf.doctor", "posenc.layers", "posenc.positions", "posenc.search", "posenc.testing",
)  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name: str) -> None:
    if name.startswith("posenc.backends.triton."):
        pytest.importorskip("triton")
    module = importlib.import_module(name)
    failed, tried = doctest.testmod(module, extraglobs={"torch": torch})
    assert failed == 0
    assert tried > 0


def test_every_module_can_be_imported() -> None:
    """Also modules without examples; modules for Triton, Ray and engines where these are installed."""
    for module in pkgutil.walk_packages(posenc.__path__, "posenc."):
        missing = {name for name in ("triton", "ray", "vllm", "sglang") if importlib.util.find_spec(name) is None}
        if not module.name.endswith("__main__") and not any(name in module.name for name in missing):
            importlib.import_module(module.name)


def test_modules_have_examples() -> None:
    assert len(MODULES) > 90


def test_public_encodings_have_examples() -> None:
    for name in posenc.list_encodings():
        encoding = posenc.encoding_info(name).encoding
        assert encoding is None or ">>>" in (encoding.__doc__ or ""), name


@pytest.mark.parametrize(
    "example",
    [pytest.param(e, marks=[pytest.mark.slow] if e.stem in SLOW else []) for e in EXAMPLES],
    ids=lambda path: path.stem,
)
def test_examples_run(example: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(example)])  # an example with arguments must not read pytest's
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


def save_tiny(folder: str) -> None:
    """A checkpoint of two layers that reads bytes and declares 32,768 tokens, in the place of one of useful size."""
    from tests.hf.extend.extended import saved, small

    model = small()
    model.config.max_position_embeddings = 32768
    shutil.rmtree(folder, ignore_errors=True)
    saved(folder, model)


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


class Trial(NamedTuple):
    """How a command without shown output is tried: options that make it small, and what it must print."""

    options: str
    printed: str
    tiny: str = ""  # the folder that is a tiny checkpoint here


_SMALL = "--lengths 900,1200 --count 2 --scored 8 --answer-tokens 4 --trained-length 900 --device cpu --dtype float32"
_LOSS = r"\d\.\d{4} ± \d\.\d{4} \(n 2\)"
_CHANGE = r"\| alibi \| [\d,]+ \| [+-]\d+\.\d{4} \["
TRIALS = {
    "posenc explain MODEL": Trial("", r"declares +32,768 tokens", "MODEL"),
    "posenc explain Qwen/Qwen3-8B": Trial("", r"declares +40,960 tokens"),
    "posenc doctor MODEL": Trial("", r"healthy in what was checked"),
    "posenc extend MODEL --length 131072 --config-only": Trial("", r'\+ +"factor": 4\.0'),
    "posenc extend MODEL --length 131072 --config-only --out longer": Trial("", r"Written +longer"),
    "posenc extend MODEL --length 12288 --method yarn --windows 1 --out measured": Trial(
        "--length 800 --original-length 400 --last 8", r"\| yarn \|( \d\.\d{4} \(n 1\) \|){3}", "MODEL"
    ),
    "posenc evaluate MODEL --tasks perplexity,niah_single --methods as_is,cut,yarn "
    "--lengths 2048,12288 --count 2": Trial(_SMALL, rf"\| yarn \| {_LOSS} \| {_LOSS} \|"),
    "posenc attach measured alibi --measure --out attached": Trial("--windows 2", _CHANGE),
    "posenc compare": Trial(
        "rope --task copy --train-length 16 --lengths 1,2 --steps 4 --batch-size 4 --windows 8 --dim 16 --layers 1 "
        "--heads 2 --device cpu --probes 4 --workers 1 --seeds 1",
        r"\brope +\d[^\n]+\d[\s\S]+report\.html",
    ),
    "posenc evaluate Qwen3-8B --tasks perplexity,niah --lengths 2048,32768 --methods as_is,yarn@4 "
    "--trained-length 32768": Trial(_SMALL, rf"\| yarn@4 \| {_LOSS} \| {_LOSS} \|", "Qwen3-8B"),
    "posenc evaluate Qwen3-8B-128k --tasks niah,perplexity --lengths 32768,131072 --trained-length 32768 "
    "--dtype bfloat16 --device cuda": Trial(_SMALL, rf"\| as_is \| {_LOSS} \| {_LOSS} \|", "Qwen3-8B-128k"),
    "posenc evaluate merged --tasks perplexity,niah --lengths 4096,65536 --trained-length 16384": Trial(
        _SMALL, rf"\| as_is \| {_LOSS} \| {_LOSS} \|"
    ),
    "posenc evaluate tiny --tasks perplexity,niah --methods as_is,cut --lengths 4096,65536": Trial(
        _SMALL, rf"\| cut \| {_LOSS} \| {_LOSS} \|"
    ),
}
# What runs elsewhere than on this machine, and what stands for its result.
STAND_INS: dict[str, Callable[[], None] | None] = {
    "export PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu": None,
    "python convert_hf_to_gguf.py merged --outfile merged.gguf": convert_merged,
    "llama-server -m model.gguf -c 16384 --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 4096": small_gguf,
    "llama-server -m model.gguf -c 16384 --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 4096 "
    "--override-kv llama.context_length=int:16384": None,
    "llama-server -m longer.gguf -c 16384 -np 1": None,
}


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the configuration of Qwen3-8B as it was published, which the Hub's cache has too."""
    published = (ROOT / "tests" / "golden" / "published_configs.jsonl").read_text(encoding="utf-8").splitlines()
    config = next(record["config"] for record in map(json.loads, published) if record["model"] == "Qwen/Qwen3-8B")
    cached = tmp_path / "hub" / "models--Qwen--Qwen3-8B"
    for folder in (tmp_path / "Qwen3-8B", cached / "snapshots" / f"{0:040}"):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(f"{0:040}")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))  # which was imported before
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", [*RUN_WHOLE, *PAGES, *CHAPTERS], ids=lambda page: page.stem)
@pytest.mark.usefixtures("workplace")
def test_blocks_of_a_page_do_what_the_page_shows(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if page.stem in ELSEWHERE:
        pytest.skip("run by a test of its own")
    for module in NEEDED.get(page.stem, ()):
        pytest.importorskip(module)
    run_blocks(page, capsys)


def shown_commands(page: Path) -> list[str]:
    """Commands of posenc in blocks of a page that are not run: indented ones, and those in fences without Python."""
    text = page.read_text(encoding="utf-8")
    blocks = [block for language, block in BLOCK.findall(text) if language not in ("python", "console", "text", "json")]
    indented = re.findall(r"^ {4,6}(posenc \S(?:[^\\\n]|\\\n)*)", BLOCK.sub("", text), re.M)
    return [*indented, *(line for block in blocks for line in re.findall(r"^posenc \S(?:[^\\\n]|\\\n)*", block, re.M))]


@pytest.mark.parametrize("page", [page for page in [*RUN_WHOLE, *PAGES, *CHAPTERS] if shown_commands(page)],
                         ids=lambda page: page.stem)  # fmt: skip
def test_commands_of_a_page_are_understood(page: Path) -> None:
    """Each command exists and takes the options that the page shows, also where it is too large to be run here."""
    for line in shown_commands(page):
        name, *words = shlex.split(line.replace("\\\n", " "), comments=True)[1:]
        assert name in COMMANDS, line
        if name in STANDALONE:
            parser_of(name).parse_args(words)  # raises a UsageError
        else:
            pytest.importorskip("rich")
            importlib.import_module("posenc.lab.commands").parser_of(name).parse_intermixed_args(words)


def run_blocks(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the blocks of a page in their order, and compare what they print with what the page shows.

    They share one folder. A ``console`` block has commands of posenc after "$ " and the output of each, a ``text``
    block what the Python before it prints; "…" stands for anything within a line, and for any lines on a line of its
    own. An ``sh`` block has commands whose output is not shown: `TRIALS` and `STAND_INS` say what becomes of each.
    """
    names: dict[str, object] = {"__name__": page.stem}
    environments: set[str] = set()
    printed = ""
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            capsys.readouterr()
            exec(compile(text, page.name, "exec"), names)
            printed = capsys.readouterr().out
        elif page not in RUN_WHOLE:
            continue
        elif language == "text":
            assert pattern(text).fullmatch(printed), printed
        elif language == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                for part in filter(None, shlex.join(shlex.split(line, comments=True)).split(" '&&' ")):
                    run_shell(shlex.split(part), environments, capsys)
        elif language == "console":
            for command, shown in commands(text):
                printed = printed_by(shlex.split(command), capsys)
                assert pattern(shown).fullmatch(printed), f"$ {command}\n{printed}"
        else:
            assert language == "json", f"{page.name}: a block of commands says sh or console, got {language!r}"


def run_shell(words: list[str], environments: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Run one command of an ``sh`` block, or see that it can be run; ``environments``: made by the section so far."""
    program, *rest = words
    environment, _, program = program.rpartition("/bin/")
    assert not environment or environment in environments
    command = " ".join([program, *rest])
    if program == "posenc":
        trial = TRIALS[command]
        if trial.tiny:
            save_tiny(trial.tiny)
        printed = printed_by([*words, *trial.options.split()], capsys)
        assert re.search(trial.printed, printed), f"$ {command}\n{printed}"
    elif program == "pip":
        extras = {name for word in rest for names in re.findall(r"\[(.+)\]", word) for name in names.split(",")}
        assert extras <= PROJECT["optional-dependencies"].keys()
        assert rest[0] == "install"
        assert "-c" not in rest or (ROOT / rest[rest.index("-c") + 1]).is_file()
    elif [program, *rest[:2]] == ["python3", "-m", "venv"]:
        environments.add(rest[2])
    elif program == "source":
        assert rest[0].removesuffix("/bin/activate") in environments
    elif program == "pytest":
        assert command == "pytest -n auto"
        assert 'session.run("pytest", "-n", "auto"' in (ROOT / "noxfile.py").read_text()
    elif [program, *rest] == ["python", "docs/build.py"]:
        assert (ROOT / "docs" / "build.py").is_file()
    elif program != "cd":
        (STAND_INS[command] or (lambda: None))()


def printed_by(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command of posenc prints, without spaces at the ends of lines."""
    assert words[0].endswith("posenc")
    capsys.readouterr()
    code = run(words[1:])
    printed, errors = capsys.readouterr()
    assert code != BAD_INPUT, errors
    return "".join(f"{line.rstrip()}\n" for line in printed.strip().splitlines())


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


def test_a_page_that_shows_other_output_is_noticed() -> None:
    assert pattern("a\n…\nc …\n").fullmatch("a\nb\nb\nc 3\n")
    assert not pattern("a\n…\nc 4\n").fullmatch("a\nb\nc 3\n")
    assert not pattern("a\n").fullmatch("a\nb\n")


def test_every_trial_and_stand_in_is_on_a_page() -> None:
    pages = re.sub(r"\s*\\\n\s*", " ", "\n".join(page.read_text(encoding="utf-8") for page in RUN_WHOLE))
    assert not [command for command in (*TRIALS, *STAND_INS) if command not in pages]


def test_code_of_the_readme_is_not_cut_on_a_page() -> None:
    blocks = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    lines = [line for language, text in blocks if language != "console" for line in text.splitlines()]
    assert max(map(len, lines)) <= 88


@pytest.mark.parametrize("module", PUBLIC)
def test_nothing_public_goes_unmentioned(module: str) -> None:
    """By its own name, as a word, in the README or a page that is written by hand."""
    pages = "\n".join(page.read_text() for page in (*FIRST, *PAGES) if page.stem != "layout")
    result = importlib.import_module(module)
    names = [name for name, value in vars(result).items() if not name.startswith("_") and not _is_module(value)]
    public = getattr(result, "__all__", names)
    assert len(public) > 3
    assert not [name for name in public if not re.search(rf"\b{name}\b", pages)]


def _is_module(value: object) -> bool:
    return isinstance(value, type(re)) or getattr(value, "__module__", "") == "__future__"
