"""Texts that show something, each with what to look for."""

EXAMPLES = {
    "A phrase that comes again": (
        "Peter blew his silver whistle twice, and Peter blew his silver whistle twice, and Peter blew his silver"
    ),
    "A pronoun": "The princess gave the old woman her bread, because she was hungry and had walked all day.",
    "A list": "In the basket there were apples, pears, plums, cherries, nuts, a cake and a bottle of milk.",
    "Two lines of very different length": (
        "Once upon a time\n"
        "The little girl ran down the hill, over the bridge and through the wood, until she came to the old mill."
    ),
}
FIRST = next(iter(EXAMPLES.values()))
