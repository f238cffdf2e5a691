"""What each layer of a model does with positions: as facts, in words, and as encodings.

layer_attention   each layer as posenc's encodings
report            `explain`, the report of `posenc explain`, and the layer pattern in words
"""
