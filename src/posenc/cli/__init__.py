"""The commands of ``posenc`` outside the laboratory: functions of the parsed arguments that return an exit code.

`posenc_cli`, which loads them, has the entry point, the arguments and the help.
"""

from posenc_cli import main as main
