"""One scene with its numbers put in: films draw it, and the page is held against it."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mha_numpy.checks import check_choice, check_count
from mha_numpy.errors import ConfigError
from mha_numpy.show.scenes.scenes import WORKINGS, Layout, Row, Says
from mha_numpy.show.scenes.story import Piece, Story, best_of, conditions, facts, written

MARKED = re.compile(r"(\{\w+\}|\*[^*]+\*|`[^`]+`)")


@dataclass(frozen=True)
class Cell:
    """A number on the stage."""

    array: str  # its name in the trace
    index: tuple[int, ...]
    value: float
    slope: float | None  # of L; None: it is not known
    level: float  # |value| / the largest of its matrix
    lift: float  # slope / the largest of its matrix
    head: int | None  # None: the array belongs to no head
    is_hidden: bool = False

    @property
    def text(self) -> str:
        """The number as it is written."""
        return "" if self.is_hidden else written(self.value)


@dataclass(frozen=True)
class Line:
    """A row of a table: a word, what the row is to it, and cells or signs, one for each column."""

    word: str
    role: str
    is_chosen: bool  # whether it is the row of the word that looks
    cells: tuple[Cell | str, ...]
    is_rule: bool = False  # a line between the rows before and after it


@dataclass(frozen=True)
class Table:
    """Rows of cells under named columns; without rows it is a line of text."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Line, ...]


@dataclass(frozen=True)
class Still:
    """A scene as it is."""

    title: str
    sentence: tuple[Piece, ...]  # kind (text, word, number, term, name), and what is written
    tables: tuple[Table, ...]

    @property
    def text(self) -> str:
        """The sentence without its marks."""
        return "".join(text for _, text in self.sentence)


def still(
    story: Story, scene: str, *, word: int | None = None, head: int | None = None,
    everything: bool = False, back: bool = False,
) -> Still:  # fmt: skip
    """Return a scene of a story for one word in one head.

    Parameters
    ----------
    story : Story
    scene : str
        Its id: words, roles, scores, weights, mix or join.
    word, head : int, optional
        The word that looks, and the head; default: those that the story opens at.
    everything : bool
        All words on stage, where it is one.
    back : bool
        The scene as it is on the way back.

    Examples
    --------
    >>> from mha_numpy.show.scenes import story_of
    >>> from mha_numpy.show.walk import walk
    >>> seen = walk()
    >>> story = story_of(seen.trace, tokens=seen.tokens, meaning=seen.meaning)
    >>> still(story, "mix").text
    "Multiply each word's row by its share (cat 78%, fish 17%), and add up the results. That sum \
is what It receives. In numbers: 0.97 for thing, 0.02 for action, 0.78 for alive, 0.17 for food."
    """
    named = {each.id: each for each in story.scenes}
    told = named[check_choice("scene", scene, named)]
    word = _one_of("word", story.opens[0] if word is None else word, len(story.tokens))
    head = _one_of("head", story.opens[1] if head is None else head, story.num_heads)
    if back and not story.has_wish:
        raise ConfigError("back: expected a trace with a backward pass and its d_out; got none")
    is_small = scene == "words" and story.steps["x"].array.shape[-1] <= 8
    one = told.across if story.is_cross and told.across else told.one
    layouts = told.all if everything or is_small else one
    return Still(
        title=told.back if back else told.title,
        sentence=_sentence(
            told.says_back if back else told.says,
            conditions(story, word, head, everything=everything), facts(story, word, head),
        ),
        tables=tuple(
            _table(story, layout, word, head, back) for layout in layouts
            if {c.rstrip("*") for c in layout.columns} & {"x", "y"} <= story.steps.keys()
        ),
    )  # fmt: skip


def _one_of(name: str, value: int, count: int) -> int:
    if check_count(name, value, least=0) >= count:
        raise ConfigError(f"{name}: expected 0 to {count - 1}; got {value}")
    return value


