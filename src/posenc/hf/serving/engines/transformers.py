"""transformers, which reads the file as it is."""

from __future__ import annotations

from posenc.hf.serving.lines import Line, Serving

COLUMN, VERSION = "transformers", ""


def line(serving: Serving) -> Line:
    """The line of transformers."""
    return Line("transformers", VERSION, f'from_pretrained("{serving.folder}")', True, "reads the file as it is")
