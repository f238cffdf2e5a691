"""One file a trainer: what it is to be told of a model's rotation and length, for ``posenc serve MODEL --for NAME``.

    line(serving)    a `posenc.hf.serving.lines.Line`, whose command is the settings, in the trainer's own names; a
                     ValueError for what they cannot say
    VERSION          of the trainer
    INSTEAD          what to do where they cannot say it, if there is something

Settings in braces are YAML of one line. A new trainer is a file here: `posenc.hf.serving.lines` lists the folder.
"""
