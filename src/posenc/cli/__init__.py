"""The commands of ``posenc`` outside the laboratory: one module each, with a function ``run``.

`posenc_cli`, which loads them, has the entry point, the arguments and the help.
"""

from posenc_cli import main as main
