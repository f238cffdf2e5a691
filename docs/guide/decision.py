"""The decision page: a form that answers for a released model, a pasted config or a new model, and the defaults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from guide.methods import escaped
from guide.models import ReleasedModel, released_models
from posenc.explorer.models import forms
from posenc.explorer.page import numbers_script
from posenc.hf import read_rope
from posenc.hf.plan.plan import Plan, Refused, plan_or_refusal
from posenc.hf.serving.lines import Serving, serving_lines
from posenc.recommend import Needs, recommend, rules
from posenc.recommend.needs import (
    ALGORITHMIC,
    CACHE_A_TOKEN,
    DECODERS,
    GIB,
    KINDS,
    MODELS,
    TASKS,
    checkpoint_of,
    kind_of,
)
from posenc.recommend.rule import ENGINE_NAMES, SECTIONS, SHAPE, Rule, matches
from posenc.recommend.sources import SOURCES

RULES, KNOWN = "recommend-rules.js", "recommend-models.js"  # next to docs/assets/recommend.js
LENGTHS = (32768, 131072, 262144, 1048576)  # tokens that a released model may be asked for
SITUATIONS: dict[str, Needs] = {
    "A new language model, 4k in training, 128k wanted": Needs(length=131072),
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

**For a new decoder language model: RoPE, which every kernel and engine runs and which can be extended later, unless
one of the defaults below applies. To extend a trained model: the recipe that its model card documents, else YaRN.**
Choose your model, paste its config, or describe a new one:

"""
_FORM = """<div id="recommend" markdown="0"><p>This form needs JavaScript. Without it:
<code>posenc recommend --help</code>, or the defaults below.</p></div>
<script src="assets/recommend-rules.js"></script>
<script src="assets/recommend-models.js"></script>
<script src="assets/recommend.js"></script>

`posenc recommend path/to/config.json --length 131072` gives the same answers on a terminal. Each sentence has its kind
of evidence: *practice* (what released models do, with sources), *measured here* (a recorded run, with its scope), *by
definition*, the *engine table*, or *not known*.

"""
_THUMB = "[Thirteen common rules](rules-of-thumb.md), “use X if …”, are checked one by one.\n"


def decision() -> str:
    """The page, as Markdown."""
    parts = [_INTRO + _FORM, "## Defaults by situation\n", defaults(), _THUMB]
    return "\n".join(parts).rstrip() + "\n"


def defaults() -> str:
    """A table of all situations, each with its default; the form makes links of the titles, which fill it in."""
    rows = [f'| <span data-needs="{escape(address(needs))}">{escaped(title)}</span> | '
            f"{escaped(recommend(needs).default)} |" for title, needs in SITUATIONS.items()]  # fmt: skip
    return "\n".join(["| situation | default |", "| --- | --- |", *rows]) + "\n"


def address(needs: Needs) -> str:
    """The state of the form for these needs, as its address has it."""
    names = ("model", "kind", "task", "train_length", "length", "engine")
    state = {name: getattr(needs, name) for name in names}
    state |= {"memory": f"{needs.memory:g}"} if needs.memory is not None else {}
    return urlencode(state | ({"tune": "true"} if needs.tune else {}))


_WITHOUT_CONFIG = {  # what features are where no configuration is read
    "given": False, "plan": "unknown", "documented": False, "noted": False, "window": None, "windowed": "No",
    "declares": False, "tuning": "none", "turns": False,
}  # fmt: skip


def compiled() -> dict[str, Any]:
    """Rules, sources, and the words and sizes that their features need."""
    matching = [asdict(rule) for rule in rules() if _may_match(rule)]
    cited = {key for rule in matching for key in rule["sources"]}
    return {
        "rules": matching, "sections": SECTIONS, "kinds": KINDS, "tasks": TASKS, "engines": ENGINE_NAMES,
        "models": MODELS, "algorithmic": ALGORITHMIC, "decoders": DECODERS, "cacheAToken": CACHE_A_TOKEN, "gib": GIB,
        "shape": SHAPE, "withoutConfig": _WITHOUT_CONFIG,
        "sources": {key: {"title": s.title, "where": s.where, "url": s.url} for key, s in SOURCES.items()
                    if key in cited},
    }  # fmt: skip


def rules_script() -> str:
    """The rules that the form evaluates: a classic script, because a page that was opened from disk may not fetch."""
    text = json.dumps(compiled(), ensure_ascii=False, separators=(",", ":"))
    return f"window.posencRules = {text.replace('<', chr(92) + 'u003c')};\n"


def _may_match(rule: Rule) -> bool:
    """Whether a rule can hold where no configuration was given."""
    return all(matches({name: rule.when[name]}, _WITHOUT_CONFIG) for name in _WITHOUT_CONFIG if name in rule.when)


def models_script() -> str:
    """The answers for released models, and the explorer's reader of a pasted config."""
    data = {**_answers(), "forms": forms()}
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return f"{{\n{numbers_script()}\nwindow.posencModels = {{...{text}, numbers}};\n}}\n"


def _answers() -> dict[str, Any]:
    """By model, length and whether it may be fine-tuned; texts that many of them share are indices of a list."""
    texts: dict[Any, int] = {}
    models = {
        model.model: {"declared": model.declared, "answers": dict(_answers_for(model, texts))}
        for model in released_models()
        if model.declared and model.causal
    }
    return {"lengths": LENGTHS, "models": models, "texts": list(texts)}


def _answers_for(model: ReleasedModel, texts: dict[Any, int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The answers of `recommend`, with the command that applies it and the serve commands."""

    def index(*text: Any) -> int:
        return texts.setdefault(text, len(texts))

    config = read_rope(model.config)
    checkpoint, kind = checkpoint_of(config, Path(model.model)), kind_of(config)
    trained = checkpoint.declared or LENGTHS[0]
    for length in LENGTHS:
        plan = plan_or_refusal(config.facts, length) if length > trained else None
        change = plan.method if isinstance(plan, Plan) else None
        served = plan.after if isinstance(plan, Plan) and plan.after is not None else config.facts
        folder = "DIR" if change else model.model
        lines = () if isinstance(plan, Refused) else serving_lines(Serving(served, length, folder))
        shared = {
            "command": index(plan.command(model.model)) if isinstance(plan, Plan) and change else None,
            "serve": [index(line.name, line.command, line.text) for line in lines if line.command],
        }
        for tune in (False, True):
            needs = Needs("checkpoint", kind, "general", trained, length, tune=tune, checkpoint=checkpoint)
            sentences = [index(s.section, s.text, s.basis, tuple(s.sources)) for s in recommend(needs).sentences]
            yield f"{length}{'+tune' if tune else ''}", {"sentences": sentences, **shared}
