"""The records of a run as one long table: a line per value of a metric.

    job spec seed view length item document metric value

spec is the encoding that a value belongs to, view the condition it was measured under ("full", or "window": the same
weights under a sliding window of the trained length), length the tokens of a test (0 where there is none), item what
was tested (a window, a sequence, a bin of positions, a step), document the text it comes from. An encoding that is
undefined at some length has no lines there. Files are Parquet; the metadata say which job they belong to.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NotRequired

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import TypedDict

from posenc.lab.files import MOST_RESULTS, read_bytes, validated, write_atomically
from posenc.lab.metrics import Values

FORMAT = "posenc-lab-records/1"
SCHEMA = pa.schema(
    [
        ("job", pa.dictionary(pa.int16(), pa.string())),
        ("spec", pa.dictionary(pa.int16(), pa.string())),
        ("seed", pa.int16()),
        ("view", pa.dictionary(pa.int16(), pa.string())),
        ("length", pa.int32()),
        ("item", pa.int32()),
        ("document", pa.int32()),
        ("metric", pa.dictionary(pa.int16(), pa.string())),
        ("value", pa.float64()),
    ]
)
DIGITS = 6  # significant ones: far below what a seed changes


class RecordFacts(TypedDict):
    """The metadata of a file of records."""

    identity: NotRequired[str]  # of the job


def records_frame(measurements: Iterable[Values], *, job: str, spec: str, seed: int) -> pd.DataFrame:
    """The lines of one job, as a frame with the columns of `SCHEMA`."""
    parts = []
    for values in measurements:
        items = np.arange(len(values.values)) if values.items is None else np.asarray(values.items)
        documents = items if values.documents is None else np.asarray(values.documents)
        columns = {
            "job": job, "spec": spec, "seed": seed, "view": values.view, "length": values.length,
            "item": items, "document": documents, "metric": values.metric,
            "value": rounded(np.asarray(values.values, dtype=np.float64)),
        }  # fmt: skip
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True) if parts else empty()


def empty() -> pd.DataFrame:
    """No lines."""
    frame: pd.DataFrame = SCHEMA.empty_table().to_pandas()
    return frame


def rounded(values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Cut to `DIGITS` significant digits, so that files are small and two machines agree."""
    with np.errstate(divide="ignore", invalid="ignore"):
        power = DIGITS - 1 - np.floor(np.log10(np.abs(values)))
        scale = 10.0 ** np.clip(power, -300, 300)
        cut = np.round(values * scale) / scale
    return np.where((values == 0) | ~np.isfinite(cut), values, cut)


def write_records(path: Path, frame: pd.DataFrame, facts: dict[str, Any]) -> None:
    """Write lines, and in the metadata the facts that say whose they are; atomic."""
    table = pa.Table.from_pandas(frame, schema=SCHEMA, preserve_index=False)
    named = {b"posenc": json.dumps({"format": FORMAT, **facts}, allow_nan=False).encode()}
    buffer = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(named), buffer, compression="zstd", compression_level=12)
    write_atomically(path, buffer.getvalue())


def read_records(path: Path) -> tuple[pd.DataFrame, RecordFacts]:
    """Lines and facts of a file; a ValueError that names the file if posenc did not write it."""
    content = read_bytes(path, MOST_RESULTS)
    try:
        table = pq.read_table(io.BytesIO(content))
        facts = json.loads((table.schema.metadata or {}).get(b"posenc", b"{}"))
        fits = isinstance(facts, dict) and facts.get("format") == FORMAT
        frame = table.cast(SCHEMA).to_pandas() if fits else None
    except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is truncated or holds no records; it was left as it is") from error
    if frame is None:
        raise ValueError(f"{path} was not written by this version of posenc compare; it was left as it is")
    return frame, validated(path, RecordFacts, facts)
