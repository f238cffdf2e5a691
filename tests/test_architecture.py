"""The rules of the house, as tests: where files lie, what they say of themselves, what they import."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import posenc
from posenc.catalogue import CATALOGUE
from posenc.encoding import PLACES, Encoding
from posenc.frequencies.spectrum import Scaling
from posenc.testing import Case

SOURCE = Path(posenc.__file__).parent
TESTS = Path(__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
FILE_LINES, FUNCTION_LINES = 260, 60  # budgets: whoever needs more splits by subject
OPTIONAL = {
    "rich", "typer", "accelerate", "altair", "vl_convert", "jinja2", "transformers", "datasets", "submitit", "filelock",
    "tokenizers", "safetensors", "huggingface_hub", "sklearn", "PIL", "scipy", "optuna", "ray", "pandas", "pyarrow",
    "statsmodels",
}  # fmt: skip
VAGUE = {"utils", "util", "helpers", "helper", "common", "base", "misc", "core", "tools"}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def module_of(path: Path) -> str:
    return ".".join(["posenc", *path.relative_to(SOURCE).with_suffix("").parts])


def leaves() -> list[type[Encoding]]:
    """Public encoding classes that are no place and no helper level, from all files of the places' folders."""
    found = []
    for place in PLACES:
        for path in sorted((SOURCE / place).glob("[!_]*.py")):
            module = importlib.import_module(module_of(path))
            found += [c for _, c in inspect.getmembers(module, inspect.isclass) if is_leaf(c, module.__name__)]
    return found


def is_leaf(cls: type, module: str) -> bool:
    if cls.__module__ != module or not issubclass(cls, Encoding) or cls.__name__.startswith("_"):
        return False
    return "__init__" in vars(cls)  # a helper level writes none


def scalings() -> list[type[Scaling]]:
    """Public scalings, from all files of frequencies/."""
    found = []
    for path in sorted((SOURCE / "frequencies").glob("[!_]*.py")):
        module = importlib.import_module(module_of(path))
        classes = [c for _, c in inspect.getmembers(module, inspect.isclass) if c.__module__ == module.__name__]
        found += [c for c in classes if issubclass(c, Scaling) and c is not Scaling]
    return found


LEAVES, SCALINGS = leaves(), scalings()
HELPER_LEVELS = {"DistanceBias", "OffsetBias"}
ENCODING_FILES = sorted({Path(inspect.getfile(cls)) for cls in LEAVES})
DESCRIBED_FILES = sorted({*ENCODING_FILES, *(Path(inspect.getfile(cls)) for cls in SCALINGS)})


@pytest.mark.parametrize("cls", LEAVES, ids=lambda cls: cls.__name__)
def test_folder_is_place(cls: type[Encoding]) -> None:
    folder = cls.__module__.split(".")[1]
    assert issubclass(cls, PLACES[folder])
    assert sum(issubclass(cls, place) for place in PLACES.values()) == 1, "one class acts at one place"
    assert not [c.__name__ for c in cls.__subclasses__() if c.__module__.startswith("posenc.")], (
        f"{cls.__name__} is a leaf and has subclasses: a class is a place or a leaf"
    )


def test_encodings_lie_in_places() -> None:
    for path in FILES:
        folder = path.relative_to(SOURCE).parts[0]
        if folder in PLACES or folder in ("encoding.py", "lab", "testing"):
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base) for base in node.bases}
                assert not bases & {place.__name__ for place in PLACES.values()}, f"{name_of(path)}: {node.name}"


@cache
def parsed(path: Path) -> ast.Module:
    """The tree of a source file."""
    return ast.parse(path.read_text())


@pytest.mark.parametrize("path", ENCODING_FILES, ids=name_of)
def test_tests_mirror_sources(path: Path) -> None:
    mirror = TESTS / path.parent.name / f"test_{path.name}"
    assert mirror.exists(), f"{name_of(path)} needs {mirror.relative_to(TESTS.parent)}"


