"""Whether an engine computes a model's positions correctly: test configurations, expected values and the comparison.

cases                 configurations of every rope type, key and spelling
transformers_rotary   frequencies and gain that transformers' own code computes for one
reference_formulas    the same by the formulas of each rope type's authors
adapters              one file an engine: runs the engine's code on a configuration
check                 every adapter on every case, compared with the expected values
remedies              changes of keys and flags that may make a wrong case right
probe                 whether a running server applies its model's scaling

The folder `vectors/` of the repository has the answers as numbers, for tests of engines.
"""
