"""Reports of measured runs: records → numbers → tables, charts and sentences → one page.

numbers, verdicts  cells, contrasts and both verdicts of one run (frozen dataclasses)
text               every sentence, and verdicts.json
tables, charts     the numbers as tables for page, Markdown and terminal; Altair charts
page               report.html, table.md, verdicts.json
"""
