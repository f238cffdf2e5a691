"""One file an engine: its name in the table of measurements, and the line that serves a model in it.

    COLUMN           of the table
    line(serving)    a `posenc.hf.serving.lines.Line`

A new engine is a file here and its name in `posenc.hf.serving.lines.ENGINES`.
"""
