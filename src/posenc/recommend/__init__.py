"""Which positional encoding for a need, or how to extend a checkpoint: ``posenc recommend`` and the decision page.

    needs -> recommend(needs) -> an answer: sentences in sections, the default first

A sentence names its evidence: practice (which models, with sources), a record of this project, a definition, the
table of engines, or that nothing is known. Rules are data (`rule`), by subject: `new_models`, `checkpoints`,
`any_model`; the page evaluates the same rules in the browser.
"""

from __future__ import annotations

from functools import cache

from posenc.recommend import any_model, checkpoints, new_models
from posenc.recommend.needs import TASKS, Checkpoint, Needs
from posenc.recommend.rule import SECTIONS, Answer, Rule, Sentence, features, matches, words
from posenc.recommend.sources import SOURCES, Source

__all__ = ["Answer", "Checkpoint", "Needs", "Rule", "Sentence", "Source", "SOURCES", "recommend", "rules"]

_QUESTIONS = {"new": "A new {what}", "checkpoint": "A trained {what}"}


@cache
def rules() -> tuple[Rule, ...]:
    """All rules; of the defaults the first that matches counts, of every other section all."""
    return (
        *new_models.RULES, *checkpoints.RULES, *any_model.engine_rules(), *any_model.MEMORY, *any_model.UNKNOWN,
    )  # fmt: skip


def recommend(needs: Needs) -> Answer:
    """What to do, best first.

    >>> recommend(Needs(model="checkpoint", train_length=4096, length=4096)).default[:15]
    'Change nothing:'
    """
    values = features(needs)
    fitting = [rule for rule in rules() if matches(rule.when, values)]
    chosen = [next(rule for rule in fitting if rule.section == "default")]
    chosen += [rule for section in SECTIONS if section != "default" for rule in fitting if rule.section == section]
    return Answer(question_of(needs), tuple(rule.sentence(values) for rule in chosen), values["record"])


def question_of(needs: Needs) -> str:
    """The needs in one line."""
    shown = words(features(needs))
    parts = [_QUESTIONS[needs.model].format_map(shown)]
    is_declared = needs.checkpoint is not None and needs.checkpoint.declared == needs.train_length
    parts.append(
        f"{shown['train_length']} tokens {'declared' if is_declared else 'in training'}, {shown['length']} wanted"
    )
    parts += [TASKS[needs.task]] if needs.task != "general" else []
    parts += ["fine-tuning possible"] if needs.tune else []
    parts += [f"served by {shown['server']}"] if needs.engine != "any" else []
    parts += [f"{shown['memory']} GiB for the cache"] if needs.memory is not None else []
    return "; ".join(parts) + "."
