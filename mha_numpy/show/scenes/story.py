"""The story of one trace: which arrays play which part, and the facts that its sentences hold."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy.checking.tracing import Step, Trace
from mha_numpy.dtypes import Array
from mha_numpy.show.scenes.scenes import SCENES, Scene

if TYPE_CHECKING:
    from mha_numpy.show.walk.result import Meaning

NEEDED = ("q", "k", "v", "scores", "weights", "heads")
PARTS = {"x": "x_q", "y": "x_k", "out": "out"} | {
    name: name for name in (*NEEDED, "w_q", "w_k", "w_v")
}
TOTALS = {"x_q": "d_x", "x_k": "d_x_kv"}  # of an input that is read more than once: the sum
LEADING = {"B", "H", "H_kv", "1"}
HIDING, GATE = "masked", "head_gate"


@dataclass(frozen=True)
class Story:
    """A trace of one attention layer, as scenes tell it."""

    scenes: tuple[Scene, ...]
    steps: Mapping[
        str, Step
    ]  # by the part that they play: x, y, q, k, v, scores, ... d_x, d_q, ...
    tokens: Sequence[str]  # T_q: the words that look
    source_tokens: Sequence[str]  # T_k: the words that are looked at
    meaning: "Meaning | None"
    note: str
    sequence: int
    scale: float
    opens: tuple[int, int]  # at which word, in which head

    @property
    def is_cross(self) -> bool:
        """Whether the words that are looked at are of another sentence."""
        return "y" in self.steps

    @property
    def has_wish(self) -> bool:
        """Whether there is a way back, from an upstream gradient to every array of the scenes."""
        shown = {part for scene in self.scenes for part in scene.arrays}
        return self.steps.keys() >= {f"d_{part}" for part in {*shown, "out"}}

    @property
    def num_heads(self) -> int:
        """The number of heads."""
        return self.sizes("weights").get("H", 1)

    def sizes(self, part: str) -> dict[str, int]:
        """Return the sizes of an array by the names of its axes."""
        step = self.steps[part]
        return dict(zip(step.axes.split(), step.array.shape, strict=True))

    def index(self, part: str, head: int) -> tuple[int, ...]:
        """Return the index of the matrix that an array holds for a head."""
        heads = self.sizes(part).get("H_kv", 1)
        at = {"B": self.sequence, "H": head, "H_kv": head * heads // self.num_heads}
        axes = self.steps[part].axes.split()[:-2]
        return tuple(at.get(axis, 0) for axis in axes)

    def matrix(self, part: str, head: int) -> Array:
        """Return the matrix that an array holds for a head."""
        return np.asarray(self.steps[part].array[self.index(part, head)], float)

    def hidden(self, head: int) -> Array:
        """Return which cells of the weights are hidden: their scores became minus infinity."""
        if HIDING not in self.steps:
            return np.zeros(self.matrix("weights", head).shape, bool)
        return np.asarray(self.matrix(HIDING, head) == -np.inf)

    def off(self) -> list[int]:
        """Return the heads that are switched off."""
        gates = self.steps[GATE].array.ravel()[-self.num_heads :] if GATE in self.steps else ()
        return [head for head, gate in enumerate(gates) if gate == 0]

    def columns(self, part: str, head: int) -> list[str]:
        """Return what the columns of an array are called."""
        part = part.removeprefix("d_")
        if part in ("scores", "weights"):
            return list(self.source_tokens)
        names: Sequence[str] | None = None
        if self.meaning:
            by_head = {"q": self.meaning.matched, "k": self.meaning.matched,
                       "v": self.meaning.handed, "heads": self.meaning.handed}  # fmt: skip
            names = by_head[part][head] if part in by_head else self.meaning.features
        width = self.steps[part].array.shape[-1]
        return list(names) if names and len(names) == width else [str(n) for n in range(width)]

    def as_dict(self) -> dict[str, Any]:
        """Return what the page needs beside the trace, ready for JSON."""
        meaning = asdict(self.meaning) if self.meaning else None
        return {
            "scenes": [asdict(scene) for scene in self.scenes],
            "parts": {p: s.name for p, s in self.steps.items() if p[:2] != "d_" or p == "d_out"},
            "tokens": self.tokens, "sourceTokens": self.source_tokens, "meaning": meaning,
            "note": self.note, "opens": self.opens,
        }  # fmt: skip


def story_of(
    trace: Trace,
    *,
    tokens: Sequence[str] | None = None,
    source_tokens: Sequence[str] | None = None,
    meaning: "Meaning | None" = None,
    note: str = "",
    sequence: int = 0,
) -> Story | None:
    """Return the story of a trace; None where it is not one attention layer, whole.

    Examples
    --------
    >>> from mha_numpy.show.walk import walk
    >>> seen = walk()
    >>> story = story_of(seen.trace, tokens=seen.tokens, meaning=seen.meaning)
    >>> [scene.name for scene in story.scenes]
    ['Words', 'Ask, offer, give', 'Compare', 'Share', 'Mix', 'Join']
    """
    last = {step.name: step for step in (*trace.constants, *trace.steps)}
    if len({step.name for step in trace}) < len(trace) or not last.keys() >= {*NEEDED, "scale"}:
        return None
    steps = {part: last[name] for part, name in PARTS.items() if name in last}
    if "y" in steps and steps["y"].equation == PARTS["x"]:
        del steps["y"]
    if any(set(step.axes.split()[:-2]) - LEADING for step in steps.values()):
        return None
    steps |= {name: last[name] for name in (HIDING, GATE) if name in last}
    for part, name in PARTS.items():
        names = [each for each in (TOTALS.get(name), f"d_{name}") if each in last]
        if part in steps and names:
            steps[f"d_{part}"] = last[names[0]]
    T_q, T_k = steps["weights"].array.shape[-2:]
    looks = list(tokens or map(str, range(T_q)))
    story = Story(
        scenes=tuple(scene for scene in SCENES if steps.keys() >= set(scene.arrays)),
        steps=steps, tokens=looks, meaning=meaning, note=note, sequence=sequence,
        source_tokens=list(source_tokens or (looks if T_q == T_k else map(str, range(T_k)))),
        scale=float(last["scale"].array), opens=(0, 0),
    )  # fmt: skip
    if meaning:
        opens = (meaning.asker, 0)
    else:  # at the largest weight
        heads = range(story.num_heads)
        weights = np.array([story.matrix("weights", head) for head in heads])
        hidden = np.array([story.hidden(head) for head in heads])
        weights[(~hidden).sum(axis=-1) == 1] = 0  # a word without a choice
        head, word, _ = np.unravel_index(int(weights.argmax()), weights.shape)
        opens = (int(word), int(head))
    return Story(**{**vars(story), "opens": opens})


Piece = tuple[str, str]  # kind (text, word, number, term, name), and what is written
EPSILON = 5e-4  # a slope below it is written as 0.000
LEAST = 0.1  # a share that is named


def facts(story: Story, word: int, head: int) -> Callable[[str], list[Piece]]:
    """Return what gives the pieces of a fact by its name, about a word in a head."""
    of, other = story.meaning, (head + 1) % story.num_heads
    width = {part: step.array.shape[-1] for part, step in story.steps.items()}
    known = {
        "text": {"wish": of.wish, "goal": of.goal, "question": of.asks[head][word]} if of else {},
        "word": {"word": story.tokens[word], "asker": story.tokens[asker_of(story)],
                 "best": story.source_tokens[best_of(story, word, head)]},
        "number": {"head": str(head), "other": str(other), "scale": written(story.scale),
                   "off": " and head ".join(map(str, story.off())),
                   "D": str(width.get("x")), "width": str(width["q"])},
    }  # fmt: skip

    def say(name: str) -> list[Piece]:
        for kind, told in known.items():
            if name in told:
                return [(kind, told[name])]
        part, at = ("weights", other) if name == "others" else (name, head)
        return listed(story, part, word, at) or [("text", "nothing")]

    return say


def listed(story: Story, name: str, word: int, head: int) -> list[Piece]:
    """Return the numbers that matter most in a word's row, each with what it is of."""
    part = "out" if name == "wished" else name
    if part not in story.steps or word >= len(story.matrix(part, head)):
        return []
    row, labels = story.matrix(part, head)[word], story.columns(part, head)
    if part in ("scores", "weights"):
        seen = np.flatnonzero(~story.hidden(head)[word])
        return named(row[seen], [labels[j] for j in seen], is_share=part == "weights")
    most, least, write = (2, EPSILON, signed) if part[:2] == "d_" else (4, 0.005, written)
    kept = [c for c in largest(np.abs(row), most)[:most] if abs(row[c]) >= least]
    if name == "wished":
        kept = list(np.flatnonzero(story.matrix("d_out", head)[word]))
    if part in ("d_scores", "d_weights"):
        return _joined([("word", labels[j]) for j in kept], [write(row[j]) for j in kept])
    called = [f"number {label}" if label.isdigit() else label for label in labels]
    kept = sorted(kept)
    if part[:2] == "d_":
        return _joined([("text", called[c]) for c in kept], [write(row[c]) for c in kept])
    return [
        piece
        for c in kept
        for piece in (("text", ", "), ("number", write(row[c])), ("text", f" for {called[c]}"))
    ][1:]


