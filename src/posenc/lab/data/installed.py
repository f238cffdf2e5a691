"""Corpora from installed packages, which need no download: Python sources, C++ headers, prose from docstrings, and
whole documents.

The files are nearly the same on every machine, but not quite: a corpus states the packages' versions, and its hash
tells two of them apart.

Prose is what reads like it: paragraphs of at least eight words, a quarter of them among the most common English words,
from a capital letter to a full stop, with few symbols. Each paragraph is taken once, where it occurs first, because the
same sentences describe the same arguments in many places. The paragraphs of one file form a document, in order. Such
paragraphs were never written to follow each other, so that prose has little structure beyond a paragraph.

Whole documents are files as their authors wrote them, of at least 8 KiB: documentation, and single sources. Installed
packages hold little documentation, so that nearly all of them are sources.
"""

from __future__ import annotations

import inspect
import itertools
import platform
import re
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from posenc.lab.data.documents import Document, is_utf8

STANDARD = "the standard library"
# What some distributions lack, and what does not read like code: tests, tables of character sets, one huge literal.
EXCLUDED_FOLDERS = frozenset(
    {
        "test",
        "tests",
        "testing",
        "idle_test",
        "site-packages",
        "dist-packages",
        "pydoc_data",
        "encodings",
        "__pycache__",
    }
)
EXCLUDED_PREFIXES = ("lib2to3/pgen",)
LEAST, MOST = 2**8, 2**17  # bytes of a file; longer ones are mostly generated tables
DISTRIBUTIONS = {"sklearn": "scikit-learn"}  # where a package is not called as what is imported
PYTHON = (STANDARD, "torch")


def sources(
    packages: Sequence[str], most: int = MOST, files: str = "*.py", folders: Mapping[str, Path] | None = None
) -> Iterator[tuple[str, bytes]]:
    """Name and content of the files of packages, in order of names.

    Args:
        packages: names; packages that are not installed have no files.
        most: bytes of a file.
        files: pattern of the files' names.
        folders: where packages lie that need not be installed.
    """
    for package in packages:
        root = folders[package] if folders else folder_of(package)
        for path in sorted(root.rglob(files)) if root else []:
            name = path.relative_to(root or path).as_posix()
            if EXCLUDED_FOLDERS.intersection(PurePosixPath(name).parts) or name.startswith(EXCLUDED_PREFIXES):
                continue
            text = path.read_bytes()
            if LEAST <= len(text) <= most and b"\0" not in text:
                yield name if package == STANDARD else f"{package}/{name}", text


def folder_of(package: str) -> Path | None:
    """Where a package lies; None where it is not installed. Nothing of it is imported."""
    if package == STANDARD:
        return Path(sysconfig.get_path("stdlib"))
    spec = find_spec(package)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def versions(packages: Sequence[str]) -> str:
    """The installed ones of these packages with their versions, as text."""
    named = {f"{name} {metadata.version(DISTRIBUTIONS.get(name, name))}" for name in packages if _installed(name)}
    return ", ".join([f"Python {platform.python_version()}", *sorted(named)])


def python_sources() -> list[Document]:
    """Python sources: the standard library's and torch's, which is installed wherever this library is."""
    return [Document(name, text) for name, text in sources(PYTHON)]


def cpp_headers(folder: Path | None = None) -> list[Document]:
    """torch's C++ headers, without generated ones; ``folder`` is torch's, by default the installed one."""
    headers = sources(("torch",), files="*.h", folders={"torch": folder} if folder else None)
    return [Document(name, text) for name, text in headers if b"@generated" not in text and b"enerated by" not in text]


DOCUMENT_LEAST, DOCUMENT_MOST = 2**13, 2**19  # bytes of a whole document
MOST_DIGITS = 0.1  # share of a document's bytes: tables of numbers have more


