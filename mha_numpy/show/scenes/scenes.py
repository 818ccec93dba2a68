"""The six scenes: what is on stage in each, and its sentences, forward and back.

A part of a row is a slice or a sign. "q i" is row i of q: i is the word that looks, j each word
that is looked at, b the one that it looks at most, f each feature. "scores i j" is one cell;
"heads* i" are the rows of all heads. A column is named after the array whose columns it has, or
has its own name.

The sentences come with conditions: the page shows every one whose conditions hold.
{} holds a fact about the numbers, *a term*, `a name`. The page and `still` fill them in alike.
"""

from dataclasses import dataclass
from typing import TypeAlias

Says: TypeAlias = tuple[tuple[str, str], ...]  # conditions, "!" for not; a sentence


@dataclass(frozen=True)
class Row:
    """A row of a table, or as many rows as there are words."""

    each: str  # i, k (the key at place i), b; queries, keys, tokens, features: all; line: none
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


LONE = ("head lone", "Only the row of {asker} has arrows, because the wish is about {asker}.")
ELSEWHERE = (
    "!head",
    "There are no arrows here. Nothing that head {head} gives reaches the numbers of the wish, so "
    "the goal doesn't depend on it.",
)
BY_PARAMS = Layout((), (), "\u2193 times w_q, w_k and w_v")
BY_W_O = Layout((), (), "\u2193 times w_o")

