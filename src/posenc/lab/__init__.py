"""The laboratory: trains one small decoder per encoding at a short length and measures all of them at longer ones.

    documents → corpus ──┐
                         ├─ jobs ─ worker: train, measure ─ result.json ─ table → report
    profiles ────────────┘    run by runners: local processes, torchrun, SLURM

One (encoding, seed) is a job with a folder of its own. Everything a job does is a pure function of its
``config.json`` and the corpus, so that a job can be stopped at any moment, anywhere, and continued.
Needs the extra ``posenc[lab]``.
"""
