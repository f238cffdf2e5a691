"""Rules on a config: each a function from what the file says to a finding or nothing, with its thread.

    case          what a rule is given, and what corrections are made of
    blocks        lengths, scalings, gains and spelling of one rotation
    keys          keys that nothing reads, that another family reads, that are misspelt
    layers        kinds of layers, windows, which layers rotate
    releases      bases, scalings and shares of published models

A rule is one function: write it into the file of its subject, with its source in the docstring, put it into the list at
the end of the file, and a line into the table of tests/hf/rules.
"""

from __future__ import annotations

from posenc.hf.config.facts import ModelFacts
from posenc.hf.config.non_rotary import is_posenc_config
from posenc.hf.config.rope_keys import ALL
from posenc.hf.findings import Finding
from posenc.hf.rules import blocks, keys, layers
from posenc.hf.rules.case import Read, case_of, has_remote_code, with_keys
from posenc.hf.sources.load import Config


def findings_of(facts: ModelFacts) -> tuple[Finding, ...]:
    """All findings on a configuration that could be read.

    Of another program's file, whose keys were translated, only what the numbers decide by themselves.
    """
    if is_posenc_config(facts.config):
        return facts.program_findings
    rope_blocks = [block.without(facts.reading.ignore) for block in facts.blocks]
    findings = [finding for rule in (*keys.OF_CONFIGS, *layers.OF_CONFIGS) if (finding := rule(facts)) is not None]
    for block in rope_blocks:
        rope = facts.as_read[block.kind]
        if rope is not None:
            case = case_of(facts, block, rope)
            where = "" if block.kind == ALL else f"{block.kind}: "
            of_rules = [each for rule in (*blocks.OF_BLOCKS, *keys.OF_BLOCKS) if (each := rule(case)) is not None]
            findings += [finding._replace(text=where + finding.text) for finding in of_rules]
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


def correction_of(read: Read, finding: Finding) -> tuple[Config | None, bool]:
    """Keys of the text part to write, and whether they are certain; (None, False) where there are none.

    A correction is accepted only if a second reading no longer reports the finding, and no other alarm.
    """
    if has_remote_code(read.config):  # its code may read every key that seems wrong or unread here
        return None, False
    fix, certain = blocks.FIXES.get(finding.name, (None, False))
    for keys_to_write, sure in (
        (finding.corrected, finding.certain),
        (fix(read) if fix is not None else None, certain),
    ):
        if keys_to_write and _resolves(read, keys_to_write, finding):
            return keys_to_write, sure
    return None, False


def _resolves(read: Read, keys_to_write: Config, finding: Finding) -> bool:
    """Whether with these keys the finding is gone, and no new alarm has come."""
    try:
        again = read.like(with_keys(read, keys_to_write))
    except ValueError:
        return False
    after = {other.name for other in again.findings if other.alarms or other.name == finding.name}
    return after <= {other.name for other in read.findings if other.alarms} - {finding.name}
