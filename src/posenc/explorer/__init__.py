"""The explorer: one HTML file with sliders that show how positions affect attention.

``posenc explore`` writes it. static/numbers computes in the page what posenc computes in Python, by the same names and
options; static/views draws. Both are plain scripts of one page, without a build, that ask no network for anything.
Needs torch alone.
"""

from posenc.explorer.page import page as page
