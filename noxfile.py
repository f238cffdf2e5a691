"""What continuous integration runs, for every machine: ``nox -l`` lists the sessions, ``nox -s smoke`` runs one.

A session has an environment of its own. Where torch without CUDA packages is wanted, set PIP_EXTRA_INDEX_URL to
https://download.pytorch.org/whl/cpu, as the workflows do.
"""

from __future__ import annotations

import itertools
import re
import shutil
import tomllib
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = [match[1] for text in PROJECT["classifiers"] if (match := re.search(r":: (3\.\d+)$", text))]
PINNED = ("-c", "constraints.txt")
# The parts that need torch alone, whose share of lines is measured.
CORE = [f"tests/{part}" for part in (
    "test_arguments.py", "test_catalogue.py", "test_conformance.py", "test_refusals.py",
    "test_figures.py", "test_functional.py", "test_magnitudes.py", "test_factory_kwargs.py",
    "test_recommend.py", "test_schedule.py", "backends", "bias", "embedding", "explorer",
    "frequencies", "fuzz/test_attention.py", "fuzz/test_each_encoding.py", "golden", "layers", "positions", "rotary",
    "score", "search", "weight",
)]  # fmt: skip
# Of them, what asks for no fused kernel and no whole graph: the lowest torch lacks both (CONTRIBUTING.md).
LOWEST = [
    f"tests/{part}"
    for part in ("bias", "embedding", "frequencies", "golden", "positions", "rotary", "test_conformance.py")
]
# Where the pins must hold, with the oldest system that torch has wheels for.
PLATFORMS = {"x86_64-unknown-linux-gnu": {}, "aarch64-apple-darwin": {"MACOSX_DEPLOYMENT_TARGET": "14.0"}}
TESTING = ("hypothesis>=6.100", "mpmath>=1.3", "numpy>=1.26", "pytest>=8", "pytest-xdist>=3.5")

nox.options.sessions = ["lint", "tests"]
nox.options.error_on_missing_interpreters = False  # who has one Python tests with one; the workflows have all


def lowest() -> list[str]:
    """The lowest versions that pyproject.toml names for what the core needs, as requirements."""
    return [re.sub(r">=([\d.]+).*", r"==\1", requirement) for requirement in PROJECT["dependencies"]]