def _sentence(
    says: Says, holds: Callable[[str], bool], fact: Callable[[str], list[Piece]]
) -> tuple[Piece, ...]:
    found: list[Piece] = []
    for needed, template in says:
        if all(holds(c.lstrip("!")) != c.startswith("!") for c in needed.split()):
            found.append(("text", " " * bool(found)))
            for piece in MARKED.split(template):
                kind = {"*": "term", "`": "name"}.get(piece[:1])
                found += fact(piece[1:-1]) if piece[:1] == "{" else [
                    (kind, piece[1:-1]) if kind else ("text", piece)
                ]  # fmt: skip
    return tuple(piece for piece in found if piece[1])


def _table(story: Story, layout: Layout, word: int, head: int, back: bool) -> Table:
    columns = [name for slot in layout.columns for name in _columns(story, slot, head)]
    left_out = {"before", "sum"} if back else {"sum"}  # what was before has another wish
    shown = [row for row in layout.rows if not {row.role, row.each} & left_out]
    rows = [line for row in shown for line in _lines(story, row, word, head, len(columns))]
    return Table(layout.caption, tuple(columns), tuple(rows))


def _columns(story: Story, slot: str, head: int) -> list[str]:
    if slot == "keys":
        return list(story.source_tokens)
    if slot == "heads*":
        return [name for h in range(story.num_heads) for name in story.columns("heads", h)]
    return story.columns(slot, head) if slot in story.steps else ["" if slot in WORKINGS else slot]


def _lines(story: Story, row: Row, word: int, head: int, width: int) -> list[Line]:
    if row.each == "line":
        return [Line("", "", False, (), is_rule=True)]
    looked = best_of(story, word, head)
    source, looks = story.source_tokens, story.tokens
    reads = looks if story.is_cross else source  # what a row of x is the vector of
    many = {"queries": looks, "keys": source, "tokens": reads}
    single = {"i": (looks, word), "k": (reads, word), "b": (source, looked)}
    if row.each in single:
        words, place = single[row.each]
        places = [place]
    else:
        words = many[row.each]
        places = list(range(len(words)))
    lines = []
    for n in places:
        letters = {"i": word if row.each in ("keys", "b") else n, "j": n, "k": n, "b": looked}
        cells = [cell for part in row.parts for cell in _cells(story, part, letters, head)]
        cells += [""] * (width - len(cells))
        is_chosen = row.each != "keys" and n == word
        lines.append(Line(words[n], row.role, is_chosen, tuple(cells)))
    return lines


def _cells(story: Story, part: str, letters: dict[str, int], head: int) -> list[Cell | str]:
    if " " not in part:
        return [WORKINGS.get(part, part)]
    array, *at = part.split()
    if array == "heads*":
        row = f"heads {at[0]}"
        return [c for h in range(story.num_heads) for c in _cells(story, row, letters, h)]
    matrix = story.matrix(array, head)
    slopes = story.matrix(f"d_{array}", head) if f"d_{array}" in story.steps else None
    hidden = story.hidden(head) if array in ("scores", "weights") else np.zeros(matrix.shape, bool)
    i = letters[at[0]]
    columns = [letters[at[1]]] if len(at) > 1 else range(matrix.shape[1])
    most, steepest = (max(float(np.abs(m).max()), 1e-9) if m is not None else 1.0
                      for m in (matrix, slopes))  # fmt: skip
    return [
        Cell(
            array=story.steps[array].name, index=(*story.index(array, head), i, j),
            value=float(matrix[i, j]), slope=None if slopes is None else float(slopes[i, j]),
            level=min(1.0, abs(float(matrix[i, j])) / most),
            lift=0.0 if slopes is None else float(slopes[i, j]) / steepest,
            head=None if array in ("x", "y", "out") else head,
            is_hidden=bool(hidden[i, j]),
        )
        for j in columns
    ]  # fmt: skip
