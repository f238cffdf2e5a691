"""The rules as data for a page that answers without a server: docs/assets/recommend.js evaluates them.

The page asks the same questions, builds the same features except the facts of a configuration, and must give the same
sentences; a test in a browser holds it against `recommend`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from posenc.recommend import SOURCES, rules
from posenc.recommend.needs import ALGORITHMIC, CACHE_A_TOKEN, DECODERS, GIB, KINDS, MODELS, TASKS
from posenc.recommend.rule import ENGINE_NAMES, SECTIONS, Rule, matches

_WITHOUT_CONFIG = {  # what features are where no configuration is read
    "given": False, "plan": "unknown", "documented": False, "noted": False, "window": None, "windowed": "No",
    "model_type": "", "declares": False, "tuning": "none", "turns": False,
}  # fmt: skip


def compiled() -> dict[str, Any]:
    """Rules, sources, and the words and sizes that their features need."""
    matching = [asdict(rule) for rule in rules() if _may_match(rule)]
    cited = {key for rule in matching for key in rule["sources"]}
    return {
        "rules": matching, "sections": SECTIONS, "kinds": KINDS, "tasks": TASKS, "engines": ENGINE_NAMES,
        "models": MODELS, "algorithmic": ALGORITHMIC, "decoders": DECODERS, "cacheAToken": CACHE_A_TOKEN, "gib": GIB,
        "sources": {key: {"title": s.title, "where": s.where, "url": s.url} for key, s in SOURCES.items()
                    if key in cited},
    }  # fmt: skip


def as_script() -> str:
    """A classic script, because a page that was opened from disk may not fetch."""
    text = json.dumps(compiled(), ensure_ascii=False, separators=(",", ":"))
    return f"window.posencRules = {text.replace('<', chr(92) + 'u003c')};\n"


def _may_match(rule: Rule) -> bool:
    """Whether a rule can hold where no configuration was given."""
    return all(matches({name: rule.when[name]}, _WITHOUT_CONFIG) for name in _WITHOUT_CONFIG if name in rule.when)