SCENES = (
    Scene(
        "words", "Words", "Words become numbers", "Every number has a slope", ("x",),
        (
            ("", "Each word is a row of {D} numbers."),
            ("example", "Each column says one thing about it. The row of {word} says {x}."),
            ("example asker", "What does {word} stand for? Nothing in its row tells you."),
            ("plain !cross", "The row of {word} is all that attention knows of it at the start."),
            ("cross", "The words at the top look. The words that they look at have separate rows, "
             "such as {best}."),
            ("places", "Place x and place y say where in the sentence it is, so that head 1 can "
             "find the word before."),
            ("unlike", "On top you see what the model says at each place, here what it reads."),
        ),
        (
            ("x", "The wish has reached the first numbers. For {word}, these matter most: {d_x}."),
            ("!x", "The wish doesn't reach {word}: no number of its row has a slope."),
            ("", "The same sums give a slope to each number of `w_q`, `w_k`, `w_v` and `w_o`. A "
             "small step moves `w_q` and `w_k` along theirs. Training repeats this many times."),
        ),
        one=(_single("x", "i"),),
        all=(_every("x", "tokens"), _every("y", "keys")),
        across=(_single("x", "i", "looks"), _single("y", "b", "is looked at")),
    ),
    Scene(
        "roles", "Ask, offer, give", "One row becomes three", "What should it ask for?",
        ("q", "k", "v"),
        (
            ("example", "In head {head}, {word} asks: \u201c{question}\u201d As numbers, it *asks* "
             "for {q}. To be found by others, it *offers* {k}. To words that look at it, it "
             "*gives* {v}."),
            ("plain !cross", "What {word} *asks* for is its query, `q`. What it *offers*, so that "
             "others find it, is its key, `k`. What it *gives* is its value, `v`."),
            ("plain cross", "The query of {word}, `q`, is what it *asks* for. {best}, which it "
             "looks at most, *offers* a key, `k`, and *gives* a value, `v`."),
            ("plain", "Each of these rows has {width} numbers in this head."),
        ),
        (
            ("q", "What {word} asks for has these slopes: {d_q}."),
            ("q", "A plus means that it should ask for more of it, a minus for less. We didn't "
             "write this rule: it follows from the wish, four steps back."),
            ("head !q kv", "What {word} asks for doesn't matter to a wish about {asker}. But "
             "{asker} looks at {word}, so the two other rows have slopes: what it offers {d_k}, "
             "what it gives {d_v}."),
            ("head !q !kv", "The wish is about {asker}, and it doesn't reach {word} here."),
            ("head lone", "Of the words that ask, only {asker} has arrows, because the wish is "
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
            ("", "The top row is what {word} asks for; below it is what each word offers. Multiply "
             "down, add across, then multiply by the scale, {scale}, which keeps the scores of "
             "long rows small. The result is a *score*: how well the two fit."),
            ("two !tie", "{best} fits best ({best.score}), then {next} ({next.score})."),
            ("two tie", "{best} and {next} fit equally well, with {best.score}."),
            ("hides", "Hatched words are hidden from {word} and don't count."),
        ),
        (
            ("scores", "The score of {gain} has the slope {gain.score}: raise it by 0.1, and the "
             "goal changes by about {gain.tenth}. This slope is the *gradient* of the score, and "
             "it says no more than that. For {loss} it is {loss.score}."),
            ("scores !all", "A score is made of two rows, so what is asked and what is offered get "
             "arrows, too."),
            ("heads !scores", "There are no arrows on these scores: each word that counts here "
             "helps as much as the others."),
            ("head !heads", "The wish is about the new row of {asker}, and where {word} looks "
             "doesn't change it. So these scores have no arrows."),
            ("head !heads !all", "Those on the offers are there because {asker} looks at these "
             "words, too."),
            ELSEWHERE, LONE,
        ),
        one=(
            Layout(
                ("q", "", "score"),
                (
                    Row("i", ("q i",), "asks for"), Row("line"),
                    Row("keys", ("k j", "\u2192", "scores i j")),
                ),
            ),
        ),
        all=_square("scores"),
    ),
    Scene(
        "weights", "Share", "Scores become shares", "More for one, less for the rest",
        ("weights",),
        (
            ("two", "The attention of {word} is 100%, and the scores divide it: {best} gets "
             "{best.share}, {next} gets {next.share}."),
            ("!two", "There is only {best}, so it gets {best.share}."),
            ("", "Each share is a *weight*: how much {word} takes from that word. It is e to the "
             "power of the score, divided by the sum of these powers. Raise a score "
             "by 1, and its share grows e-fold, 2.7 times, compared with the others."),
        ),
        (
            ("scores", "Shares add up to 100%: if one grows, others shrink. So a score should rise "
             "only if its word helps more than the average of this row. {gain} does "
             "({gain.score}), {loss} doesn't ({loss.score}). The slopes of all these scores "
             "add up to 0; the smallest have no arrow."),
            ("heads !scores", "There are no arrows on these scores: each word that counts here "
             "helps as much as the others."),
            ("head !heads", "The wish is about the new row of {asker}, "
             "and the shares of {word} don't change it: they have no arrows."),
            ELSEWHERE, LONE,
        ),
        one=(
            Layout(
                ("score", "", "share", ""),
                (Row("keys", ("scores i j", "\u2192", "weights i j", "bar")),),
            ),
        ),
        all=_square("weights"),
    ),
    Scene(
        "mix", "Mix", "Take a share of each", "From whom should it take more?", ("heads",),
        (
            ("example", "Each word's row is multiplied by its share, and {word} receives the sum: "
             "{heads}."),
            ("plain", "Each word's row is multiplied by its share, and {word} receives the sum."),
            ("", "The largest part, {best.share}, comes from {best}."),
        ),
        (
            ("heads", "The wish goes back through `w_o` to what {word} receives: {d_heads}. So "
             "a larger share would do most good for {helper} ({helper.share}), and be worst for "
             "{hinderer} ({hinderer.share})."),
            ("heads example", "A slope of +1 says: 0.01 more, and the goal grows by 0.01."),
            ("head !heads", "The wish is about {asker}, and what {word} receives doesn't change "
             "the new row of {asker}."),
            ("head !heads !all", "Arrows remain on what words give, because {asker} takes from "
             "them."),
            ELSEWHERE, LONE,
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
    ),
    Scene(
        "join", "Join", "All heads make one new row", "Start with a wish", ("out",),
        (
            ("!single", "Head {other} looks at the same time; there, {word} takes most from "
             "{other.best} ({other.share}). The rows of all heads, side by side, go through `w_o` "
             "and become the new row of {word}."),
            ("single", "What {word} received goes through `w_o` and becomes its new row."),
            ("example asker", "Before, {word} only stood in for something. Now its row says "
             "{wished}."),
            ("example !asker", "It says {out}."),
        ),
        (
            ("example", "Here is a wish: {wish}. The goal is {goal} in that row."),
            ("plain", "The wish here is that the goal grows: the sum of `d_out` times `out`."),
            ("out", "An arrow shows a *slope*: how much the goal grows if that number grows a "
             "little. So ▲ should rise and ▼ should fall. Now go left: what should each "
             "earlier number do?"),
            ("!out", "This row has no arrows, because the wish is about {asker} only. Choose "
             "{asker} at the top."),
            LONE,
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