def named(row: Array, words: Sequence[str], *, is_share: bool, most: int = 2) -> list[Piece]:
    """Return the words with the largest numbers, none of equal ones before others: cat 78%."""
    least, write = (LEAST, percent) if is_share else (-np.inf, written)
    found = largest(row, most, least)
    if len(found) > most:
        count, each = ("number", str(len(found))), ("number", write(row[found[0]]))
        return [count, ("text", " words, "), each, ("text", " each")]
    return _joined([("word", words[j]) for j in found], [write(row[j]) for j in found])


def _joined(labels: list[Piece], numbers: list[str]) -> list[Piece]:
    found: list[Piece] = []
    for label, number in zip(labels, numbers, strict=True):
        is_place = label[1].startswith("number ")  # two numbers side by side are hard to tell apart
        found += [("text", ", ")] * bool(found) + [label, ("text", " (" if is_place else " ")]
        found += [("number", number)] + [("text", ")")] * is_place
    return found


def largest(sizes: Array, most: int, least: float = -np.inf) -> list[int]:
    """Return the places of the largest numbers: of equal ones all, or none.

    More than `most` are returned only if all of these are the largest.
    """
    sizes = np.round(sizes, 9)
    order = [int(j) for j in np.argsort(-sizes, kind="stable")]
    next_one = sizes[order[most]] if len(order) > most else -np.inf
    kept = [j for j in order[:most] if sizes[j] > next_one and sizes[j] >= least]
    return kept or [j for j in order if sizes[j] == sizes[order[0]]]


