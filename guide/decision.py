"""The decision guide: the answers of `posenc recommend` to common needs, and thirteen rules of thumb with evidence."""

from __future__ import annotations

from guide.methods import escaped, file_of, linked
from posenc.catalogue import CATALOGUE
from posenc.recommend import Choice, Needs, Reason, recommend
from posenc.recommend.thirteen import THIRTEEN, judged

LONGER = 8  # times the trained length, in what is asked here
TREE: dict[str, dict[str, Needs]] = {
    "A new model for text": {
        "read at the length that it is trained at": Needs(),
        f"read at {LONGER} times that length": Needs(length=LONGER * 4096),
        f"read at {LONGER} times that length, served by vLLM, SGLang or llama.cpp": Needs(
            length=LONGER * 4096, engine="vllm"
        ),
        "that must find things far back": Needs(task="retrieval", length=LONGER * 4096),
        "that must count": Needs(task="counting", length=LONGER * 4096),
        "that must keep a state": Needs(task="state", length=LONGER * 4096),
        "that must copy": Needs(task="copying", length=LONGER * 4096),
        "that must calculate": Needs(task="arithmetic", length=LONGER * 4096),
    },
    "A new model for pictures": {"of images": Needs(task="images"), "of video": Needs(task="video")},
    "A trained model with RoPE": {
        "whose length is enough": Needs(model="checkpoint"),
        f"to read {LONGER} times its length, untrained": Needs(model="checkpoint", length=LONGER * 4096),
        f"to read {LONGER} times its length, with a short training": Needs(
            model="checkpoint", length=LONGER * 4096, tune=True
        ),
    },
}
_INTRO = """# Which encoding?

Every sentence here is followed by the row that it rests on, and by how sure it is: *by definition* (a fact of the
catalogue), *measured, significant* (a planned contrast of a recorded comparison, adjusted for all of its table),
*measured, not significant*, *as recorded* (a number of a table, beside which nothing is claimed), *not measured*.
The page is made from the rows: other results make another page. `posenc recommend` asks the same on a terminal, for
your lengths, your task and your engine.

Small models decide for their size, their data and their budget. Where nothing decides, it says so.
"""


def decision() -> str:
    """The page, as Markdown."""
    return "\n\n".join([_INTRO, _tree(), _thirteen()]) + "\n"


def _tree() -> str:
    parts = ["## By need"]
    for title, branches in TREE.items():
        lines = [f"### {title}"]
        for words, needs in branches.items():
            answer = recommend(needs)
            lines.append(f"- **{words}**")
            lines += [f"    - {_choice(choice)}" for choice in answer.choices]
            lines += [f"    - caveat: {_reason(remark)}" for remark in answer.remarks]
        parts.append(lines[0] + "\n\n" + "\n".join(lines[1:]))
    return "\n\n".join(parts)


def _choice(choice: Choice) -> str:
    reasons = " ".join(_reason(reason, choice.spec) for reason in choice.reasons)
    return f"`{choice.spec}`, {escaped(choice.words)}. {reasons}"


def _reason(reason: Reason, name: str = "") -> str:
    """A sentence and its row: of a method, where its own page shows it."""
    row = reason.row.removeprefix("docs/")
    if row.startswith("results/") and name in CATALOGUE:
        row = f"methods/{name}.md#measured-here"
    elif row.startswith("methods/"):
        row += "#facts"
    return f"{linked(escaped(reason.words))} ([{reason.sure}]({row}))"


def _thirteen() -> str:
    parts = [
        "## Thirteen pieces of advice\n\nNotes of people who were learning say \"use X if\" thirteen times. Their "
        "conditions, and what the rows answer: *as stated* where the catalogue's words are the answer, *open* where "
        "nothing that was measured decides."
    ]  # fmt: skip
    for advice in THIRTEEN:
        entry = CATALOGUE[advice.name]
        rows = "\n".join(
            f"| {escaped(words)} | {verdict} | {_reason(reason, advice.name)} |"
            for words, verdict, reason in judged(advice)
        )
        head = f"### Use {advice.name} if\n\n[{escaped(entry.title)}](methods/{file_of(entry)})"
        parts.append(f"{head}\n\n| if you want | here | because |\n| --- | --- | --- |\n{rows}")
    return "\n\n".join(parts)
