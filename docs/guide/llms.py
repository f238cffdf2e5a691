"""llms.txt: an index of the site for language models, one line a page (https://llmstxt.org)."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_LEFT_OUT = re.compile(r"^---\n.*?^---$|^```.*?^```[ ]*$|<!--.*?-->|<figure.*?</figure>", re.M | re.S)
_LENGTH = 300  # characters of a description


def llms_txt(config: dict[str, Any], docs: Path) -> str:
    """The index of all pages of the navigation, from their staged Markdown."""
    parts = [f"# {config['site_name']}", f"> {config['site_description']}"]
    for section in config["nav"]:
        for title, content in section.items():
            pages = list(_pages(content))
            if isinstance(content, str):
                title = "Overview"
            lines = [_line(docs / page, page) for page in pages]
            if parts[-1].startswith(f"## {title}\n"):
                parts[-1] += "\n" + "\n".join(lines)
            else:
                parts.append(f"## {title}\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _pages(content: Any) -> Iterator[str]:
    """The pages of a part of the navigation, in order."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict):
        for part in content.values():
            yield from _pages(part)
    else:
        for part in content:
            yield from _pages(part)


def _line(path: Path, page: str) -> str:
    """A link with the page's title, and its first sentences."""
    text = path.read_text(encoding="utf-8")
    title = re.search(r"^# (.+)$", text, re.M)
    description = first_sentences(text)
    link = f"- [{_strip_markup(title[1]) if title else page}]({page.removesuffix('.md')}.html)"
    return f"{link}: {description}" if description else link


def first_sentences(text: str) -> str:
    """The beginning of a page's prose, as far as whole sentences fit.

    >>> first_sentences("# Title\\n\\n![a](b.svg)\\n\\nOne [link](x.md) is *here*. Two.\\n\\nThree.")
    'One link is here. Two.'
    """
    for part in re.split(r"\n{2,}", _LEFT_OUT.sub("", text)):
        prose = _strip_markup(part)
        if prose and not re.match(r"[#|<!:>-]|\*\*?posenc", part.strip()):
            sentences = re.split(r"(?<=[.:?]) (?=[A-Z\"(`])", prose)
            summary = sentences[0]
            for sentence in sentences[1:]:
                if len(summary) + len(sentence) >= _LENGTH:
                    break
                summary += f" {sentence}"
            return summary
    return ""


def _strip_markup(markdown: str) -> str:
    """Markdown without links, emphasis, escapes and tags, in one line."""
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", markdown)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = html.unescape(re.sub(r"<[^>]+>|&#8288;", "", text))
    return " ".join(re.sub(r"\\([\\*_|<\[\]])", r"\1", re.sub(r"(?<!\\)\*+|(?<![\w\\])_+|_+(?!\w)", "", text)).split())