@nox.session(python="3.11")
def lint(session: nox.Session) -> None:
    """ruff, mypy, import-linter, and the schemas of what the repository's host reads."""
    session.install(*PINNED, "-e", ".[dev]", "check-jsonschema")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("mypy", "--strict", "tests/typing/documented_calls.py")
    session.run("lint-imports", "--no-cache")
    github = Path(".github")
    for schema, files in (
        ("github-workflows", sorted(github.glob("workflows/*.yml"))),
        ("dependabot", [github / "dependabot.yml"]),
        ("github-issue-forms", [form for form in github.glob("ISSUE_TEMPLATE/*.yml") if form.stem != "config"]),
        ("citation-file-format", [Path("CITATION.cff")]),
    ):
        session.run("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, files))


@nox.session
def resolve(session: nox.Session) -> None:
    """Whether the pins of constraints.txt agree with one another and with every extra, on each Python and platform.

    From the registry's metadata alone: no package is downloaded. uv asks PyPI and no other index.
    """
    session.install("uv")
    for python, (platform, environment) in itertools.product(PYTHONS, PLATFORMS.items()):
        session.run(
            "uv", "pip", "compile", "--quiet", "--no-config", "--all-extras", "pyproject.toml", "constraints.txt",
            "--python-version", python, "--python-platform", platform, env=environment, silent=True,
        )  # fmt: skip


@nox.session(python=PYTHONS)
@nox.parametrize("torch", ["pinned", "newest"])
def tests(session: nox.Session, torch: str) -> None:
    """The quick suite, with the versions of constraints.txt or with the newest that the ranges admit."""
    session.install(*(PINNED if torch == "pinned" else ()), "-e", ".[dev]")
    session.run("pytest", "-n", "auto", *session.posargs)


@nox.session(python=PYTHONS[0])
def minimum(session: nox.Session) -> None:
    """Tests of the core with the lowest versions that pyproject.toml names."""
    session.install(*lowest(), *TESTING)
    session.install("--no-deps", "-e", ".")
    session.run("pytest", "-n", "auto", *(session.posargs or LOWEST))


@nox.session(python=PYTHONS[-1])
def coverage(session: nox.Session) -> None:
    """The share of the core's lines that its tests run; below the floor of pyproject.toml this fails."""
    session.install(*PINNED, "-e", ".[dev]")
    # --cov last: it would take a path that follows it for what is to be measured
    session.run("pytest", "-n", "auto", *(session.posargs or CORE), "--cov", env={"COVERAGE_CORE": "sysmon"})


@nox.session(python="3.11")
def mutants(session: nox.Session) -> None:
    """Planted mistakes: all named ones must be caught; of 300 drawn ones the share, in two hours at most. Nightly."""
    session.install(*PINNED, "-e", ".[dev]")
    session.run("python", "-m", "tests.mutants")
    session.run("python", "-m", "tests.drawn_mutants", "--count", "300", "--minutes", "120", *session.posargs)


@nox.session(python="3.11")
def reference(session: nox.Session) -> None:
    """Comparisons with other libraries."""
    session.install(*PINNED, "-e", ".[dev,reference]")
    session.run("pytest", "-n", "auto", "-m", "reference", *session.posargs)


@nox.session(python="3.11")
def interpreter(session: nox.Session) -> None:
    """The kernels in Triton, in its interpreter, over their own tests and the conformance cases; on Linux, no GPU."""
    session.install(*PINNED, "-e", ".[dev]")
    kernels = [f"tests/backends/{name}.py" for name in ("test_triton", "test_triton_conformance")]
    environment = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    session.run("pytest", "-n", "auto", "-m", "", *(session.posargs or kernels), env=environment)


@nox.session(python="3.11")
def offline(session: nox.Session) -> None:
    """The kernels in Triton, compiled for each kind of NVIDIA GPU: shared memory, spills, matrix instructions."""
    session.install(*PINNED, "-e", ".", "triton", "numpy")
    arguments = session.posargs or ("--arch", "80", "86", "89", "90", "100", "120")
    session.run("python", "benchmarks/gpu/offline.py", "--check", *arguments)


@nox.session(python="3.11")
def dry_run(session: nox.Session) -> None:
    """What calls ask of a GPU, on a null device under PyTorch's CUDA build; Linux and g++, 5.5 GB, weekly."""
    session.install("torch==2.14.1", env={"PIP_EXTRA_INDEX_URL": ""})  # the index of CPU builds has no CUDA
    session.install("--no-deps", "-e", ".")
    for way in [session.posargs] if session.posargs else (["--sm", "90"], ["--sm", "90", "--flash"], ["--sm", "80"]):
        session.run("python", "benchmarks/gpu/dry_run.py", "--check", *way)


@nox.session(python="3.11")
def docs(session: nox.Session) -> None:
    """The guide, into site/."""
    session.install(*PINNED, "-e", ".[docs]")
    session.run("python", "docs/build.py")


@nox.session(python="3.11")
def build(session: nox.Session) -> None:
    """Wheel and sdist, into dist/: the files of a release."""
    session.install("build", "twine")
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    session.run("python", "-m", "build")
    session.run("twine", "check", "--strict", *map(str, sorted((ROOT / "dist").iterdir())))


@nox.session(python=PYTHONS)
@nox.parametrize("torch", ["lowest", "newest"])
def smoke(session: nox.Session, torch: str) -> None:
    """The wheel of dist/ in a clean environment, outside the checkout."""
    wheels = sorted((ROOT / "dist").glob("*.whl"))
    if len(wheels) != 1:
        session.error("dist/ must hold one wheel: nox -s build")
    session.install(str(wheels[0]), *(lowest() if torch == "lowest" else ()))
    session.chdir(session.create_tmp())
    session.run("python", "-P", str(ROOT / "tests" / "smoke.py"))


@nox.session(python="3.11", venv_backend="none")
def tagged(session: nox.Session) -> None:
    """Whether a tag, the version, the citation and the changelog agree: nox -s tagged -- v0.1.0."""
    (tag,) = session.posargs or ("",)
    version = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/posenc/__init__.py").read_text(), re.M)
    if version is None or tag != f"v{version[1]}":
        session.error(f"the tag of this version is v{version and version[1]}, got {tag!r}")
    if f"\nversion: {version[1]}\n" not in (ROOT / "CITATION.cff").read_text():
        session.error(f"CITATION.cff must say version: {version[1]}")
    if f"\n## {version[1]} " not in (ROOT / "CHANGELOG.md").read_text():
        session.error(f"CHANGELOG.md needs the heading '## {version[1]} - DATE' in place of 'Unreleased'")
    published = dict(re.findall(r'^(SITE|REPOSITORY) = "(.*?)"', (ROOT / "src/posenc/published.py").read_text(), re.M))
    if not all(published.values()) or set(PROJECT.get("urls", {}).values()) != set(published.values()):
        session.error("src/posenc/published.py and project.urls of pyproject.toml must name the same two addresses")
    if "git clone " not in (ROOT / "README.md").read_text():
        session.error("README.md must say where to clone from")