def best_of(story: Story, word: int, head: int) -> int:
    """Return a word that a word looks at most."""
    return int(np.round(story.matrix("weights", head)[word], 9).argmax())


def asker_of(story: Story) -> int:
    """Return the word that the wish is about most."""
    if story.meaning:
        return story.meaning.asker
    if "d_out" not in story.steps:
        return 0
    return int(np.abs(story.matrix("d_out", 0)).max(axis=-1).argmax())


def conditions(
    story: Story, word: int, head: int, *, everything: bool = False
) -> Callable[[str], bool]:
    """Return what says whether a condition holds; a fact holds where it names numbers."""
    hidden, wished = story.hidden(head)[word], 0
    if "d_out" in story.steps:
        wished = int(story.matrix("d_out", 0).any(axis=-1).sum())
    found = {
        "example": bool(story.meaning), "cross": story.is_cross,
        "unlike": not story.is_cross and list(story.tokens) != list(story.source_tokens),
        "asker": word == asker_of(story), "single": story.num_heads == 1,
        "off": bool(story.off()), "silent": (head + 1) % story.num_heads in story.off(),
        "alone": (~hidden).sum() == 1, "hides": hidden.any(), "all": everything,
        "whole": abs(story.matrix("weights", head)[word].sum() - 1) < 5e-3,
        "lone": everything and wished == 1,
        "head": "d_heads" in story.steps and np.abs(story.matrix("d_heads", head)).max() >= EPSILON,
    }  # fmt: skip
    return lambda name: bool(found[name] if name in found else listed(story, name, word, head))


def rounded(value: float, digits: int) -> str:
    """Round a half up, as pages do."""
    found = str(Decimal(float(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))
    return found.replace("-", "\N{MINUS SIGN}" if float(found) else "")


def written(value: float) -> str:
    """Write a number: 0 is exactly zero, 0.00 is tiny."""
    if not np.isfinite(value):
        return str(value).replace("inf", "\N{INFINITY}").replace("-", "\N{MINUS SIGN}")
    for digits in (0, 1):
        if abs(value - round(value, digits)) < 1e-6 and (
            round(value, digits) or abs(value) < 1e-12
        ):
            return rounded(round(value, digits) + 0.0, digits)
    return rounded(value, 1 if abs(value) >= 10 else 2)


def signed(slope: float) -> str:
    """Write a slope with its sign: three decimals, or none."""
    text = rounded(slope, 0 if abs(slope - round(slope)) < 1e-6 else 3)
    return f"+{text}" if slope > 0 and text.strip("0.") else text


def percent(share: float) -> str:
    """Write a share of 1."""
    return f"{rounded(100 * share, 0)}%"
