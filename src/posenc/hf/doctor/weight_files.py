"""The weight files of a folder: what a loader takes of them, and what is wrong with them as files.

Which file counts is transformers' choice: ``model.safetensors`` where it is there, else the shards of the index, else
``pytorch_model.bin``.

Source: transformers 5.23, modeling_utils.py (_get_resolved_checkpoint_files).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from posenc.hf.findings import Finding
from posenc.hf.sources.tensor_files import INDEX_BYTES, Entry, loaded_files, problems_of_weights, tensors_in
from posenc.input_files import printable, read_json

ADAPTER = "adapter_config.json"


class Weights:
    """The tensors of a folder that a loader takes.

    Attributes:
        entries: by name, of safetensors files only.
        shapes: by name; of pickled files too.
        files: the files that were read.
        unread: pickled files that were not, each with the reason.
    """

    def __init__(self, folder: Path) -> None:
        self.entries: dict[str, Entry] = {}
        self.files: list[str] = []
        self.unread: list[str] = []
        self.by_file: dict[str, dict[str, Entry]] = {}
        for path in loaded_files(folder):
            try:
                tensors = tensors_in(path)
            except (ValueError, OSError):
                continue  # reported by `problems_of_weights`
            except ModuleNotFoundError as error:
                self.unread.append(f"{path.name} ({error.name} is not installed)")
                continue
            self.files.append(path.name)
            self.by_file[path.name] = tensors
            self.entries |= tensors
        self.shapes: dict[str, tuple[int, ...]] = {name: entry.shape for name, entry in self.entries.items()}
        single = folder / "pytorch_model.bin"
        pickled = [single] if single.exists() else sorted(folder.glob("pytorch_model-*.bin"))
        for path in [] if self.files else pickled:
            try:
                self.shapes |= _shapes_in(path)
                self.files.append(path.name)
            except Exception as error:  # an archive of torch can be damaged in any way
                self.unread.append(f"{path.name} ({printable(str(error).splitlines()[0])[:100]})")


def _shapes_in(path: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes in an archive of torch: no code of it is run and no number read."""
    import torch

    tensors = torch.load(path, map_location="meta", weights_only=True, mmap=True)
    return {name: tuple(tensor.shape) for name, tensor in tensors.items() if isinstance(tensor, torch.Tensor)}


def on_weight_files(folder: Path, weights: Weights) -> Iterator[Finding]:
    """Weight files that are damaged, truncated, missing or pointers of Git LFS."""
    for name, text in problems_of_weights(folder, weights.by_file):
        yield Finding(name, text, "weights-unreadable", "fault")


def on_adapter(folder: Path) -> Iterator[Finding]:
    """A folder of an adapter: what its base is."""
    if not (folder / ADAPTER).is_file():
        return
    try:
        known = read_json(folder / ADAPTER, INDEX_BYTES)
    except (ValueError, OSError) as error:
        yield Finding(ADAPTER, f"cannot be read: {str(error).splitlines()[0]}", "other-file-unread", "note")
        return
    base = known.get("base_model_name_or_path") if isinstance(known, dict) else None
    text = f"makes this folder an adapter ({printable(str(known.get('peft_type', 'PEFT')))}) of "
    text += f"{printable(str(base))[:100]}: the base's config decides its positions"
    yield Finding(ADAPTER, text, "adapter", "note")
