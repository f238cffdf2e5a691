"""Whether an engine computes a model's positions right: configurations to ask it with, and what the answer is.

cases    configurations of every rope type, key and spelling
theirs   what transformers' own code makes of one

The folder `vectors/` of the repository has the answers as numbers, for tests of engines.
"""
