"""What a release needs besides the code: workflows, their sessions, the citation, the files that go out."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

import posenc

yaml = pytest.importorskip("yaml", reason="needs the extra docs")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(path: Path) -> dict[Any, Any]:
    result = yaml.safe_load(path.read_text())
    assert isinstance(result, dict)
    return result


def steps(workflow: Path) -> list[dict[str, Any]]:
    return [step for job in read(workflow)["jobs"].values() for step in job.get("steps", ())]


def test_workflows_run_sessions_that_there_are() -> None:
    sessions = set(re.findall(r"^@nox\.session.*?^def (\w+)", (ROOT / "noxfile.py").read_text(), re.M | re.DOTALL))
    matrix = read(ROOT / ".github" / "workflows" / "nightly.yml")["jobs"]["session"]["strategy"]["matrix"]["session"]
    lines = [re.sub(r"\$\{\{.+?\}\}", "", step.get("run", "")) for path in WORKFLOWS for step in steps(path)]
    runs = [shlex.split(line.partition(" -- ")[0]) for line in lines if line.startswith("nox -s")]
    named = [word for words in runs for word in words[2:]]
    assert {re.split(r"\W", name)[0] for name in [*named, *matrix]} == sessions


def test_publishing_keeps_no_token_and_follows_the_trial() -> None:
    jobs = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    assert jobs["publish"]["permissions"]["id-token"] == "write"
    assert jobs["publish"]["needs"] == "smoke"
    assert jobs["smoke"]["needs"] == "build"
    assert "secrets" not in (ROOT / ".github" / "workflows" / "release.yml").read_text()


def test_workflows_try_the_pythons_that_the_project_names() -> None:
    named = [text.rpartition(" ")[2] for text in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d", text)]
    jobs = {name: read(ROOT / ".github" / "workflows" / f"{name}.yml")["jobs"] for name in ("tests", "release")}
    assert jobs["release"]["smoke"]["strategy"]["matrix"]["python"] == named
    assert jobs["tests"]["tests"]["strategy"]["matrix"]["python"] == [named[0], named[-1]]


def test_the_citation_matches_the_version() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert citation["version"] == posenc.__version__
    assert citation["license"] == PROJECT["project"]["license"]
    assert {"cff-version", "message", "title", "type", "authors", "abstract", "keywords"} <= citation.keys()


def test_what_is_packed_is_there() -> None:
    packed = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert all((ROOT / name).exists() for name in packed)
    assert {"SECURITY.md", "CITATION.cff", "noxfile.py", "tests", "src"} <= set(packed)


def test_the_source_distribution_leaves_records_out() -> None:
    """It builds the wheel, and is no archive of results: records and golden numbers are in a clone."""
    sdist = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]
    left_out = [ROOT / name for name in sdist["exclude"]]
    assert all(path.is_dir() for path in left_out)
    files = [path for name in sdist["include"] for path in [ROOT / name, *(ROOT / name).rglob("*")] if path.is_file()]
    sent = [
        path for path in files
        if "__pycache__" not in path.parts and not any(path.is_relative_to(folder) for folder in left_out)
    ]  # fmt: skip
    assert sum(path.stat().st_size for path in sent) < 12e6
    needed = [path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert set(needed) <= set(sent)