def whole_documents() -> list[Document]:
    """Files of at least 8 KiB of Python and of scientific packages, each from its first byte to its last.

    Sources, documentation (.rst, .md, .txt) and the chapters of Python's reference, in UTF-8; no tables of numbers.
    """
    patterns = ("*.py", "*.rst", "*.md", "*.txt")
    files = (sources(PACKAGES, most=DOCUMENT_MOST, files=pattern) for pattern in patterns)
    return whole_documents_of(itertools.chain(_topics(), *files))


def whole_documents_of(files: Iterable[tuple[str, bytes]]) -> list[Document]:
    """Those files that are whole documents, given as names and contents."""
    return [Document(name, text) for name, text in files if len(text) >= DOCUMENT_LEAST and _is_text(text)]


def _is_text(content: bytes) -> bool:
    digits = sum(content.count(digit) for digit in b"0123456789")
    return is_utf8(content) and digits <= MOST_DIGITS * len(content)


def _installed(package: str) -> bool:
    return package != STANDARD and folder_of(package) is not None


# Of the extra ``lab``, and what torch itself depends on.
PACKAGES = (STANDARD, "torch", "numpy", "scipy", "pandas", "statsmodels", "sklearn", "sympy", "networkx")
_COMMON = re.compile(
    r"\b(?:the|of|an?|to|is|in|and|for|if|be|are|or|that|this|it|with|as|by|not|on|from|can|which|will|at|when|than|have|"
    r"has|its|you|we|but|into|may|used|all|must|other)\b"
)
_STRING = re.compile(r"""(?s)(\"\"\"|''')(.*?)\1""")
_HEADING = re.compile(r"""(?m)^.*\n[ \t]*([-=~^"'*#`+.])\1{2,}[ \t]*$""")
_WORD = re.compile(r"[a-z']+")


def prose() -> list[Document]:
    """The prose of the documentation of Python and of scientific packages, as far as they are installed."""
    return prose_of(itertools.chain(_topics(), sources(PACKAGES, most=2**22)))


def prose_of(files: Iterable[tuple[str, bytes]]) -> list[Document]:
    """The prose in the docstrings of files, given as names and contents, each paragraph once."""
    seen: set[str] = set()
    documents = []
    for name, source in files:
        paragraphs = []
        for paragraph in _paragraphs(name, source):
            if paragraph not in seen and reads_like_prose(paragraph):
                seen.add(paragraph)
                paragraphs.append(paragraph)
        if paragraphs:
            documents.append(Document(name, "\n\n".join(paragraphs).encode()))
    return documents


def reads_like_prose(paragraph: str) -> bool:
    """Whether a paragraph, on one line, consists of sentences."""
    if not paragraph[:1].isupper() or paragraph[-1] not in ".:!?":
        return False
    lower = paragraph.lower()
    words = _WORD.findall(lower)
    if len(words) < 8 or 4 * len(_COMMON.findall(lower)) < len(words):
        return False
    return sum(map(len, words)) + paragraph.count(" ") >= 0.9 * len(paragraph)


def _paragraphs(name: str, source: bytes) -> Iterator[str]:
    """The paragraphs of a file's docstrings, each on one line; a change of indentation begins another one."""
    try:
        text = source.decode()
    except UnicodeDecodeError:
        return
    for docstring in [text] if not name.endswith(".py") else _docstrings(text):
        for block in re.split(r"\n\s*\n", _HEADING.sub("\n", inspect.cleandoc(docstring))):
            for _, lines in itertools.groupby(block.splitlines(), key=lambda line: len(line) - len(line.lstrip())):
                paragraph = " ".join(" ".join(lines).split())
                if paragraph:
                    yield paragraph


def _docstrings(source: str) -> Iterator[str]:
    """Strings of three quotes that begin a line, which are docstrings but for a few; parsing takes ten times longer."""
    for match in _STRING.finditer(source):
        before = source[source.rfind("\n", 0, match.start()) + 1 : match.start()]
        if before.strip() in ("", "r", "R", "u"):
            yield match[2]


def _topics() -> Iterator[tuple[str, bytes]]:
    """The chapters of Python's reference that its help shows, where a distribution has them."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return
    for name, text in sorted(topics.items()):
        yield f"pydoc_data/{name}", text.encode()
