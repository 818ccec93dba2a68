"""Write docs/verdicts.md: wrong submissions, and what a check says about each.

python docs/examples/verdicts.py
"""

import tomllib
from pathlib import Path

import numpy as np

from mha_numpy.tables import plain
from mha_numpy.teach.diagnosis.edits import apply_edits
from mha_numpy.teach.exercises import find_exercise, judge

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "verdicts.md"
SHOWN = {  # exercise: which of its wrong submissions, counted from 0
    "scores": (0, 4), "softmax": (1, 9), "split-heads": (0,), "masks": (2,), "attention": (3,),
    "multi-head": (5,), "grouped-attention": (1,), "softmax-backward": (3,), "layer-norm": (4,),
    "attention-backward": (4, 9), "linear-backward": (5,), "multi-head-backward": (6,),
    "rope": (5,), "decode-step": (7,), "cross-entropy": (4,), "gelu": (3,), "adam-step": (6,),
    "to-gpt2": (4,),
}  # fmt: skip
TOP = f"""# What a check says

Here are {sum(map(len, SHOWN.values()))} wrong submissions of exercises, by someone who had not read
the list of known mistakes, each with the verdict that its author would see.
`python docs/examples/verdicts.py` runs every one of them and writes this page. They come from
[`tests/teach/exercises/foreign`](../tests/teach/exercises/foreign).
[Exercises](exercises.md) explains how a check arrives at its words.

A *likely cause* is a known mistake or a small edit of the right function. The check names one only
if it reproduces **every** number of the answer. If nothing does, the check reports what it can read
off the numbers: the first wrong step, or where an array is wrong, or by how much.
"""


def page() -> str:
    """Judge all of them, and return the page."""
    parts = [TOP]
    for exercise_id, chosen in SHOWN.items():
        file = ROOT / "tests/teach/exercises/foreign" / f"{exercise_id}.toml"
        found = [
            (mistake["what"], apply_edits(solution["code"], dict(mistake["edit"])))
            for solution in tomllib.loads(file.read_text(encoding="utf-8"))["solution"]
            for mistake in solution.get("mistake", ())
        ]
        parts += [shown(len(parts) + n, exercise_id, *found[i]) for n, i in enumerate(chosen)]
    return "\n".join(parts) + "\nBack: [exercises](exercises.md).\n"


def shown(number: int, exercise_id: str, what: str, code: str) -> str:
    """Return one submission and its verdict."""
    exercise = find_exercise(exercise_id)
    names: dict[str, object] = {"np": np}
    exec(code, names)
    verdict = judge(exercise, lambda: names[exercise.function_name])
    said = plain(verdict.sections)
    return (
        f"## {number}. {exercise_id}\n\n**{what[0].upper()}{what[1:]}.**\n\n"
        f"```py\n{code.strip()}\n```\n\n```text\n{said}\n```\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
