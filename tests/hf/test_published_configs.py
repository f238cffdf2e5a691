"""Published configurations: no alarm on those labelled healthy; of a wide sample each is read, or refused in one line.

`tests/golden/published_configs.json.gz` holds 86 config.json files as they were found in public repositories, each with
the facts that were verified against the code of transformers 5.23; `config_corpus.json.gz` one file of each of some
300 model types.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from posenc.hf import read_rope
from posenc.hf.doctor import examine
from posenc.hf.inspect import as_json, as_text

GOLDEN = Path(__file__).parent.parent / "golden"


def golden(name: str) -> Any:
    return json.loads(gzip.decompress((GOLDEN / name).read_bytes()))


PUBLISHED: dict[str, dict[str, Any]] = golden("published_configs.json.gz")
CORPUS: list[dict[str, Any]] = golden("config_corpus.json.gz")
HEALTHY = [name for name, model in PUBLISHED.items() if str(model["expected"]["healthy"]).startswith("yes")]
# A configuration whose layer_types is a sentence, and one of another family under the name "mixtral".
TRUE_FAULTS = {"gemma2": "unreadable", "mixtral": "share-ignored"}


@pytest.mark.parametrize("name", HEALTHY)
def test_the_doctor_raises_no_alarm_on_a_healthy_file(name: str) -> None:
    report = examine(PUBLISHED[name]["config"])
    assert report.exit_code() == 0, [(finding.name, finding.level) for finding in report.findings]


def test_most_are_healthy() -> None:
    assert len(HEALTHY) > 70


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
        json.loads(as_json(read))
    except ValueError as error:
        return "" if "\n" in str(error) else str(error)
    return as_text(read)
