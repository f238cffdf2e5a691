"""Configurations of some 300 model types: each is read or refused in one line, and no false fault is alleged.

`tests/golden/config_corpus.json.gz` holds one published config.json of each type.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

from posenc.hf import read_rope
from posenc.hf.doctor import examine
from posenc.hf.explanation.report import as_text, explain

GOLDEN = Path(__file__).parents[2] / "golden"


CORPUS: list[dict[str, Any]] = json.loads(gzip.decompress((GOLDEN / "config_corpus.json.gz").read_bytes()))
# A configuration whose layer_types is a sentence, and one of another family under the name "mixtral".
TRUE_FAULTS = {"gemma2": "unreadable", "mixtral": "share-ignored"}


def test_every_model_type_is_read_or_refused_in_one_line() -> None:
    assert len(CORPUS) > 250
    for config in CORPUS:
        model_type = str(config.get("model_type"))
        report = examine(config)
        faults = {finding.name for finding in report.findings if finding.level == "fault"}
        assert faults <= {TRUE_FAULTS.get(model_type)}, (model_type, faults)
        text = read_or_refused(config)
        assert text, model_type
        assert not re.search(r"(add|write|give) rope_theta", text), (
            f"{model_type}: no base is advised of what is unknown"
        )


def read_or_refused(config: dict[str, Any]) -> str:
    """What is explained of a configuration, or the one line of its refusal."""
    try:
        read = read_rope(config)
        json.loads(explain(read).json())
    except ValueError as error:
        return "" if "\n" in str(error) else str(error)
    return as_text(read)
