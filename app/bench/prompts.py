"""A benchmark's prompts, by kind of text: plain data for any instruction model. Knows no model.

Questions and code are about Python's standard library, which is all that the bundled pair knows. The other kinds differ
in how much of the reply repeats the prompt, which decides whether lookup drafters pay.
"""

from __future__ import annotations

Turns = tuple[str, ...]  # turns of user and model, alternating; the last is the user's and is to be answered

TIDES = """\
Most coasts see two high waters and two low waters in a little more than a day. The cause is the pull of the moon, which is stronger on the \
side of the earth that faces it than on the far side. The difference stretches the oceans along the line between the two bodies, so that \
there are two bulges: one below the moon, and one opposite. The earth turns beneath them, and each place passes through both. Because the \
moon moves on in its orbit in the meantime, a place needs about fifty minutes more than a day to meet the same bulge again, and that is why \
high water comes later every day.

The sun raises tides as well. It is far heavier than the moon but also far more distant, and what counts is how much the pull changes across \
the earth, not how strong it is. That makes the sun's share a little less than half of the moon's. At new moon and at full moon the two work \
along the same line, and the range between high and low water is large: these are spring tides, which have nothing to do with the season. A \
week later the sun and the moon pull at right angles, and the range is small: these are neap tides.

How high the water really rises depends on the shape of the coast. In the middle of an ocean the tide is often less than a metre. A bay that \
narrows like a funnel piles the water up, and where the time that the water needs to slosh in and out of a bay is close to the time between \
two tides, the bay resonates, as a bathtub does when it is rocked in the right rhythm. The largest tides of the world come about in this way. \
In nearly closed seas, on the other hand, the tide can hardly be seen, and wind and air pressure change the level more than the moon does."""

LIBRARY = """\
The town library was founded by a printer who had no children and a great many books. For thirty years it stood in two rooms above his shop, \
open on three evenings a week, and anyone who could write a name in the register was allowed to borrow one volume at a time. When the printer \
died the town inherited the shelves, the debts and a cat, and the council voted by a majority of one to keep all three.

A proper building followed twelve years later. It was paid for by a lottery, a bequest and the sale of a field, and it was planned for twenty \
thousand books, which was thought to be more than the town would ever own. The reading room faced north, so that the light would be even. The \
stacks were of iron, because the old shop had twice come close to burning down. Children were let in from the first day, against the advice \
of the school inspector, and within a year they made up a third of all readers.

The flood reached the building in its fortieth winter. The water stood in the cellar for nine days, and with it the newspapers of a whole \
century. The librarian and some sixty volunteers carried the wet volumes to the cold store of the slaughterhouse, where they were frozen \
before mould could set in, and over the next four years they were dried a few at a time. Nine in ten could be saved. Since then nothing \
that cannot be replaced has been kept below the ground floor.

Today the library holds eighty thousand books and lends about twice that number each year. A third of the loans are films, music and games. \
The reading room is full on most afternoons, though often nobody in it is reading on paper. The register of names is on display in the hall, \
open at the page where the printer wrote his own name first, so that he, too, might borrow one volume at a time."""

AVERAGE = """\
def average(numbers):
    total = 0
    count = 0
    for number in numbers:
        total = total + number
        count = count + 1
    if count == 0:
        return 0
    return total / count


def largest(numbers):
    result = None
    for number in numbers:
        if result is None or number > result:
            result = number
    return result"""

LETTER = """\
Dear neighbours, on saturday we will clean the stairs and the yard. Please bring gloves, a broom and, if you have one, a bucket. We begin at \
nine oclock in front of the house and hope to be done by noon. Afterwards there will be soup for everybody. Who cannot come may bake a cake \
instead. Children are welcome to."""

KINDS: dict[str, tuple[Turns, ...]] = {
    "question": (
        ("What does os.path.join do?",),
        ("Show me the documentation of dataclasses.dataclass.",),
    ),
    "code": (
        ("How do I call itertools.groupby?",),
        ("How do I call functools.reduce?",),
    ),
    "edit": (
        (
            "Rename the variable `number` to `value` everywhere in this code, and change nothing else. Give the "
            f"whole code.\n\n{AVERAGE}",
        ),
        (f"Correct the spelling of this letter, and change nothing else. Give the whole letter.\n\n{LETTER}",),
    ),
    "summary": (
        (f"Sum up this text in three sentences.\n\n{TIDES}",),
        (f"Sum up this text in three sentences.\n\n{LIBRARY}",),
    ),
    "turns": (
        (
            "What does sorted do?",
            "Return a new list containing all items from the iterable in ascending order.",
            "And what does list.sort do?",
            "Sort the list in ascending order and return None.",
            "What does heapq.merge do?",
        ),
        (
            "What is collections.deque?",
            "A list-like sequence optimized for data accesses near its endpoints.",
            "Explain collections.Counter.",
        ),
    ),
    "prose": (
        ("Write the beginning of a story about a lighthouse keeper who finds a letter in a bottle.",),
        ("Describe an autumn morning at a railway station in a small town.",),
    ),
}
