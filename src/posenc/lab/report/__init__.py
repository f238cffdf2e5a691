"""Reports of measured runs: records → numbers → tables and charts → templates.

numbers, verdicts  cells, contrasts and both verdicts of one run (frozen dataclasses)
summary            what the first lines state, and verdicts.json
claims, literature tests of published claims, and the list of claims
tables             the numbers as Markdown, LaTeX, CSV and a terminal's table
charts, drawing    one function a chart; SVG, PNG, PDF
render, templates  every sentence (templates/text.jinja), the page, and the files of a report
"""
