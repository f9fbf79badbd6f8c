"""Tables of what scripts measured in several stores in turns: medians of the first one, and of the others' ratios to it."""

import statistics


def read(path):
    """{(what..., store): seconds of each round}, of lines "WHAT... STORE BEGAN ENDED"."""
    took = {}
    for line in open(path):
        *what, began, ended = line.split()
        took.setdefault(tuple(what), []).append(float(ended) - float(began))
    return took


def head(first, stores):
    """The first lines of a table: columns of its own, and one for each store but the first."""
    print("| " + " | ".join(first + stores[1:]) + " |")
    print("|---" * (len(first) + len(stores) - 1) + "|")


def cells(took, what, stores):
    """Of each store but the first: the median of how much faster it was, with the least and the most."""
    for store in stores[1:]:
        if (*what, store) not in took:
            yield "refused"
            continue
        ratios = [base / of for of, base in zip(took[*what, store], took[*what, stores[0]])]
        yield f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
