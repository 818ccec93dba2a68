"""Write docs/verdicts.md: wrong submissions, and what a check says about each.

python docs/examples/verdicts.py
"""

import re
import tomllib
from pathlib import Path

import numpy as np

from mha_numpy.tables import Table
from mha_numpy.teach.diagnosis.edits import apply_edits
from mha_numpy.teach.exercises import Verdict, find_exercise, judge
from mha_numpy.teach.exercises.verdict import stages_table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "verdicts.md"
SHOWN = {  # exercise: which of its wrong submissions, counted from 0, and what each does wrong
    "scores": {0: "Divides by d_k, not by its root", 4: "Divides by the root twice"},
    "softmax": {1: "Starts looking for the maximum at 0", 9: "Gives hidden cells exp(0)"},
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
CLUE = "a clue"
REMARKS = ("likely cause", "clue", "and also", "evidence")  # what is not folded
TOP = f"""# What a check says

Pick a mistake you might have made yourself, and see whether the check finds it. Here are
{sum(map(len, SHOWN.values()))} wrong answers, written by someone who did not know our list of
mistakes, and what the check said about each.

You get one of two things. A *likely cause* explains your answer: it's a known mistake, a small edit
to the right function, or arrays in the wrong order, and it reproduces **every** number you
returned. A *clue* doesn't explain anything yet. It is a fact about your numbers, such as a rule
that they break or the place where they start to be wrong. [Exercises](exercises.md) describes how
the check decides.

| mistake | the check finds |
|---|---|
"""
END = """
`python docs/examples/verdicts.py` runs every submission and writes this page. The submissions come
from [`tests/teach/exercises/foreign`](../tests/teach/exercises/foreign).

Back: [exercises](exercises.md).
"""


def page() -> str:
    """Judge all of them, and return the page."""
    rows, parts = [], []
    for exercise_id, chosen in SHOWN.items():
        file = ROOT / "tests/teach/exercises/foreign" / f"{exercise_id}.toml"
        found = [
            (mistake["what"], apply_edits(solution["code"], dict(mistake["edit"])))
            for solution in tomllib.loads(file.read_text(encoding="utf-8"))["solution"]
            for mistake in solution.get("mistake", ())
        ]
        for place, title in chosen.items():
            what, code = found[place]
            verdict = judged(exercise_id, code)
            anchor = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
            rows.append(f"| [{title}](#{anchor}) | {finds(verdict)} |")
            parts.append(shown(title, what, code, verdict))
    return TOP + "\n".join([*rows, "", *parts]) + END


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
             "different order": "the wrong order"}  # fmt: skip
    return next((kind for words, kind in kinds.items() if words in told), CLUE)


def shown(title: str, what: str, code: str, verdict: Verdict) -> str:
    """Return one submission and its verdict: the first failure and the cause, the rest folded."""
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
    return f"""## {title}

Exercise `{verdict.exercise.id}`.{explained}

{quote}

<details><summary>The submission</summary>

```py
{code.strip()}
```

</details>
<details><summary>All checks</summary>

{table.to_markdown()}

{inputs}

</details>
"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
