"""Confidence intervals, contrasts and equivalence tests: the procedure of every table, and how often it errs.

**Sample.** The values of a row are (seeds, documents), items of one document averaged: documents and seeds are what is
sampled, crossed, and both are random (`intervals`). A generated sequence is its own document. No variance is pooled
over encodings, so an encoding that fails to learn does not hide differences between others.

**Contrasts.** They are planned before any number is seen: every row against two baselines, RoPE under a sliding window
of the training length and ALiBi, and against its own window, at the longest length, on the seeds and documents that
both have. Each has its own 95 % interval and degrees of freedom (`contrasts`). A difference is claimed where the
adjusted p-value is at most 0.05 and there is no caution (`Contrast.significant`).

**Equivalence.** A difference is equivalent to none where its whole interval lies within ± the margin of the unit, and
different where it lies beyond the margin on one side (`within`); an interval of confidence 1 − 2·level is wrong in at
most ``level`` of cases, since one side decides.

**Multiplicity.** The p-values of all contrasts of a table are adjusted together by Holm (`holm`); so are its verdicts,
each with the interval that decides (`posenc.lab.report.verdicts`).

**Bimodal seeds.** Some encodings learn a task from some seeds only; then a mean lies near 0 or near 1 by luck. If the
seeds of some row of the table fall into two groups, and a contrast is about as large as the gap between the groups and
at the same values, it carries a caution, unless ranks of seeds alone (Mann and Whitney, exact, times the number of
contrasts) separate both sides; for 20 to 80 contrasts that takes seven seeds. The share of seeds that learned has the
exact interval of Clopper and Pearson (`share`): with 3 of 3 seeds the true share may be 0.29, with 5 of 5 0.48, with 10
of 10 0.69.

**How often it errs**, by simulation (tests/lab/test_stats.py):

    the 95 % interval of a mean covers it            3 seeds       5 seeds       10 seeds
      normal seeds, 24 to 200 documents              94 to 99 %    94 to 98 %    94 to 97 %
      bimodal seeds, 50 % learn                      76 %          94 %          94 %
      bimodal seeds, 80 or 20 % learn                48 %          67 %          88 %
      bimodal seeds, 90 % learn                      27 %          41 %          65 %
    a table of 12 equal encodings has a false claim
      normal seeds                                   0 to 1 %      0 to 2 %      0 to 4 %
      bimodal seeds, 20 to 90 % learn                0 %           0 %           0 to 2 %
      the same by adjusted p-values alone            0 to 31 %     0 to 2 %      0 to 4 %
    a change as large as the margin
      is called equivalent, normal seeds             4 to 5 %      4 to 5 %      5 %

So where seeds may be bimodal, read the interval of a mean together with the share of seeds that learned: it describes
training runs like the observed ones. No method can do more: if a seed fails with probability q, S seeds show no failure
in (1 − q)^S of cases. With 5 seeds and q = 5 % that is 77 %, and in as many cases "equivalent" is said of a mean that
such failures would move to the margin. Equal means with unlike distributions (80 % of seeds at 1 against all seeds at
0.8) are called different as often as no failing seed is drawn: in 51, 33 and 11 % of cases with 3, 5 and 10 seeds.
"""

from posenc.lab.stats.intervals import (
    LEVEL,
    Answer,
    Array,
    Caution,
    Contrast,
    Interval,
    Share,
    contrasts,
    holm,
    mean_interval,
    p_above,
    paired,
    share,
    within,
)

__all__ = [
    "LEVEL", "Answer", "Array", "Caution", "Contrast", "Interval", "Share", "contrasts",
    "holm", "mean_interval", "p_above", "paired", "share", "within",
]  # fmt: skip
