"""What each draft of a tree sees, and where it is."""

from typing import NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Again, Hints, Inputs, Law, Mistake, Reaction, Task


class Drafted(NamedTuple):
    """What each draft sees, and its position in the text that it belongs to."""

    mask: Array  # (T, past + T) bool
    positions: Array  # (T,) int


def draft_tree(parents: Array, past: int) -> Drafted:
    """Say what each draft of a tree may attend to, and at which position it is.

    T drafted tokens continue a text of `past` tokens in several ways at once. Each draft has a
    parent, the draft just before it, or -1 if it comes right after the past. Its *ancestors* are
    its parent, the parent of its parent, and so on. A draft sees all of the past, its ancestors
    and itself, and nothing else. So each path through the tree is computed as if it were the text.

    The keys are those of the past, then those of the drafts, in their order. Positions count from
    0, at the first token of the past: a draft right after the past is at position `past`.

    Use only NumPy, without `tree_mask` and `tree_positions`.

    Parameters
    ----------
    parents : (T,) int
        Each one is an earlier draft, or -1. Several drafts may have -1.
    past : int
        0 or more.

    Returns
    -------
    mask : (T, past + T) bool
        True = may attend.
    positions : (T,), whole numbers
    """
    T = len(parents)
    seen, depth = np.eye(T, dtype=bool), np.zeros(T, dtype=int)
    for token, parent in enumerate(parents):
        if parent >= 0:
            seen[token] |= seen[parent]
            depth[token] = depth[parent] + 1
    before = np.ones((T, past), dtype=bool)
    mask = np.concatenate([before, seen], axis=1)
    positions = past + depth
    return Drafted(mask, positions)


def _draw_trees(rng: np.random.Generator) -> list[Inputs]:
    """Draw trees by hand and by chance: with and without a past, with one root and with several.

    A mask has few numbers to tell mistakes apart by, so there are more probes.
    """
    by_hand = (
        ([-1, 0, 1, 1, 0, 4], 3), ([-1, 0, 0, 2, 2, 3, 1], 0), ([-1, -1, 0, 1, 3, 2], 2), ([-1], 4),
        ([-1, 0, 1, 2, 3], 5),
    )  # fmt: skip
    by_chance = [
        ([-1, *(int(rng.integers(-1, token)) for token in range(1, T))], int(rng.integers(1, 7)))
        for T in (4, 8, 7, 9, 5, 10)
    ]
    return [
        {"parents": np.array(parents), "past": past} for parents, past in (*by_hand, *by_chance)
    ]


def _last_after_the_past(inputs: Inputs) -> Inputs:
    """Return the tree with its last draft right after the past, or else after the first draft."""
    parents = inputs["parents"].copy()
    if len(parents) > 1:
        parents[-1] = 0 if parents[-1] == -1 else -1
    return {**inputs, "parents": parents}


