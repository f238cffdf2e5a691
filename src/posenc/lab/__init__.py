"""The laboratory: trains one small model per encoding and measures all of them where training did not reach.

    task: data, model, tests, report ──┐
                                       ├─ jobs ─ worker: train, measure ─ result.json ─ rows → report
    profile: numbers, encodings ───────┘    run by runners: local processes, torchrun, SLURM

A task (`posenc.lab.tasks`) owns what is learnt: text, at growing lengths; images, moved and on other grids;
generated sequences, at growing lengths.
One (encoding, seed) is a job with a folder of its own. Everything a job does is a pure function of its
``config.json`` and the data, so that a job can be stopped at any moment, anywhere, and continued.
Needs the extra ``posenc[lab]``.
"""
