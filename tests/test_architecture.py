"""The rules of the house, as tests: where files lie, what they say of themselves, what they import."""

from __future__ import annotations

import ast
import gc
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import posenc
from posenc.catalogue import CATALOGUE
from posenc.encoding import HOOK_POINTS, Encoding
from posenc.frequencies.modules import home_of
from posenc.frequencies.spectrum import Scaling
from posenc.testing import Case
from tests.mutants import MUTANTS

SOURCE = Path(posenc.__file__).parent
TESTS = Path(__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
OPTIONAL = {
    "rich", "accelerate", "altair", "vl_convert", "jinja2", "transformers", "datasets", "submitit", "filelock",
    "tokenizers", "safetensors", "huggingface_hub", "sklearn", "PIL", "scipy", "ray", "pandas", "pyarrow",
    "statsmodels",
}  # fmt: skip
VAGUE = {"utils", "util", "helpers", "helper", "common", "base", "misc", "core", "tools"}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def module_of(path: Path) -> str:
    return ".".join(["posenc", *path.relative_to(SOURCE).with_suffix("").parts])


def leaves() -> list[type[Encoding]]:
    """Public encoding classes that are no place and no helper level, from all files of the places' folders."""
    results = []
    for place in HOOK_POINTS:
        for path in sorted((SOURCE / place).glob("[!_]*.py")):
            module = importlib.import_module(module_of(path))
            results += [c for _, c in inspect.getmembers(module, inspect.isclass) if is_leaf(c, module.__name__)]
    return results


def is_leaf(cls: type, module: str) -> bool:
    if cls.__module__ != module or not issubclass(cls, Encoding) or cls.__name__.startswith("_"):
        return False
    return "__init__" in vars(cls)  # a helper level writes none


def scalings() -> list[type[Scaling]]:
    """Public scalings, from all files of frequencies/."""
    results = []
    for path in sorted((SOURCE / "frequencies").glob("[!_]*.py")):
        module = importlib.import_module(module_of(path))
        classes = [c for _, c in inspect.getmembers(module, inspect.isclass) if c.__module__ == module.__name__]
        results += [c for c in classes if issubclass(c, Scaling) and c is not Scaling]
    return results


LEAVES, SCALINGS = leaves(), scalings()
HELPER_LEVELS = {"DistanceBias", "OffsetBias"}
ENCODING_FILES = sorted({Path(inspect.getfile(cls)) for cls in LEAVES})
DESCRIBED_FILES = sorted({*ENCODING_FILES, *(Path(sys.modules[home_of(cls)].__file__ or "") for cls in SCALINGS)})


class Content(NamedTuple):
    """What the rules ask of a file, which is parsed once for all of them."""

    described: bool
    classes: dict[str, set[str]]  # the bases of each
    imports: list[tuple[str, ...]]  # of each a module, then what is taken from it
    unknown: list[str]  # arguments that a docstring describes and the function does not take


@cache
def contents() -> dict[Path, Content]:
    gc.disable()  # among millions of nodes of trees a collection finds nothing and takes most of the time
    try:
        return {path: content_of(path.read_text()) for path in FILES}
    finally:
        gc.enable()


def content_of(text: str) -> Content:
    tree = ast.parse(text)
    result = Content(text == "" or ast.get_docstring(tree) is not None, {}, [], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            unknown = sorted(described_arguments(node) - arguments(node))
            result.unknown.extend(f"{node.lineno} {node.name}: {word}" for word in unknown)
        if isinstance(node, ast.ClassDef):
            result.classes[node.name] = {ast.unparse(base) for base in node.bases}
        elif isinstance(node, ast.Import):
            result.imports.extend((alias.name,) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            result.imports.append((node.module, *(alias.name for alias in node.names)))
    return result


def test_what_is_read_from_a_file() -> None:
    code = '"""Says it."""\nimport a.b, c\n\nclass D(E, f.G):\n    def h(\n        self, **rest\n    ):\n'
    code += '        """Does\n        it."""\n        from i.j import k, l\n        return 1\n'
    expected = Content(True, {"D": {"E", "f.G"}}, [("a.b",), ("c",), ("i.j", "k", "l")], [])
    assert content_of(code) == expected
    assert not content_of("import a\n").described


def test_folders_are_hook_points() -> None:
    for cls in LEAVES:
        folder = cls.__module__.split(".")[1]
        assert issubclass(cls, HOOK_POINTS[folder]), f"{cls.__name__} lies in {folder}/"
        acts_at = [name for name, hook_point in HOOK_POINTS.items() if issubclass(cls, hook_point)]
        assert len(acts_at) == 1, f"{cls.__name__} acts at several hook points"
        assert not [c.__name__ for c in cls.__subclasses__() if _is_of_the_package(c)], (
            f"{cls.__name__} is a leaf and has subclasses: a class is a place or a leaf"
        )


def _is_of_the_package(cls: type) -> bool:
    """Whether a module of the package defines it; a class of an example in a docstring is in none."""
    return cls.__module__.startswith("posenc.") and hasattr(sys.modules[cls.__module__], cls.__name__)


def test_encodings_lie_in_hook_point_folders() -> None:
    places = {place.__name__ for place in HOOK_POINTS.values()}
    for path, content in contents().items():
        if path.relative_to(SOURCE).parts[0] in (*HOOK_POINTS, "encoding.py", "lab", "testing"):
            continue
        assert not [name for name, bases in content.classes.items() if bases & places], name_of(path)


def test_each_encoding_is_named_by_a_test_of_its_hook_point() -> None:
    for cls in LEAVES:
        folder = cls.__module__.split(".")[1]
        files = [path for part in (folder, "golden", "reference") for path in (TESTS / part).rglob("*.py")]
        named = re.compile(rf"\b{cls.__name__}\b")
        assert any(named.search(path.read_text()) for path in files), (
            f"no test in tests/{folder} or tests/golden names {cls.__name__}"
        )


@pytest.mark.parametrize("path", DESCRIBED_FILES, ids=name_of)
def test_docstring_of_encoding_file(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text()))
    assert text, "no docstring"
    first, *rest = text.split("\n\n")
    assert re.fullmatch(r".*:.*[.;]", first), f"first line: {first!r}"
    assert re.search(r"^    .*(=|←|→|⇒|↦)", "\n".join(rest), re.M), "no indented formula"
    classes = [inspect.getdoc(cls) or "" for cls in [*LEAVES, *SCALINGS] if home_of(cls) == module_of(path)]
    for where in [text] if "\nSource:" in text else classes:  # one for all, or each its own
        fields = dict(re.findall(r"^(Source|Checked against|Departs from the source): (.+)", where, re.M))
        assert list(fields) == ["Source", "Checked against", "Departs from the source"], f"fields: {list(fields)}"
        source = where[where.index("\nSource:") : where.index("\nChecked against:")]
        if "no paper" not in source:
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


def test_docstrings_describe_arguments_that_exist() -> None:
    wrong = [f"{name_of(path)}:{word}" for path, content in contents().items() for word in content.unknown]
    assert not wrong, "\n".join(wrong)


def described_arguments(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> set[str]:
    """The words before the colons of Args:, whose lines are those that are indented least."""
    section = re.search(r"^Args:\n((?: +.*\n?|\n)+)", ast.get_docstring(node) or "", re.M)
    lines = [line for line in section[1].split("\n") if line] if section else []
    least = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    heads = [line.partition(":")[0] for line in lines if len(line) - len(line.lstrip()) == least]
    return {word.strip(" *`") for head in heads for word in head.split(",")}


def arguments(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> set[str]:
    """What a function takes; for a class its constructor, or its fields."""
    if isinstance(node, ast.ClassDef):
        own = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name in ("__init__", "__new__")]
        fields = {ast.unparse(part.target) for part in node.body if isinstance(part, ast.AnnAssign)}
        return fields.union(*map(arguments, own))
    a = node.args
    return {arg.arg for arg in [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg] if arg is not None}


def test_encodings_are_exported_by_their_package_and_in_the_catalogue() -> None:
    entries = {entry.encoding for entry in CATALOGUE.values()}
    for cls in LEAVES:
        package = importlib.import_module(cls.__module__.rpartition(".")[0])
        assert getattr(package, cls.__name__, None) is cls, f"{package.__name__} does not export {cls.__name__}"
        assert cls.__name__ in package.__all__, f"__all__ of {package.__name__} lacks {cls.__name__}"
        assert cls in entries, f"{cls.__name__} is not in the catalogue"


def test_scalings_are_exported_by_their_package_and_in_the_catalogue() -> None:
    entries = {entry.scaling for entry in CATALOGUE.values()}
    for cls in SCALINGS:
        assert getattr(posenc.frequencies, cls.__name__, None) is cls, f"posenc.frequencies lacks {cls.__name__}"
        assert cls.__name__ in posenc.frequencies.__all__, f"__all__ of posenc.frequencies lacks {cls.__name__}"
        assert cls in entries, f"{cls.__name__} is not in the catalogue"
        assert not [c.__name__ for c in cls.__subclasses__()], f"{cls.__name__} is a leaf and has subclasses"


def test_catalogue_is_true_to_the_folders() -> None:
    for name, entry in CATALOGUE.items():
        assert name == entry.name == name.lower()
        if entry.encoding is not None:
            assert entry.hook_point == entry.encoding.__module__.split(".")[1]
            assert re.search(r"arXiv \d{4}\.\d{4,5}|no paper", entry.source)


@pytest.mark.parametrize("package", ["posenc", "posenc.frequencies", *(f"posenc.{place}" for place in HOOK_POINTS)])
def test_packages_name_what_they_export(package: str) -> None:
    module = importlib.import_module(package)
    assert len(set(module.__all__)) == len(module.__all__)
    assert not [name for name in module.__all__ if not hasattr(module, name)]


def test_packages_are_reachable_after_import_posenc() -> None:
    packages = [name for _, name, is_package in pkgutil.iter_modules(posenc.__path__) if is_package and name != "cli"]
    assert set(packages) <= set(dir(posenc))
    code = f"import posenc\nfor name in {packages}: assert getattr(posenc, name).__name__ == 'posenc.' + name"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="nothing"):
        posenc.nothing  # noqa: B018


@pytest.mark.parametrize("before", ["", "import posenc, posenc.hf\n", "import posenc_cli\n"])
def test_reading_a_configuration_loads_no_torch(before: str) -> None:
    code = before + "from posenc.hf import read_rope\n"
    code += "assert read_rope({'model_type': 'llama', 'head_dim': 64, 'rope_theta': 1e4}).rotations\n"
    code += "import sys; assert not {'torch', 'numpy', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("name", "most"), [("RoPE", 40), ("ALiBi", 20), ("ForgetGate", 35), ("attention", 70)])
def test_a_name_loads_few_modules(name: str, most: int) -> None:
    """Who imports one encoding waits for no other: packages of hook points import their modules when they are used."""
    code = f"import sys; from posenc import {name}; print(*(m for m in sys.modules if m.split('.')[0] == 'posenc'))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = ran.stdout.split()
    assert len(loaded) <= most, "\n".join(loaded)


def test_import_loads_torch_only() -> None:
    """Also where configurations are read."""
    code = "import sys, torch; torched = set(sys.modules)\nfor module in ('posenc', 'posenc.hf'):\n"
    code += "    __import__(module); print(*{name.split('.')[0] for name in set(sys.modules) - torched})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for module, line in zip(("posenc", "posenc.hf"), ran.stdout.splitlines(), strict=True):
        loaded = set(line.split())
        assert not loaded & (OPTIONAL | {"numpy", "pytest"}), f"import {module} loads {sorted(loaded & OPTIONAL)}"
        strangers = loaded - set(sys.stdlib_module_names) - {"posenc", "torch"}
        assert not {name for name in strangers if not name.startswith("_")} - {"sympy", "mpmath"}, strangers


def test_optional_packages_stay_in_their_folders() -> None:
    strangers = OPTIONAL | {"numpy", "pytest"}
    for path, content in contents().items():
        if path.relative_to(SOURCE).parts[0] in (
            "lab",
            "cli.py",
            "__main__.py",
            "hf",
            "engines",
            "evaluation",
            "figures",
        ):
            continue
        imported = {module.split(".")[0] for module, *_ in content.imports}
        assert not imported & strangers, f"{name_of(path)} imports {sorted(imported & strangers)}"


@pytest.mark.parametrize("name", CATALOGUE)
def test_no_constant_can_be_cast(name: str) -> None:
    for encoding in Case.from_catalogue(name).fresh():
        for module in encoding.modules():
            floating = [n for n, b in module.named_buffers(recurse=False) if b.is_floating_point() or b.is_complex()]
            assert not floating, f"{type(module).__name__} has floating buffers {floating}"
            held = [n for n, value in (vars(module) | vars(type(module))).items() if type(value).__name__ == "Tensor"]
            assert not held, f"{type(module).__name__} holds tensors outside parameters: {held}"


def test_files_are_plainly_named_and_described() -> None:
    results = []
    for path, content in contents().items():
        name = name_of(path)
        if set(path.relative_to(SOURCE).with_suffix("").parts) & VAGUE:
            results.append(f"{name} says nothing")
        if not content.described:
            results.append(f"{name} has no docstring")
    assert not results


def test_no_files_import_each_other_in_a_circle() -> None:
    """Imports inside functions and for types alone count too."""
    modules = {module_of(path).removesuffix(".__init__"): path for path in FILES}
    left = {name: _imported(path, modules) - {name} for name, path in modules.items()}
    while free := [name for name, expected in left.items() if not expected & left.keys()]:
        for name in free:
            del left[name]
    # what is left is in a circle, or needs one
    while ends := [name for name in left if not any(name in expected for expected in left.values())]:
        for name in ends:
            del left[name]
    assert not left


def _imported(path: Path, modules: dict[str, Path]) -> set[str]:
    """The modules of the package that a file needs by its imports.

    ``from package import name`` needs the module of that name, and the package, whose ``__init__`` runs first, unless
    the file lies in the package itself. Where the name is no module, it needs the module that the package has it from.
    """
    result = set[str]()
    for module, *names in contents()[path].imports:
        submodules = {f"{module}.{name}" for name in names} & modules.keys()
        outside = not module_of(path).startswith(f"{module}.")
        if outside or len(submodules) < len(names) or not names:
            result.add(module)
        result |= submodules | {source for name in names if (source := _source(module, name, modules))}
    return result & modules.keys()


def _source(package: str, name: str, modules: dict[str, Path]) -> str | None:
    """The module from which a package imports a name that is no module of its own."""
    if package not in modules or f"{package}.{name}" in modules:
        return None
    return next((module for module, *names in contents()[modules[package]].imports if name in names), None)


def test_every_named_mutant_finds_the_line_that_it_plants_into() -> None:
    stale = [f"{m.name}: {m.file} has no {m.right!r}" for m in MUTANTS if m.right not in (SOURCE / m.file).read_text()]
    assert not stale, "bring tests/mutants.py up to date"
    assert all((TESTS.parent / test).exists() for mutant in MUTANTS for test in mutant.tests)
