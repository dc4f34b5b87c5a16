"""The room of a head's pictures: a square as large as the reader's column and window let it be (ui/page.py), margins in
pixels around it, and for a comparison two small squares beside it.
"""

MARGIN = {"l": 104, "r": 68, "t": 44, "b": 104}  # for tokens, a colour bar, and plotly's buttons above titles
SMALL, BETWEEN = 0.42, 0.05  # of the large picture's side: the small ones' side, and what lies beside the large one
WIDE = 1 + BETWEEN + SMALL  # of a comparison, without its margins, in sides of the large picture
TWO = 2.1  # likewise of two large pictures side by side