@pytest.mark.parametrize("path", DESCRIBED_FILES, ids=name_of)
def test_docstring_of_encoding_file(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text()))
    assert text, "no docstring"
    first, *rest = text.split("\n\n")
    assert re.fullmatch(r".*:.*[.;]", first), f"first line: {first!r}"
    assert re.search(r"^    .*(=|←|→|⇒|↦)", "\n".join(rest), re.M), "no indented formula"
    fields = dict(re.findall(r"^(Source|Checked against|Departs from the source): (.+)", text, re.M))
    assert list(fields) == ["Source", "Checked against", "Departs from the source"], f"fields: {list(fields)}"
    source = text[text.index("\nSource:") : text.index("\nChecked against:")]
    assert re.search(r"arXiv \d{4}\.\d{4,5}", source), f"no arXiv id in {source!r}"
    assert re.search(r"eq\.|equation|section|algorithm|table|appendix", source, re.I), f"no place in {source!r}"


@pytest.mark.parametrize("cls", [*LEAVES, *SCALINGS], ids=lambda cls: cls.__name__)
def test_docstring_of_encoding_class(cls: type[Encoding]) -> None:
    text = inspect.getdoc(cls) or ""
    assert "Args:\n" in text, "no Args:"
    assert ">>> " in text, "no example"
    described = set(re.findall(r"^    (\w+(?:, \w+)*):", text[text.index("Args:\n") :], re.M))
    described = {word for words in described for word in words.split(", ")}
    missing = set(inspect.signature(cls).parameters) - described
    assert not missing, f"Args: does not describe {sorted(missing)}"


@pytest.mark.parametrize("cls", LEAVES, ids=lambda cls: cls.__name__)
def test_encoding_is_exported_and_in_the_catalogue(cls: type[Encoding]) -> None:
    assert getattr(posenc, cls.__name__, None) is cls, f"posenc/__init__.py does not export {cls.__name__}"
    assert cls in {entry.encoding for entry in CATALOGUE.values()}, f"{cls.__name__} is not in the catalogue"


@pytest.mark.parametrize("cls", SCALINGS, ids=lambda cls: cls.__name__)
def test_scaling_is_exported_and_in_the_catalogue(cls: type[Scaling]) -> None:
    assert getattr(posenc, cls.__name__, None) is cls, f"posenc/__init__.py does not export {cls.__name__}"
    assert cls in {entry.scaling for entry in CATALOGUE.values()}, f"{cls.__name__} is not in the catalogue"
    assert not [c.__name__ for c in cls.__subclasses__()], f"{cls.__name__} is a leaf and has subclasses"


def test_catalogue_is_true_to_the_folders() -> None:
    for name, entry in CATALOGUE.items():
        assert name == entry.name == name.lower()
        if entry.encoding is not None:
            assert entry.place == entry.encoding.__module__.split(".")[1]
            assert re.search(r"arXiv \d{4}\.\d{4,5}", entry.source)


def test_public_names_are_plain_imports() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            assert all(alias.asname == alias.name for alias in node.names), f"line {node.lineno}: import X as X"
        else:
            assert isinstance(node, ast.Expr | ast.Assign), f"line {node.lineno}: names and the version, nothing else"


@pytest.mark.parametrize("place", PLACES)
def test_place_folder_holds_a_docstring_only(place: str) -> None:
    path = SOURCE / place / "__init__.py"
    if path.exists():
        tree = ast.parse(path.read_text())
        assert len(tree.body) == 1
        assert ast.get_docstring(tree)


