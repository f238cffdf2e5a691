"""Where posenc is published: the one place that a publisher fills in; ``nox -s tagged`` refuses a release without."""

from __future__ import annotations

SITE = ""  # address of the guide with a slash at its end; "": not published, commands cite its pages by name
REPOSITORY = ""  # address of the code, for the header of the guide


def page_address(page: str) -> str:
    """A page of this documentation as a command cites it: its address where the guide is published, else its name.

    Args:
        page: the page's file in a clone, or the folder of a recorded run, whose page is its table.

    >>> page_address("docs/extend.md") in ("extend.html of the guide", f"{SITE}extend.html")
    True
    """
    file = page.removeprefix("docs/")
    name = f"{file.removesuffix('.md')}.html" if file.endswith(".md") else f"{file}/table.html"
    return f"{SITE}{name}" if SITE else f"{name} of the guide"
