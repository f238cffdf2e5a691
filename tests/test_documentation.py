"""What the documentation shows is run: docstring examples, the README's Python, every file in examples/."""

import doctest
import importlib
import importlib.util
import pkgutil
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

import posenc

ROOT = Path(__file__).parents[1]
SOURCE = Path(posenc.__file__).parent
SHOWN = [path for path in sorted(SOURCE.rglob("*.py")) if ">>> " in path.read_text()]
MODULES = [".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__") for path in SHOWN]
SLOW = ("custom_encoding", "custom_score", "clex_training", "context_parallel")
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
README_BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
PAGES = sorted((ROOT / "docs").glob("*.md"))
PUBLIC = (
    "posenc", "posenc.hf", "posenc.hf.doctor", "posenc.layers", "posenc.positions", "posenc.search", "posenc.testing",
)  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name: str) -> None:
    if name.startswith("posenc.backends.triton."):
        pytest.importorskip("triton")
    if name in ("posenc.hf.serving.vllm_plugin", "posenc.hf.serving.sglang_plugin"):
        pytest.importorskip(name.rpartition(".")[2].removesuffix("_plugin"))
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


def test_readme_has_python() -> None:
    assert README_BLOCKS


@pytest.mark.parametrize("block", README_BLOCKS, ids=lambda block: block.splitlines()[0][:40])
def test_readme_code_runs(block: str) -> None:
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})


def test_readme_links_lead_somewhere() -> None:
    pages = [
        page for page in PAGES if page.stem != "index"
    ]  # which leads to pages that the guide makes; it checks them
    for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *pages):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


# The code of extending.md comes from files, and tests/lab/test_extending.py runs it.
@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "extending"], ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_from_top_to_bottom(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    if page.stem in ("huggingface", "extend"):
        pytest.importorskip("transformers")
    names: dict[str, object] = {"__name__": page.stem}
    for block in blocks:
        exec(compile(block, page.name, "exec"), names)


@pytest.mark.parametrize("module", PUBLIC)
def test_nothing_public_goes_unmentioned(module: str) -> None:
    """By its own name, as a word, in the README or a page that is written by hand."""
    pages = "\n".join(page.read_text() for page in (ROOT / "README.md", *PAGES) if page.stem != "layout")
    result = importlib.import_module(module)
    names = [name for name, value in vars(result).items() if not name.startswith("_") and not _is_module(value)]
    public = getattr(result, "__all__", names)
    assert len(public) > 3
    assert not [name for name in public if not re.search(rf"\b{name}\b", pages)]


def _is_module(value: object) -> bool:
    return isinstance(value, type(re)) or getattr(value, "__module__", "") == "__future__"
