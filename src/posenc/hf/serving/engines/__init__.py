"""One file an engine: its name in the table of measurements, and the line that serves a model in it.

    COLUMN           of the table
    VERSION          that was measured or read
    line(serving)    a `posenc.hf.serving.lines.Line`
    FOR_PARTS        true: it has a line, unless it is named, for models with more parts than a text model alone

A new engine is a file here, which gives it its name: `posenc.hf.serving.lines` lists the folder.
"""
