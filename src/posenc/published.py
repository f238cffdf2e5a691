"""Where posenc is published: the one place that a publisher fills in; ``nox -s tagged`` refuses a release without."""

from __future__ import annotations

SITE = ""  # address of the guide with a slash at its end; "": not published, commands cite files of the clone
REPOSITORY = ""  # address of the code, for the header of the guide


def page_address(page: str) -> str:
    """A page of this documentation as a command cites it: its address where the guide is published, else its file.

    >>> page_address("docs/extend.md") in ("docs/extend.md", f"{SITE}extend.html")
    True
    """
    return f"{SITE}{page.removeprefix('docs/').removesuffix('.md')}.html" if SITE and page.endswith(".md") else page