MISTAKES: list[Mistake | Again] = [
    Mistake("siblings see each other", "each draft sees all earlier drafts, those of other branches too",
            "a draft sees its ancestors and itself",
            {"[before, seen]": "[before, np.tri(T, dtype=bool)]"}),
    Mistake("all drafts see each other", "each draft sees all drafts, even later ones",
            "a draft sees its ancestors and itself",
            {"[before, seen]": "[before, np.ones((T, T), dtype=bool)]"}),
    Mistake("earlier siblings seen", "a draft also sees the earlier drafts that have the same parent",
            "a draft sees its ancestors and itself",
            {"depth[parent] + 1": "depth[parent] + 1\n            seen[token] |= (np.asarray(parents) == parent) & (np.arange(T) < token)"}),
    Mistake("only the parent seen", "a draft sees its parent, but not the ancestors before it",
            "seen[token] |= seen[parent]", {"seen[token] |= seen[parent]": "seen[token, parent] = True"}),
    Mistake("only two ancestors seen", "a draft sees its parent and the parent of its parent, but no ancestor before them",
            "seen[token] |= seen[parent], which holds all of them",
            {"seen[token] |= seen[parent]": "seen[token, parent] = True\n            seen[token, parents[parent]] |= parents[parent] >= 0"}),
    Mistake("draft does not see itself", "a draft sees its ancestors, but not itself",
            "start from np.eye(T, dtype=bool)", {"[before, seen]": "[before, seen & ~np.eye(T, dtype=bool)]"}),
    Mistake("itself overwritten", "the row of the parent overwrites that of the draft, so only drafts right after the past see themselves",
            "seen[token] |= seen[parent]", {"seen[token] |= seen[parent]": "seen[token] = seen[parent]"}),
    Mistake("drafts see only the past", "no draft sees another one or itself",
            "start from np.eye(T, dtype=bool)", {"np.eye(T, dtype=bool), np": "np.zeros((T, T), dtype=bool), np"}),
    Mistake("drafts see only themselves", "a draft sees no ancestor",
            "seen[token] |= seen[parent]", {"[before, seen]": "[before, np.eye(T, dtype=bool)]"}),
    Mistake("descendants seen", "a draft sees those that come after it in the tree instead of those before it",
            "rows are queries and columns are keys: seen[token] |= seen[parent]",
            {"[before, seen]": "[before, seen.T]"}),
    Mistake("tree seen both ways", "a draft sees its ancestors and its descendants",
            "only ancestors: seen[token] |= seen[parent]", {"[before, seen]": "[before, seen | seen.T]"}),
    Mistake("all of smaller depth seen", "a draft sees all drafts at earlier positions, those of other branches too",
            "a draft sees its own ancestors", {"[before, seen]": "[before, (depth < depth[:, None]) | seen]"}),
    Mistake("all up to its depth seen", "the mask is made from the positions, so a draft sees all drafts at its own position or before it",
            "a draft sees its own ancestors", {"[before, seen]": "[before, depth <= depth[:, None]]"}),
    Mistake("-1 taken for the last draft", "parents[token] is used as an index even if it is -1, which is the last draft",
            "if parent >= 0:", {"if parent >= 0:": "if parent >= -1:"}),
    Mistake("-1 taken for the last draft, only in the mask", "-1 is used as an index, which is the last draft, so a draft right after the past sees it",
            "if parent >= 0:", {"if parent >= 0:\n            seen[token] |= seen[parent]": "seen[token] |= seen[parent]\n        if parent >= 0:"}),
    Mistake("-1 taken for a column", "column past + parent is set even if parent is -1: the last of the past, or without a past the last draft",
            "if parent >= 0:", {"mask = np.concatenate([before, seen], axis=1)": "mask = np.concatenate([before, seen], axis=1)\n    mask[:, past - 1] = True"}),
    Mistake("-1 taken for the first draft", "a later draft right after the past is put after draft 0",
            "if parent >= 0: -1 is no draft",
            {"if parent >= 0:": "parent = max(parent, 0)\n        if token > 0:"}),
    Mistake("parent 0 taken for none", "draft 0 is not seen as a parent, because the condition leaves out 0",
            "if parent >= 0:", {"if parent >= 0:": "if parent > 0:"}),
    Mistake("draft before taken for the parent", "each draft is put after the one before it in the list, whatever its parent is",
            "seen[parent] and depth[parent], not those of token - 1",
            {"in enumerate(parents):": "in enumerate(np.arange(T) - 1):"}),
    Mistake("past not seen", "the drafts do not see the past", "np.ones((T, past), dtype=bool)",
            {"before = np.ones((T, past)": "before = np.zeros((T, past)"}),
    Mistake("only roots see the past", "only the drafts right after the past see it", "every draft sees all of the past",
            {"before = np.ones((T, past), dtype=bool)": "before = np.repeat(np.asarray(parents)[:, None] < 0, past, axis=1)"}),
    Mistake("past in a triangle", "the past is masked as if the drafts were at its beginning",
            "every draft sees all of the past", {"before = np.ones((T, past), dtype=bool)": "before = np.tri(T, past, dtype=bool)"}),
    Mistake("last of the past hidden", "the last token of the past is hidden", "every draft sees all of the past",
            {"before = np.ones((T, past), dtype=bool)": "before = np.arange(past) < np.full((T, 1), past - 1)"}),
    Mistake("first of the past hidden", "the first token of the past is hidden", "every draft sees all of the past",
            {"before = np.ones((T, past), dtype=bool)": "before = np.arange(past) >= np.ones((T, 1))"}),
    Mistake("past without columns", "the mask has columns only for the drafts", "np.concatenate([past, drafts], axis=1)",
            {"[before, seen]": "[seen]"}),
    Mistake("past after the drafts", "the columns of the past come after those of the drafts",
            "np.concatenate([past, drafts], axis=1)", {"[before, seen]": "[seen, before]"}),
    Mistake("columns not shifted by the past", "the columns of the drafts begin at 0, where those of the past are",
            "draft j is column past + j",
            {"mask = np.concatenate([before, seen], axis=1)": "mask = np.concatenate([before, np.zeros((T, T), dtype=bool)], axis=1)\n    mask[:, :T] |= seen"}),
    Mistake("position read at -1", "positions[parent] is read even if parent is -1, which is the last draft and still 0, so a draft right after the past is at position 1",
            "past if parent is -1, else positions[parent] + 1",
            {"positions = past + depth": "positions = np.zeros(T, dtype=int)\n    for token, parent in enumerate(parents):\n        positions[token] = positions[parent] + 1"}),
    Mistake("position is the place in the list", "positions count on in the order of the list, so siblings are at different positions",
            "past + depth in the tree", {"past + depth": "past + np.arange(T)"}),
    Mistake("position is the place in the list, roots apart", "each draft that has a parent is at the position of its place in the list, so siblings are at different positions",
            "depth[token] = depth[parent] + 1", {"depth[parent] + 1": "token"}),
    Mistake("position from the parent's place", "the position is one after the parent's place in the list, not one after the parent's position",
            "depth[token] = depth[parent] + 1", {"depth[parent] + 1": "parent + 1"}),
    Mistake("position of the parent", "a draft gets the position of its parent", "depth[token] = depth[parent] + 1",
            {"depth[parent] + 1": "depth[parent]"}),
    Mistake("past not in the positions", "positions count from the first draft, not from the first token of the past",
            "past + depth", {"past + depth": "depth"}),
    Mistake("positions one too late", "each position is one too large, because depth is counted from 1",
            "a draft right after the past is at position past", {"past + depth": "past + depth + 1"}),
    Mistake("positions one too early", "each position is one too small, because the first draft is put on the last token of the past",
            "a draft right after the past is at position past", {"past + depth": "past + depth - 1"}),
    Mistake("positions count children", "the position counts how often a draft is a parent, not how deep it is",
            "past + depth", {"past + depth": "past + (np.asarray(parents) == np.arange(T)[:, None]).sum(axis=1)"}),
    Again("mask inverted", {"Drafted(mask, positions)": "Drafted(~mask, positions)"}),
]  # fmt: skip

