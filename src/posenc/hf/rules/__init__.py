"""Rules on a config: each a function from what the file says to a finding or nothing, with its thread.

    case          what a rule is given, and the lists that rules are put into
    blocks        lengths, scalings, gains and spelling of one rotation
    keys          keys that nothing reads, that another family reads, that are misspelt
    layers        kinds of layers, windows, which layers rotate
    releases      bases, scalings and shares of published models
    corrections   the keys that resolve a finding

A rule is one function: write it into the file of its subject under ``of_block`` or ``of_config``, with its source in
the docstring, and a line into the table of tests/hf/rules.
"""

from __future__ import annotations

from posenc.hf.config.facts import ModelFacts
from posenc.hf.config.posenc_config import is_posenc_config
from posenc.hf.config.rope_block import ALL
from posenc.hf.findings import Finding
from posenc.hf.rules import blocks as blocks
from posenc.hf.rules import keys, layers
from posenc.hf.rules.case import OF_BLOCKS, OF_CONFIGS, Case

_LISTS = (blocks, keys, layers)  # which put their rules into the lists as they are imported


def findings_of(facts: ModelFacts) -> tuple[Finding, ...]:
    """All findings on a configuration that could be read.

    Of another program's file, whose keys were translated, only what the numbers decide by themselves.
    """
    if is_posenc_config(facts.config):
        return facts.program_findings
    rope_blocks = [block.without(facts.reading.ignore) for block in facts.blocks]
    found = [finding for rule in OF_CONFIGS if (finding := rule(facts)) is not None]
    for block in rope_blocks:
        rope = facts.as_read[block.kind]
        if rope is not None:
            case = Case(facts, block, rope)
            where = "" if block.kind == ALL else f"{block.kind}: "
            of_rules = [finding for rule in OF_BLOCKS if (finding := rule(case)) is not None]
            found += [finding._replace(text=where + finding.text) for finding in of_rules]
    found += keys.unread_keys(facts, rope_blocks)
    if facts.program:
        found = [finding for finding in found if finding.alarms and finding.name not in _OF_TRANSFORMERS]
    unique = {(finding.name, finding.key, finding.text): finding for finding in found}
    return (*facts.program_findings, *unique.values())


_OF_TRANSFORMERS = {  # findings on what transformers does with a key, which no other program's file has
    "version-5-spelling", "key-ignored", "share-ignored", "sections-ignored", "base-of-sliding-ignored",
    "layout-key-ignored", "blocks-of-kinds-ignored", "alpha-ignored", "truncate-ignored", "original-length-ignored",
    "su-fails", "head-width-differs", "key-of-another-family", "key-misspelt", "layer-orders-differ",
    "original-length-missing", "original-length-declared", "scaling-lost",
}  # fmt: skip
