"""Rules on a config: each a function from what the file says to the findings of one subject, with their threads.

    case          what a rule is given: one kind of layers, and the table of published models
    blocks        base, scaling, lengths, gains and spelling of one rotation
    keys          keys that nothing reads, that another family reads, that are misspelt; layers, windows

A rule is one function: write it into the file of its subject, with its source in the docstring, put it into the list at
the end of the file, and a line into the table of tests/hf/doctor/planted.py.
"""

from __future__ import annotations

from posenc.hf.config.facts import ModelFacts
from posenc.hf.config.rope_keys import ALL
from posenc.hf.config.text_config import is_posenc_config
from posenc.hf.findings import Finding
from posenc.hf.rules import blocks, keys
from posenc.hf.rules.case import case_of


def findings_of(facts: ModelFacts) -> tuple[Finding, ...]:
    """All findings on a configuration that could be read.

    Of another program's file, whose keys were translated, only what the numbers decide by themselves.
    """
    if is_posenc_config(facts.config):
        return facts.program_findings
    ignore = facts.reading.ignore
    rope_blocks = [block.without(ignore) if ignore else block for block in facts.blocks]
    findings = [finding for rule in keys.OF_CONFIGS for finding in rule(facts)]
    for block in rope_blocks:
        rope = facts.as_read[block.kind]
        if rope is not None:
            case = case_of(facts, block, rope)
            where = "" if block.kind == ALL else f"{block.kind}: "
            of_scalings = () if case.rope_type == "default" else blocks.OF_SCALINGS
            for rule in (*blocks.RULES, *of_scalings, *keys.OF_BLOCKS):
                findings += [finding._replace(text=where + finding.text) for finding in rule(case)]
    findings += keys.unread_keys(facts, rope_blocks)
    if facts.program:
        findings = [finding for finding in findings if finding.alarms and finding.name not in _OF_TRANSFORMERS]
    unique = {(finding.name, finding.key, finding.text): finding for finding in findings}
    return (*facts.program_findings, *unique.values())


_OF_TRANSFORMERS = {  # findings on what transformers does with a key, which no other program's file has
    "version-5-spelling", "key-ignored", "share-ignored", "sections-ignored", "base-of-sliding-ignored",
    "layout-key-ignored", "alpha-ignored", "original-length-ignored", "key-of-another-family", "key-misspelt",
    "layer-orders-differ", "original-length-missing", "original-length-declared", "scaling-lost",
}  # fmt: skip
