"""posenc cost: time, memory and parameters of encodings, measured side by side.

timing     calls in interleaved rounds, medians, intervals;  memory: what one call holds
passes     the calls: a layer reads, learns or decodes, a model reads or learns
estimate   what a longer text will need, and whether that is there
measure    every pass at every length;  costs: what was measured, as a table and files
"""
