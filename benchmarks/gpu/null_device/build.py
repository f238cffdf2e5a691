"""Build the null device for the installed CUDA build of PyTorch: ``build(folder)`` gives the folder to preload from.

The two sources beside this file are compiled against the CUDA headers that come with PyTorch; every other symbol of
CUDA's libraries that PyTorch's own libraries ask for becomes a function that returns 0.
"""

from __future__ import annotations

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
PREFIXES = r"(?:__)?cuda[A-Z]|cublas|cudnn|cuLink|cuTensorMap"
LIBRARIES = ("torch_cuda", "c10_cuda", "torch_python", "torch_cuda_linalg", "caffe2_nvrtc")


def packages() -> Path:
    """The folder that PyTorch is installed in."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        raise SystemExit("PyTorch is not installed: pip install torch==2.14.1 (its CUDA build, on Linux from PyPI)")
    return Path(spec.origin).parent.parent


def build(into: Path) -> Path:
    """Make libnullcuda.so, libcuda.so and an NVRTC in a folder; again only where a source or PyTorch is newer."""
    root, sources = packages(), [HERE / "null_cuda.cpp", HERE / "null_nvrtc.cpp"]
    libraries = [path for name in LIBRARIES if (path := root / f"torch/lib/lib{name}.so").exists()]
    if root / "torch/lib/libtorch_cuda.so" not in libraries:
        raise SystemExit("this PyTorch is not a CUDA build: pip install torch==2.14.1 from PyPI, on Linux")
    device = into / "libnullcuda.so"
    newest = max(path.stat().st_mtime for path in (*sources, *libraries))
    if device.exists() and device.stat().st_mtime > newest:
        return into
    into.mkdir(parents=True, exist_ok=True)
    own = into / "own.o"
    # Triton's folder has the headers of crt/ that PyTorch's does not
    includes = [f"-I{headers(root)}", f"-I{root}/triton/backends/nvidia/include"]
    run("g++", "-O2", "-fPIC", "-w", "-std=c++17", *includes, "-c", str(sources[0]), "-o", str(own))
    wanted = {
        match[1]
        for library in libraries
        for match in re.finditer(rf" U ((?:{PREFIXES})\w*)", run("nm", "-D", "--undefined-only", str(library)))
    }
    have = {line.split()[-1] for line in run("nm", "--defined-only", str(own)).splitlines() if line.strip()}
    rest = into / "rest.c"
    rest.write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in sorted(wanted - have)))
    linked = ("-lstdc++", "-ldl", "-lpthread")
    run("gcc", "-O1", "-fPIC", "-w", "-shared", "-o", str(device), str(own), str(rest), *linked)
    nvrtc = next(root.glob("nvidia/*/lib/libnvrtc.so.*[0-9]"), None)
    if nvrtc is not None:  # PyTorch opens it by its file's name and asks for symbols of that version
        versions = into / "nvrtc.map"
        versions.write_text(f"{nvrtc.name} {{ global: *; }};\n")
        flags = ("-shared", f"-Wl,-soname,{nvrtc.name}", f"-Wl,--version-script={versions}")
        run("g++", "-O1", "-fPIC", "-w", *flags, "-o", str(into / nvrtc.name), str(sources[1]))
    for name in ("libcuda.so.1", "libcuda.so"):  # the driver's names, which Triton opens
        link = into / name
        link.unlink(missing_ok=True)
        link.symlink_to(device.name)
    return into


def headers(root: Path) -> Path:
    """Where cuda_runtime_api.h lies beside PyTorch."""
    found = [*root.glob("nvidia/cu*/include"), root / "nvidia/cuda_runtime/include"]
    for folder in found:
        if (folder / "cuda_runtime_api.h").exists():
            return folder
    raise SystemExit("no CUDA headers beside PyTorch: nvidia/*/include/cuda_runtime_api.h")


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
