"""Write docs/verdicts.md: wrong submissions, and what a check says about each.

python docs/examples/verdicts.py
"""

import tomllib
from pathlib import Path

import numpy as np

from mha_numpy.tables import Table
from mha_numpy.teach.diagnosis.mutants import apply_edits
from mha_numpy.teach.exercises import Verdict, find_exercise, judge
from mha_numpy.teach.exercises.verdict import stages_table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "verdicts.md"
SHOWN = {  # exercise: which of its wrong submissions, counted from 0, and what each does wrong
    "scores": {0: "Divides by d_k, not by its root", 4: "Divides by the root twice"},
    "softmax": {1: "Starts looking for the maximum at 0", 9: "Gives hidden cells exp(0)",
                16: "Hides with a 0"},
    "split-heads": {0: "Interleaves the heads"},
    "masks": {2: "Combines causality and window with or"},
    "attention": {3: "Normalises over the queries"},
    "multi-head": {5: "Merges without a transpose"},
    "grouped-attention": {1: "Divides by the number of groups, not by their size"},
    "softmax-backward": {3: "Adds the row's sum instead of subtracting it"},
    "layer-norm": {4: "Doesn't reset a sum to 0 often enough"},
    "attention-backward": {
        4: "Multiplies weights by weights",
        9: "Keeps only the last part of a gradient",
    },
    "linear-backward": {5: "Leaves a token out of the bias gradient"},
    "multi-head-backward": {6: "Swaps two gradients in d_params"},
    "rope": {5: "Forgets a minus"},
    "decode-step": {7: "Merges the heads in the wrong order"},
    "cross-entropy": {4: "Counts ignored tokens in the mean"},
    "gelu": {3: "Squares instead of cubing"},
    "adam-step": {6: "Forgets the old param"},
    "to-gpt2": {4: "Transposes w_o"},
}  # fmt: skip
TOPICS = {  # how the rest is grouped
    "Scores and weights": ("scores", "softmax", "attention", "masks"),
    "Heads": ("split-heads", "multi-head", "grouped-attention"),
    "Gradients": (
        "softmax-backward", "attention-backward", "linear-backward", "multi-head-backward",
    ),
    "Positions and decoding": ("rope", "decode-step"),
    "Around attention": ("layer-norm", "gelu", "cross-entropy", "adam-step", "to-gpt2"),
}  # fmt: skip
PICTURED = {  # three that a picture of the weights gives away: which one, its pictures, what to see
    ("attention", 3): ("Softmax over the wrong axis", ("right", "axis"), """
In the right picture each row sums to 1, because a word shares out its own attention. In the wrong
one it is the *columns* that sum to 1, as if the words were competing for each key. If there are as
many queries as keys, both have the same shape, so only the numbers show it."""),
    ("scores", 0): ("The wrong scale", ("right", "scale"), """
Divide by d_k instead of its root, and the scores come out too small and the weights too even: *It*
gives 51% to *cat*, when it should give 78%. Every row still sums to 1, so the wrong picture
looks fine until you see it next to the right one."""),
    ("softmax", 16): ("A hidden word keeps a weight", ("causal", "mask"), """
A word may not see the words after it, so their weights must be 0 (hatched). The mistake sets a
hidden score to 0. But $e^0$ is 1, not 0, so *The* spreads its attention over all six words, and the
future leaks in."""),
}  # fmt: skip
CLUE = "a clue"
REMARKS = ("likely cause", "clue", "and also", "evidence")  # what is not folded
TOP = """# What a check says

Could you find a mistake by looking at the numbers? Start with these three, which are easy to make.
For each one you see the weights of our six words twice, once as they should be and once with the
mistake in; each row is one word looking. Underneath is what the check says about an answer like
that.
"""
REST = f"""## How much it can say

You get one of two things. A *likely cause* explains your answer: a known mistake, a small edit
to the right function, a rule by which your array follows from the right one, or arrays in the wrong
order: it reproduces **every** number you returned.
A *clue* doesn't explain anything yet; it's a fact about your numbers, such as a rule they break, or
where they start to go wrong. [Exercises](exercises.md) describes how the check decides.

The answers on this page, {sum(map(len, SHOWN.values()))} in all, were written by someone who did
not know our list of mistakes. Pick one that you might have made yourself.
"""
END = """
`python docs/examples/verdicts.py` runs every submission and writes this page. The submissions come
from [`tests/teach/exercises/foreign`](../tests/teach/exercises/foreign).

Back: [exercises](exercises.md).
"""