TASK = Task(
    draft_tree,
    place=245,
    difficulty=2,
    minutes=15,
    needs=("masks",),
    hints=Hints(
        where="Compare each draft's row of the mask with the row of its parent, which comes earlier in "
        "the list: docs/caches.md, Trees of drafts; the picture in notebook 33, "
        '"A tree of guesses".',
        question="Take parents = [-1, 0, 0, 2] and past = 10. Drafts 1 and 2 both follow draft 0: "
        "what is the position of each? And which drafts does draft 3 see?",
        mistake="siblings see each other",
        fix="begin with:\n"
        "seen, depth = np.eye(T, dtype=bool), np.zeros(T, dtype=int)\n"
        "for each token with a parent >= 0, in order:\n"
        "seen[token] |= seen[parent]; depth[token] = depth[parent] + 1\n"
        "then put the columns of the past in front, and add past to depth",
    ),
    returns="tuple[Array, Array]",
    draw=_draw_trees,
    laws=[
        Law(
            "a draft's position is the number of tokens that it sees before it",
            lambda inputs, arrays: arrays["mask"].sum(axis=-1) - 1 - arrays["positions"],
        ),
        Law(
            "no draft sees a later one",
            lambda inputs, arrays: np.triu(arrays["mask"][:, inputs["past"] :], 1).astype(float),
        ),
    ],
    reactions=[
        Reaction(
            "moving the last draft in the tree does not change the others",
            _last_after_the_past,
            lambda _, arrays: np.append(arrays["mask"][:-1].ravel(), arrays["positions"][:-1]),
        )
    ],
    mistakes=MISTAKES,
)
