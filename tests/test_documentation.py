"""What the documentation shows is run: docstring examples, the README's Python, every file in examples/."""

import doctest
import importlib
import pkgutil
import re
import runpy
from pathlib import Path

import pytest
import torch

import posenc

ROOT = Path(__file__).parents[1]
MODULES = sorted(m.name for m in pkgutil.walk_packages(posenc.__path__, "posenc.") if not m.name.endswith("__main__"))
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
README_BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name: str) -> None:
    if name.startswith("posenc.attention.triton."):
        pytest.importorskip("triton")
    if name == "posenc.lab.runners.ray_cluster":
        pytest.importorskip("ray")
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, extraglobs={"torch": torch})
    assert failed == 0


def test_public_encodings_have_examples() -> None:
    for name in posenc.list_encodings():
        encoding = posenc.info(name).encoding
        assert encoding is None or ">>>" in (encoding.__doc__ or ""), name


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run_and_stay_short(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out
    assert len(example.read_text().splitlines()) <= 60


def test_readme_has_python() -> None:
    assert README_BLOCKS


@pytest.mark.parametrize("block", README_BLOCKS, ids=lambda block: block.splitlines()[0][:40])
def test_readme_code_runs(block: str) -> None:
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})


def test_readme_links_lead_somewhere() -> None:
    for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
