"""Texts that show something, each with what to look for. English, as the models that ship read it."""

from i18n import N_

EXAMPLES = {
    N_("A phrase that comes again"): (
        "Peter blew his silver whistle twice, and Peter blew his silver whistle twice, "  # not shown so
        "and Peter blew his silver"
    ),
    N_("A pronoun"): (
        "The princess gave the old woman her bread, because she was hungry and had walked all day."  # not shown so
    ),
    N_("A list"): (
        "In the basket there were apples, pears, plums, cherries, nuts, a cake and a bottle of milk."  # not shown so
    ),
    N_("Two lines of very different length"): (
        "Once upon a time\n"  # not shown so
        "The little girl ran down the hill, over the bridge and through the wood, until she came to the old mill."
    ),
}
FIRST = next(iter(EXAMPLES.values()))