def page() -> str:
    """Judge all of them, and return the page."""
    found = {exercise_id: submissions(exercise_id) for exercise_id in SHOWN}
    parts = [TOP]
    for (exercise_id, place), (title, pictures, text) in PICTURED.items():
        drawn = " ".join(f"![weights: {name}](pictures/weights-{name}.svg)" for name in pictures)
        parts.append(f"## {title}\n\n{drawn}\n{text}\n")
        parts.append(shown("", *found[exercise_id][place], exercise_id))
    parts.append(REST)
    for topic, exercise_ids in TOPICS.items():
        parts.append(f"## {topic}\n")
        for exercise_id in exercise_ids:
            for place, title in SHOWN[exercise_id].items():
                if (exercise_id, place) not in PICTURED:
                    parts.append(shown(title, *found[exercise_id][place], exercise_id))
    return "\n".join(parts) + END


def submissions(exercise_id: str) -> list[tuple[str, str]]:
    """Return what each wrong submission of an exercise does wrong, and its code."""
    file = ROOT / "tests/teach/exercises/foreign" / f"{exercise_id}.toml"
    return [
        (mistake["what"], apply_edits(solution["code"], dict(mistake["edit"])))
        for solution in tomllib.loads(file.read_text(encoding="utf-8"))["solution"]
        for mistake in solution.get("mistake", ())
    ]


def judged(exercise_id: str, code: str) -> Verdict:
    """Return what a check says about one submission."""
    exercise = find_exercise(exercise_id)
    names: dict[str, object] = {"np": np}
    exec(code, names)
    return judge(exercise, lambda: names[exercise.function_name])


def finds(verdict: Verdict) -> str:
    """Return what kind of cause the check names."""
    told = verdict.remarks.get("evidence", verdict.remarks.get("likely cause", ""))
    kinds = {"this mistake": "a known mistake", "this edit": "a small edit",
             "said of an array": "a rule", "different order": "the wrong order"}  # fmt: skip
    return next((kind for words, kind in kinds.items() if words in told), CLUE)


def shown(title: str, what: str, code: str, exercise_id: str) -> str:
    """Return one submission and its verdict; one that has a title is a line that opens."""
    verdict = judged(exercise_id, code)
    failed = next(stage for stage in verdict.stages if stage.passed is False)
    told = [f"**FAIL, {failed.name}:** {failed.finding}"]
    told += [
        f"**{name.capitalize()}:** {text}" for name, text in verdict.remarks.items()
        if name in REMARKS
    ]  # fmt: skip
    is_said = what[:12].lower() == title[:12].lower() and len(what) < 2 * len(title)
    is_name = "_" in what.split()[0]  # of an array, which keeps its small letter
    explained = "" if is_said else f" {what if is_name else what[0].upper() + what[1:]}."
    checks = stages_table("", verdict.stages)
    table = Table("", ["check", "", "finding"], [[row[1], row[0], row[2]] for row in checks.rows])
    inputs = next((f"{name[0].upper()}{name[1:]}: {text}" for name, text in verdict.remarks.items()
                   if name.startswith("input ")), "")  # fmt: skip
    quote = "\n>\n".join(f"> {line}" for line in told)
    top, bottom = "", ""
    if title:
        line = f"<summary><b>{title}</b> <span>{finds(verdict)}</span></summary>"
        top = f'<details class="row">{line}\n\nExercise `{exercise_id}`.{explained}\n\n'
        bottom = "\n</details>\n"
    return f"""{top}{quote}

<details><summary>The submission</summary>

```py
{code.strip()}
```

</details>
<details><summary>All checks</summary>

{table.to_markdown()}

{inputs}

</details>
{bottom}"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
