"""``python -m posenc``: the same as the command ``posenc``."""

from posenc_cli import main

if __name__ == "__main__":
    main()
