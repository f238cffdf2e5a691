"""Arrays in; intervals, contrasts, equivalence out: the statistical procedure of all tables, and how often it errs.

**Sample.** Values of a row are (seeds, items). Items of one document are averaged first: documents and seeds are what
is sampled, crossed, and both are random (`intervals`). A generated sequence is a document of its own. No scatter is
pooled over encodings, so that one which fails to learn hides no other.

**Contrasts.** Planned before any number is seen: every row against two baselines, RoPE under a sliding window of the
trained length and ALiBi, at the longest length, on the seeds and documents that both have. Each has a 95 % interval of
its own, degrees of freedom, and a p-value adjusted by Holm over all contrasts of the table (`contrasts`). Each encoding
against its own window is a second family, adjusted by itself. A difference is claimed where the adjusted p-value is at
most 0.05 and there is no caution (`Contrast.claimed`).

**Equivalence.** "Holds" is two one-sided tests at 5 % against the metric's margin: the 90 % interval lies within it
(`equivalent`). There is a change where that interval lies beyond the margin. This is row by row, not adjusted.

**Seeds of two kinds.** Some encodings learn a task from some seeds alone; then a mean lies near 0 or near 1 by luck. If
a table has a row whose seeds fall into two kinds, and a contrast is about as large as the gap between them and in the
same place, it has a caution, unless ranks of seeds alone (Mann and Whitney, exact, times the number of contrasts) tell
both sides apart; for 20 to 80 contrasts that takes seven seeds. The share of seeds that learnt has the exact interval
of Clopper and Pearson (`share`): with 3 of 3 seeds the true share may be 0.29, with 5 of 5 0.48, with 10 of 10 0.69.

**How often it errs**, by simulation (tests/lab/test_stats_simulated.py):

    the 95 % interval of a mean holds it             3 seeds       5 seeds       10 seeds
      normal seeds, 24 to 200 documents              94 to 99 %    94 to 98 %    94 to 97 %
      seeds of two kinds, 50 % learn                 76 %          94 %          94 %
      seeds of two kinds, 80 or 20 % learn           48 %          67 %          88 %
      seeds of two kinds, 90 % learn                 27 %          41 %          65 %
    a table of 12 equal encodings has a false claim
      normal seeds                                   0 to 1 %      0 to 2 %      0 to 4 %
      seeds of two kinds, 20 to 90 % learn           0 %           0 %           0 to 2 %
      the same by adjusted p-values alone            0 to 31 %     0 to 2 %      0 to 4 %
    a change as large as the margin
      is called equivalent, normal seeds             4 to 5 %      4 to 5 %      5 %

So where seeds may be of two kinds, an interval of a mean is to be read with the share that learnt: it speaks of
trainings like those that were seen. No method can do more: of seeds that fail with a chance q, S show none in (1 − q)^S
of cases. With 5 seeds and q = 5 % that is 77 %, and in as many cases "holds" is said of a mean that such failures would
take to the margin. Equal means of unlike kinds (80 % of seeds at 1 against all seeds at 0.8) are called different as
often as no failing seed is drawn: in 51, 33 and 11 % of cases with 3, 5 and 10 seeds.
"""

from posenc.lab.stats.intervals import Array, Contrast, Interval, by_document, mean_interval, paired
from posenc.lab.stats.procedure import Answer, Share, contrasts, equivalent, holm, share, within
from posenc.lab.stats.ranks import Correlation, rank_correlation

__all__ = [
    "Answer", "Array", "Contrast", "Correlation", "Interval", "Share", "by_document", "contrasts", "equivalent", "holm",
    "mean_interval", "paired", "rank_correlation", "share", "within",
]  # fmt: skip
