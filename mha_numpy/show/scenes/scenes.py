"""The six scenes: what is on stage in each, and its sentences, forward and back.

A part of a row is a slice or a sign. "q i" is row i of q: i is the word that looks, j each word
that is looked at, b the one that it looks at most, f each feature. "scores i j" is one cell;
"heads* i" are the rows of all heads. A column is named after the array whose columns it has, or
has its own name. A working is arithmetic between the numbers of a row, which a page writes.

The sentences come with conditions: the page shows every one whose conditions hold. A fact is a
condition, too: it holds where there is something to say. {} holds a fact about the numbers,
*a term*, `a name`. The page and `still` fill them in alike.
"""

from dataclasses import dataclass
from typing import TypeAlias

Says: TypeAlias = tuple[tuple[str, str], ...]  # conditions, "!" for not; a sentence
WORKINGS = {"sum": "\u2192", "asked": "", "power": "\u2192"}  # what a picture has instead


@dataclass(frozen=True)
class Row:
    """A row of a table, or as many rows as there are words."""

    each: str  # i, k (the key at place i), b; queries, keys, tokens, features: all; line, sum: none
    parts: tuple[str, ...] = ()
    role: str = ""  # what the row is to its word


@dataclass(frozen=True)
class Layout:
    """A table on the stage: rows with words beside them."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    caption: str = ""


@dataclass(frozen=True)
class Scene:
    """One thing on stage."""

    id: str
    name: str
    title: str
    back: str  # its title on the way back
    arrays: tuple[str, ...]  # what it shows first; a story without them leaves it out
    says: Says
    says_back: Says
    one: tuple[Layout, ...]  # for the word that looks
    all: tuple[Layout, ...]  # for all words
    across: tuple[Layout, ...] = ()  # `one`, where keys are of another sentence
    wide: tuple[Layout, ...] = ()  # `one` with its products, where a page has the room
    times: tuple[Layout, ...] = ()  # the products in `one`, which a page opens
    says_times: Says = ()


def _square(array: str) -> tuple[Layout, ...]:
    rows = (Row("queries", (array + " i",)),)
    return (Layout(("keys",), rows, "rows look, columns are looked at"),)


def _every(array: str, each: str, caption: str = "") -> Layout:
    return Layout((array,), (Row(each, (f"{array} {'j' if each == 'keys' else 'i'}",)),), caption)


def _product(letter: str, role: str) -> Layout:
    rows = (Row("features", ("x i f", "\u00d7", f"w_{letter} f")), Row("line"))
    return Layout(("row", "", f"w_{letter}"), (*rows, Row("i", ("", "+", f"{letter} i"), role)))


def _single(array: str, each: str, role: str = "") -> Layout:
    letter = "b" if each == "b" else "i"
    return Layout((array,), (Row(each, (f"{array} {letter}",), role),))


LONE = ("head lone", "Only the row of {asker} has arrows, because the goal is about {asker}.")
ASIDE = (
    "head !d_heads !lone",
    "The goal is about {asker} only. What {word} asks for or receives makes no difference here, so "
    "its row has no arrows.",
)
KEPT = (
    "head !d_heads !all",
    "The arrows you still see are there because {asker} looks at those words too.",
)
EQUAL = (
    "d_heads !d_scores",
    "Where {word} looks doesn't matter to the goal: all words that count here help about equally.",
)
ELSEWHERE = (
    "!head",
    "There are no arrows here. Nothing from head {head} reaches the numbers in the goal, so the "
    "goal doesn't depend on it.",
)
BY_PARAMS = Layout((), (), "\u2193 times w_q, w_k and w_v")
BY_W_O = Layout((), (), "\u2193 times w_o")

SCENES = (
    Scene(
        "words", "Words", "Words become numbers", "Every number has a slope", ("x",),
        (
            ("", "Each word is a row of {D} numbers."),
            ("example", "Each column says one thing about it. The row for {word} has {x}."),
            ("example asker", "Who is {word}? Nothing in its row tells you."),
            ("!example !cross", "The row for {word} is all that attention knows of it at first."),
            ("cross", "The words at the top look. The words that they look at have separate rows, "
             "such as {best}."),
            ("example", "Place x and place y are a point on a circle, an eighth of a turn further "
             "for each word. Head 1 uses them to find the word before."),
            ("unlike", "On top you see what the model says at each place, here what it reads."),
        ),
        (
            ("d_x", "We've followed the goal all the way back to the first numbers. For {word}, "
             "these matter most: {d_x}."),
            ("!d_x", "The goal doesn't depend on {word}: no number of its row has a slope."),
            ("", "Every number in `w_q`, `w_k`, `w_v` and `w_o` gets a slope the same way. Take a "
             "small step, and `w_q` and `w_k` move along their slopes. Training does that again "
             "and again."),
        ),
        one=(_single("x", "i"),),
        all=(_every("x", "tokens"), _every("y", "keys")),
        across=(_single("x", "i", "looks"), _single("y", "b", "is looked at")),
    ),
    Scene(
        "roles", "Ask, offer, give", "One row becomes three", "What should it ask for?",
        ("q", "k", "v"),
        (
            ("example !all", "In head {head}, {word} asks: \u201c{question}\u201d In numbers, it "
             "*asks* for {q}. So that others can find it, it *offers* {k}. And to any word that "
             "looks its way, it *gives* {v}."),
            ("all !cross", "Every word now has three rows. What it *asks* for is its query, `q`. "
             "What it *offers*, so that others can find it, is its key, `k`. What it *gives* is "
             "its value, `v`."),
            ("!all !example !cross", "What {word} *asks* for is its query, `q`. What it *offers*, "
             "so that others can find it, is its key, `k`. What it *gives* is its value, `v`."),
            ("!all !example cross", "The query of {word}, `q`, is what it *asks* for. Each word "
             "that it looks at, such as {best}, *offers* a key, `k`, and *gives* a value, `v`."),
            ("all cross", "Each word that looks has a query, `q`: what it *asks* for. Each word "
             "that can be looked at *offers* a key, `k`, and *gives* a value, `v`."),
            ("!example", "Each of these rows has {width} numbers in this head."),
        ),
        (
            ("d_q", "The slopes of what {word} asks for are {d_q}. A plus means \u201cask for more "
             "of this\u201d, a minus \u201cask for less\u201d. We didn't write that rule; it "
             "follows from the goal, four steps further on."),
            EQUAL,
            ("d_scores !d_q", "The goal doesn't depend on what {word} asks for: no score does."),
            ("head !d_heads !lone", "The goal is about {asker} only, so what {word} asks for "
             "doesn't matter."),
            ("head !d_heads !lone d_v !cross", "But {asker} looks at {word}, so what "
             "{word} gives has slopes: {d_v}."),
            ("head !d_heads !lone d_k !cross", "What it offers has slopes, too: {d_k}."),
            ("head lone", "Of the words that ask, only {asker} has arrows, because the goal is "
             "about {asker}."),
            ELSEWHERE,
        ),
        one=(
            _single("x", "k"), BY_PARAMS, _single("q", "i", "asks for"),
            _single("k", "k", "offers"), _single("v", "k", "gives"),
        ),
        all=(
            _every("q", "queries", "q: what each word asks for"),
            _every("k", "keys", "k: what each word offers"),
            _every("v", "keys", "v: what each word gives"),
        ),
        across=(
            _single("x", "i"), _single("q", "i", "asks for"),
            _single("y", "b"), _single("k", "b", "offers"), _single("v", "b", "gives"),
        ),
        times=(_product("q", "asks for"), _product("k", "offers"), _product("v", "gives")),
        says_times=(
            ("", "Each number in the row of {word} multiplies one row of the matrix, and the "
             "columns add up to the new row. Where {word} has a 0, nothing is added."),
        ),
    ),
    Scene(
        "scores", "Compare", "Asking meets offering", "Which scores should rise?", ("scores",),
        (
            ("!all", "The top row is what {word} asks for; below it is what each word offers. "
             "Multiply each pair of numbers, add up the products, then multiply by the scale, "
             "{scale}, which keeps long rows from getting huge scores. The result is a "
             "*score*: how well the two fit."),
            ("all", "A *score* says how well two words fit. Multiply what one asks for by what the "
             "other offers, add up the products, and multiply by the scale, {scale}."),
            ("!alone scores", "The highest for {word}: {scores}."),
            ("hides", "Hatched words are hidden from {word} and don't count."),
        ),
        (
            ("d_scores", "The slopes that matter are {d_scores}. The slope of a score is its "
             "*gradient*: raise the score by 0.1, and the goal changes by about 0.1 times "
             "the slope."),
            ("d_scores d_q !all", "A score is made from what's asked and what's offered, so both "
             "of those get arrows too."),
            EQUAL, ASIDE, KEPT, ELSEWHERE, LONE,
        ),
        one=(
            Layout(
                ("q", "sum", "score"),
                (
                    Row("i", ("q i", "asked"), "asks for"), Row("line"),
                    Row("keys", ("k j", "sum", "scores i j")),
                ),
            ),
        ),
        all=_square("scores"),
    ),
    Scene(
        "weights", "Share", "Scores become shares", "More for one, less for the rest",
        ("weights",),
        (
            ("whole !alone", "{word} has 100% of its attention to give, and the scores share it "
             "out: {weights}."),
            ("whole alone", "There is only one word that {word} can look at: {weights}."),
            ("!whole weights", "These shares were changed, and no longer add up to 100%."),
            ("!weights", "There is no word that {word} can look at."),
            ("", "These shares are the *weights*. For each, take e (about 2.7) to the power of the "
             "score, and divide it by the sum of all these powers."),
        ),
        (
            ("d_scores", "If one share grows, others shrink. So it only pays to raise a word's "
             "score if that word helps more than the row's average. The slopes say which ones do: "
             "{d_scores}."),
            ("d_scores whole", "All of them add up to 0; tiny ones get no arrow."),
            EQUAL, ASIDE, ELSEWHERE, LONE,
        ),
        one=(
            Layout(
                ("score", "power", "share", ""),
                (
                    Row("keys", ("scores i j", "power", "weights i j", "bar")),
                    Row("sum", ("", "powers", "", "average")),
                ),
            ),
        ),
        all=_square("weights"),
    ),
    Scene(
        "mix", "Mix", "Take a share of each", "Who should give more?", ("heads",),
        (
            ("!all", "Multiply each word's row by its share ({weights}), and add up the results. "
             "That sum is what {word} receives."),
            ("all", "Each row is what one word receives: the rows of all words, each multiplied by "
             "its share, added up."),
            ("example !all", "In numbers: {heads}."),
            ("example all", "For {word}, that's {heads}."),
        ),
        (
            ("d_heads", "Go back through `w_o`, and you get the slopes of what {word} receives: "
             "{d_heads}."),
            ("d_heads d_weights", "Multiply them by a word's row, add up, and you have the slope "
             "of its share: {d_weights}. A plus means that a larger share would help."),
            ASIDE, KEPT, ELSEWHERE, LONE,
        ),
        one=(
            Layout(
                ("share", "", "v"),
                (
                    Row("keys", ("weights i j", "\u00d7", "v j")), Row("line"),
                    Row("i", ("", "+", "heads i"), "receives"),
                ),
            ),
        ),
        all=(_every("heads", "queries", "heads: what each word receives"),),
        wide=(
            Layout(
                ("share", "", "v", "", "heads"),
                (
                    Row("keys", ("weights i j", "\u00d7", "v j", "=", "product")), Row("line"),
                    Row("i", ("", "", "", "+", "heads i"), "receives"),
                ),
            ),
        ),
    ),
    Scene(
        "join", "Join", "All heads make one new row", "Start with a goal", ("out",),
        (
            ("!single !silent", "Meanwhile, head {other} has been looking too ({others})."),
            ("!single", "Put the rows side by side, multiply by `w_o`, and you have the new row "
             "for {word}."),
            ("off", "While head {off} is off, nothing from it gets through."),
            ("single", "What {word} received goes through `w_o` and becomes its new row."),
            ("example asker", "Before, {word} was only a stand-in. Now its row has {wished}."),
            ("example !asker", "That row has {out}."),
        ),
        (
            ("example", "Suppose {wish}. Then our goal is a large {goal} in that row."),
            ("!example", "Our goal here is to make the sum of `d_out` times `out` larger."),
            ("d_out", "An arrow shows a *slope*: how much the goal grows if you raise that number "
             "a little. So ▲ should rise and ▼ should fall. Now work your way left: what should "
             "each earlier number do?"),
            ("!d_out !lone", "This row has no arrows, because the goal is about {asker} only. "
             "Choose {asker} at the top."),
            ("lone", LONE[1]),
        ),
        one=(
            Layout(("heads*",), (Row("i", ("heads* i",), "received"),)), BY_W_O,
            Layout(
                ("out",), (Row("i", ("out i",), "new row"), Row("k", ("x i",), "before")),
            ),
        ),
        all=(_every("out", "queries", "out: the new row of each word"),),
    ),
)  # fmt: skip
