"""Which backend is tried first, as measured: written by benchmarks/preference.py, not by hand.

(device type, pass, kind of call) → ((keys up to this many, backends from best to last), ...). Kinds:

    bare     nothing added to the scores
    bias     a bias (T5)
    masked   a padding mask
    packed   packed documents (segments)
    scores   an encoding that reads the scores (CoPE)
    weights  weights instead of softmax (stick-breaking)

The rows of "cuda" are not measured.

command: `python benchmarks/preference.py --write`
torch 2.13.0+cpu, Python 3.11.7, threads 1
machine: Intel(R) Xeon(R) Processor
"""

from __future__ import annotations

ANY = 1 << 60  # no limit

TABLE: dict[tuple[str, str, str], tuple[tuple[int, tuple[str, ...]], ...]] = {
    ("cpu", "inference", "bare"): (
        (90, ("sdpa", "dense", "tiled", "rows", "triton", "flex")),
        (362, ("sdpa", "tiled", "rows", "dense", "triton", "flex")),
        (724, ("tiled", "sdpa", "rows", "dense", "triton", "flex")),
        (ANY, ("sdpa", "tiled", "rows", "dense", "triton", "flex")),
    ),
    ("cpu", "inference", "bias"): (
        (90, ("sdpa", "dense", "tiled", "rows", "triton", "flex")),
        (724, ("tiled", "sdpa", "rows", "dense", "triton", "flex")),
        (ANY, ("tiled", "rows", "sdpa", "dense", "triton", "flex")),
    ),
    ("cpu", "inference", "masked"): (
        (90, ("sdpa", "dense", "tiled", "rows", "triton", "flex")),
        (362, ("sdpa", "tiled", "rows", "dense", "triton", "flex")),
        (ANY, ("tiled", "sdpa", "rows", "dense", "triton", "flex")),
    ),
    ("cpu", "inference", "packed"): (
        (90, ("sdpa", "dense", "tiled", "rows", "triton", "flex")),
        (362, ("sdpa", "tiled", "rows", "dense", "triton", "flex")),
        (ANY, ("tiled", "sdpa", "rows", "dense", "triton", "flex")),
    ),
    ("cpu", "inference", "scores"): (
        (90, ("tiled", "dense", "sdpa", "rows", "triton", "flex")),
        (724, ("tiled", "rows", "dense", "sdpa", "triton", "flex")),
        (ANY, ("tiled", "rows", "sdpa", "dense", "triton", "flex")),
    ),
    ("cpu", "inference", "weights"): (
        (90, ("tiled", "dense", "sdpa", "rows", "triton", "flex")),
        (724, ("tiled", "rows", "dense", "sdpa", "triton", "flex")),
        (ANY, ("tiled", "rows", "sdpa", "dense", "triton", "flex")),
    ),
    ("cpu", "training", "bare"): (
        (181, ("sdpa", "dense", "tiled", "rows", "triton", "flex")),
        (ANY, ("sdpa", "tiled", "rows", "dense", "triton", "flex")),
    ),
    ("cpu", "training", "bias"): (
        (90, ("dense", "sdpa", "tiled", "rows", "triton", "flex")),
        (181, ("sdpa", "tiled", "dense", "rows", "triton", "flex")),
        (362, ("tiled", "sdpa", "rows", "dense", "triton", "flex")),
        (ANY, ("tiled", "rows", "sdpa", "dense", "triton", "flex")),
    ),
    ("cpu", "training", "masked"): (
        (181, ("sdpa", "dense", "tiled", "rows", "triton", "flex")),
        (362, ("sdpa", "tiled", "rows", "dense", "triton", "flex")),
        (ANY, ("tiled", "sdpa", "rows", "dense", "triton", "flex")),
    ),
    ("cpu", "training", "packed"): (
        (90, ("sdpa", "dense", "tiled", "rows", "triton", "flex")),
        (181, ("sdpa", "tiled", "dense", "rows", "triton", "flex")),
        (362, ("sdpa", "tiled", "rows", "dense", "triton", "flex")),
        (ANY, ("tiled", "sdpa", "rows", "dense", "triton", "flex")),
    ),
    ("cpu", "training", "scores"): (
        (90, ("dense", "tiled", "sdpa", "rows", "triton", "flex")),
        (724, ("tiled", "rows", "dense", "sdpa", "triton", "flex")),
        (ANY, ("tiled", "rows", "sdpa", "dense", "triton", "flex")),
    ),
    ("cpu", "training", "weights"): (
        (90, ("dense", "tiled", "sdpa", "rows", "triton", "flex")),
        (181, ("tiled", "dense", "rows", "sdpa", "triton", "flex")),
        (724, ("tiled", "rows", "dense", "sdpa", "triton", "flex")),
        (ANY, ("tiled", "rows", "sdpa", "dense", "triton", "flex")),
    ),
    ("cuda", "inference", "bare"): ((ANY, ("sdpa", "triton", "flex", "tiled", "rows", "dense")),),
    ("cuda", "inference", "bias"): ((ANY, ("triton", "flex", "tiled", "sdpa", "rows", "dense")),),
    ("cuda", "inference", "masked"): ((ANY, ("triton", "flex", "tiled", "sdpa", "rows", "dense")),),
    ("cuda", "inference", "packed"): ((ANY, ("triton", "flex", "tiled", "sdpa", "rows", "dense")),),
    ("cuda", "inference", "scores"): ((ANY, ("triton", "flex", "tiled", "sdpa", "rows", "dense")),),
    ("cuda", "inference", "weights"): ((ANY, ("triton", "flex", "tiled", "sdpa", "rows", "dense")),),
    ("cuda", "training", "bare"): ((ANY, ("sdpa", "triton", "flex", "tiled", "rows", "dense")),),
    ("cuda", "training", "bias"): ((ANY, ("triton", "flex", "tiled", "sdpa", "rows", "dense")),),
    ("cuda", "training", "masked"): ((ANY, ("triton", "flex", "tiled", "sdpa", "rows", "dense")),),
    ("cuda", "training", "packed"): ((ANY, ("triton", "flex", "tiled", "sdpa", "rows", "dense")),),
    ("cuda", "training", "scores"): ((ANY, ("triton", "flex", "tiled", "sdpa", "rows", "dense")),),
    ("cuda", "training", "weights"): ((ANY, ("triton", "flex", "tiled", "sdpa", "rows", "dense")),),
}
