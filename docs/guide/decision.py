"""The decision page: a default and its exceptions on one screen, a form that answers, and the evidence folded below."""

from __future__ import annotations

from pathlib import PurePosixPath

from guide.methods import escaped, file_of
from posenc.catalogue import CATALOGUE
from posenc.recommend import SOURCES, Answer, Needs, Sentence, recommend
from posenc.recommend.compiled import as_script
from posenc.recommend.rule import SECTIONS
from posenc.recommend.rules_of_thumb import Judgement, rules_of_thumb

RULES = "recommend-rules.js"  # next to docs/assets/recommend.js
SITUATIONS: dict[str, Needs] = {
    "A new language model, 4k in training, 128k wanted": Needs(length=131072),
    "The same, served by vLLM": Needs(length=131072, engine="vllm"),
    "The same, with 8 GiB for the cache": Needs(length=131072, memory=8.0),
    "Llama 3 (8k) to 128k, with fine-tuning": Needs(
        model="checkpoint", train_length=8192, length=131072, tune=True
    ),
    "A 7B model (8k) to 32k on vLLM, without training": Needs(
        model="checkpoint", train_length=8192, length=32768, engine="vllm"
    ),
    "Four times the context in llama.cpp, without training": Needs(
        model="checkpoint", train_length=8192, length=32768, engine="llama.cpp"
    ),
    "Endless streams with a trained model": Needs(
        model="checkpoint", task="streaming", train_length=8192, length=131072
    ),
    "A small research model on one GPU": Needs(kind="research", train_length=1024, length=4096),
    "A code model": Needs(kind="code", train_length=8192, length=65536),
    "An encoder for long documents": Needs(kind="encoder", train_length=8192, length=8192),
    "An image encoder for other resolutions": Needs(kind="vision", train_length=196, length=784),
    "A vision-language model": Needs(kind="vision-language", length=32768),
    "An image generator": Needs(kind="image-generation"),
    "FLUX.1 at 2,048 × 2,048 pixels, without training": Needs(
        model="checkpoint", kind="image-generation", train_length=4096, length=16384
    ),
    "Video": Needs(kind="video"),
    "A video model at twice its frames, without training": Needs(
        model="checkpoint", kind="video", train_length=32760, length=63960
    ),
    "Speech": Needs(kind="speech"),
    "Music": Needs(kind="music"),
    "Proteins": Needs(kind="protein", train_length=1024, length=1024),
    "Addition": Needs(kind="algorithmic", task="arithmetic", train_length=64, length=128),
    "Sorting": Needs(kind="algorithmic", task="sorting", train_length=64, length=128),
}  # fmt: skip
_INTRO = """# Which positional encoding?

**For a new decoder language model: RoPE, in the half layout, unless one of these applies.** Every sentence says what it
rests on: *practice* (which models, with sources), *measured here* (a record of this project, with its scope), *by
definition*, the *engine table*, or that it is *not known*. `posenc recommend` gives the same answers on a terminal, and
with a configuration it uses that model's own facts: `posenc recommend path/to/config.json --length 131072`.
"""
_FORM = """## Ask

<div id="recommend" markdown="0"><p>This form needs JavaScript. Without it: <code>posenc recommend --help</code>, or the
situations below.</p></div>
<script src="assets/recommend-rules.js"></script>
<script src="assets/recommend.js"></script>
"""
_THUMB = """## Thirteen rules of thumb

Notes for learners say "use X if …" thirteen times. Each condition has a verdict on the advice: *true*, *depends* (on
what, it says), *false*, *inconclusive*, or *not tested here*.
"""


def decision() -> str:
    """The page, as Markdown."""
    parts = [_INTRO, _FORM, "## Defaults by situation\n", exceptions(), _situations(), _THUMB, _thumb()]
    return "\n".join(parts).rstrip() + "\n"


def rules_script() -> str:
    """The rules that the form evaluates."""
    return as_script()


def exceptions() -> str:
    """A table of all situations, each with its default."""
    rows = [f"| [{escaped(title)}](#{anchor(title)}) | {escaped(recommend(needs).default)} |"
            for title, needs in SITUATIONS.items()]  # fmt: skip
    return "\n".join(["| situation | default |", "| --- | --- |", *rows]) + "\n"


def anchor(title: str) -> str:
    """The address of a situation on the page."""
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())


def _situations() -> str:
    parts = ["## Situations, with evidence\n"]
    for title, needs in SITUATIONS.items():
        parts += [f'<details id="{anchor(title)}" markdown="1">', f"<summary>{escaped(title)}</summary>", "",
                  *_answer(recommend(needs)), "", "</details>", ""]  # fmt: skip
    return "\n".join(parts)


def _answer(answer: Answer) -> list[str]:
    first, *rest = answer.sentences
    lines = [f"*{escaped(answer.question)}*", "", f"**{escaped(first.text)}** {_basis(first)}", ""]
    for sentence in rest:
        label = SECTIONS[sentence.section]
        if sentence.section == "check" and sentence.text.startswith("posenc "):
            lines.append(f"- {label}: `{sentence.text}`")
        else:
            lines.append(f"- {label}: {escaped(sentence.text)} {_basis(sentence)}")
    return lines


def _basis(sentence: Sentence | Judgement) -> str:
    return f"({sentence.basis}: {', '.join(_linked(key) for key in sentence.sources)})"


def _linked(key: str) -> str:
    if key in SOURCES:
        source = SOURCES[key]
        return f"[{source.title}]({source.url})"
    page = PurePosixPath(key.removeprefix("docs/"))
    name = page.name if page.suffix == "" else page.parent.name if page.name == "table.md" else page.stem
    return f"[{name}]({page})"


def _thumb() -> str:
    parts = []
    for name, judgements in rules_of_thumb().items():
        entry = CATALOGUE[name]
        rows = [f"| {escaped(j.condition)} | {j.verdict} | {escaped(j.text)} {_basis(j)} |" for j in judgements]
        head = f"### Use {name} if\n\n[{escaped(entry.title)}](methods/{file_of(entry)})\n"
        parts.append("\n".join([head, "| you want | verdict | why |", "| --- | --- | --- |", *rows, ""]))
    return "\n".join(parts)
