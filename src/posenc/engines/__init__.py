"""Whether an engine computes a model's positions correctly.

probe        whether a running server applies its model's scaling
endpoint     the server's answers

The measurements are made by the bench in the repository's folder benchmarks/engines; the folder examples/vectors
has the right answers as numbers, for tests of engines.
"""
