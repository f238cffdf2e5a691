"""One file an engine: its name in the table of measurements, and the line that serves a model in it.

    COLUMN           of the table
    line(serving)    a `posenc.hf.serving.lines.Line`
    serves(serving)  whether it is for models of this kind; missing: it is for all

A new engine is a file here, which gives it its name: `posenc.hf.serving.lines` lists the folder.
"""