def test_import_loads_torch_only() -> None:
    code = "import sys; before = set(sys.modules); import torch; torched = set(sys.modules); import posenc\n"
    code += "print(*sorted({name.split('.')[0] for name in set(sys.modules) - torched}))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.split())
    assert not loaded & (OPTIONAL | {"numpy", "pytest"}), f"import posenc loads {sorted(loaded & OPTIONAL)}"
    strangers = loaded - set(sys.stdlib_module_names) - {"posenc", "torch"}
    assert not {name for name in strangers if not name.startswith("_")} - {"sympy", "mpmath", "numpy"}, strangers


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_optional_packages_stay_in_their_folders(path: Path) -> None:
    folder = path.relative_to(SOURCE).parts[0]
    if folder in ("lab", "cli.py", "__main__.py", "hf", "plots"):
        return
    imported = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module.split(".")[0])
    assert not imported & (OPTIONAL | {"numpy", "pytest"}), f"{name_of(path)} imports {sorted(imported & OPTIONAL)}"


@pytest.mark.parametrize("name", CATALOGUE)
def test_no_constant_can_be_cast(name: str) -> None:
    for encoding in Case.from_catalogue(name).fresh():
        for module in encoding.modules():
            floating = [n for n, b in module.named_buffers(recurse=False) if b.is_floating_point() or b.is_complex()]
            assert not floating, f"{type(module).__name__} has floating buffers {floating}"
            held = [n for n, value in (vars(module) | vars(type(module))).items() if type(value).__name__ == "Tensor"]
            assert not held, f"{type(module).__name__} holds tensors outside parameters: {held}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_file_is_small_and_plainly_named(path: Path) -> None:
    text = path.read_text()
    lines = text.count("\n")
    assert lines <= FILE_LINES, f"{name_of(path)} has {lines} lines, the budget is {FILE_LINES}: split it by subject"
    assert not set(path.relative_to(SOURCE).with_suffix("").parts) & VAGUE, f"{name_of(path)} says nothing"
    tree = parsed(path)
    assert text == "" or ast.get_docstring(tree), f"{name_of(path)} has no docstring"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or 0) - node.body[0].lineno + 1 - docstring_lines(node)  # a signature is no code
            assert size <= FUNCTION_LINES, f"{name_of(path)}: {node.name} has {size} lines, budget {FUNCTION_LINES}"


def docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = node.body[0]
    if not ast.get_docstring(node):
        return 0
    return (first.end_lineno or 0) - first.lineno + 1


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_arguments_have_names(path: Path) -> None:
    folder = path.relative_to(SOURCE).parts[0]
    for node in ast.walk(parsed(path)):
        if not isinstance(node, ast.FunctionDef) or node.args.kwarg is None:
            continue
        shape = folder in ("catalogue", "schedule.py") and node.args.kwarg.arg == "shape"
        # stand-ins for other signatures
        construct = (folder, node.name) in {("testing", "construct"), ("testing", "patched"), ("making.py", "made")}
        options = name_of(path) == "lab/numbers.py"  # typer hands a command its options by name
        theirs = name_of(path) in ("hf/attached.py", "hf/kept.py")  # transformers calls them with what a family adds
        theirs |= name_of(path) == "hf/plugins/rotation.py"  # and engines with what their version's get_rope takes
        allowed = shape or construct or options or theirs or folder in ("cli.py", "__main__.py")
        assert allowed, f"{name_of(path)}: {node.name} takes **{node.args.kwarg.arg}"


def test_no_files_import_each_other_in_a_circle() -> None:
    """Imports inside functions and for types alone count too."""
    modules = {module_of(path).removesuffix(".__init__"): path for path in FILES}
    left = {name: _imported(path, modules) - {name} for name, path in modules.items()}
    while free := [name for name, wanted in left.items() if not wanted & left.keys()]:
        for name in free:
            del left[name]
    # what is left is in a circle, or needs one
    while ends := [name for name in left if not any(name in wanted for wanted in left.values())]:
        for name in ends:
            del left[name]
    assert not left


def _imported(path: Path, modules: dict[str, Path]) -> set[str]:
    """The modules of the package that a file names in its imports."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (names & modules.keys()) or {node.module}
    return found & modules.keys()
