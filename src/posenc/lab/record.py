"""What a report states beside its numbers: settings, corpus, versions, machine, command."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from posenc.lab.corpus import Facts
from posenc.lab.profiles import Settings


@dataclass(frozen=True)
class RunRecord:
    """Enough to repeat a run and to know whether the repetition may differ."""

    settings: Settings
    facts: Facts
    versions: dict[str, str]
    machine: dict[str, str]
    command: str

    def settings_shown(self) -> dict[str, str]:
        """Every number that decides a result, in words."""
        shown = {key.replace("_", " "): str(value) for key, value in asdict(self.settings).items()}
        shown["lengths"] = ", ".join(f"{k}×" for k in self.settings.lengths)
        shown["training bytes per encoding"] = (
            f"{self.settings.steps * self.settings.batch_size * self.settings.train_length:,}"
        )
        return shown

    def corpus_shown(self) -> dict[str, str]:
        """Name, sizes, hashes, compressibility."""
        f = self.facts
        return {
            "text": f.name,
            "training": f"{f.train_bytes:,} bytes in {f.train_documents} documents",
            "training SHA-256": f.train_sha256,
            "validation": f"{f.validation_bytes:,} bytes in {f.validation_documents} documents",
            "validation SHA-256": f.validation_sha256,
            "entropy of single bytes": f"{f.entropy_bits:.3f} bits",
            "zlib -9": f"{f.zlib_bits:.3f} bits per byte",
            "lzma": f"{f.lzma_bits:.3f} bits per byte",
        }
