"""The commands of ``posenc`` that need torch alone: list, info and explain; each module has ``run``.

`posenc_cli`, which loads them, has the entry point, the arguments and the help.
"""

from posenc_cli import main as main
