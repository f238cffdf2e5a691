"""The bench that measures whether engines compute a model's positions correctly. README.md says how to run it.

cases                 configurations of every rope type, key and spelling
transformers_rotary   frequencies and gain that transformers' own code computes for one
reference_formulas    the same by the formulas of each rope type's authors
adapters              one file an engine: runs the engine's code on a configuration
check                 every adapter on every case, compared with the expected values
checkpoint            one config of yours in an installed engine
remedies              changes of keys and flags that may make a wrong case right
records               what was measured, as JSON lines
table                 makes the table that posenc carries from the records
lines                 commands that posenc prints, run through engines' own parsers and model classes

plug_ins, draft_heads, trainers and probe_llama_cpp are routes of their own.
"""
