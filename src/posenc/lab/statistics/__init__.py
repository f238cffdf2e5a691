"""Which differences are real: intervals, tests of pairs, ranks."""
