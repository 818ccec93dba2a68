"""Write docs/marks.md: sixty typical submissions, their marks, and a teacher's order.

python docs/examples/marks.py
"""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

import numpy as np

from mha_numpy.show.pictures.svg import MARGIN, PHONE, Drawing
from mha_numpy.tables import Table
from mha_numpy.teach.classroom.assignment import Assignment
from mha_numpy.teach.classroom.make import POINTS, READY
from mha_numpy.teach.classroom.marks import MARKS, rules
from mha_numpy.teach.classroom.results import Result, Task
from mha_numpy.teach.classroom.student import grade_one
from mha_numpy.teach.classroom.submissions import File
from mha_numpy.teach.diagnosis.mutants import apply_edits
from mha_numpy.teach.exercises import find_exercise
from mha_numpy.teach.exercises.child.limits import Limits

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "teach" / "classroom" / "typical.toml"
PAGE, PICTURE = ROOT / "docs" / "marks.md", ROOT / "docs" / "pictures" / "marks.svg"
HOMEWORK = {name.partition("-")[0]: ready.exercises for name, ready in READY.items()}
SECONDS = 3  # that a function may take: one of them has an endless loop
APART = 5  # of the submissions are listed, on whose marks a teacher and the rules agree least
GROWN = 1.8  # the picture, on a wide page
HIGH, LEFT = 200, 34  # of the picture: 100 percent, and the numbers next to it
TOP = """# Are the marks fair?

Would a teacher give the same marks? Sixty submissions, as students hand them in, were put into a
teacher's order before anyone looked at how marks are computed. The order has ten groups: everything
in group 1 is right, group 10 did none of the task, and all submissions in a group are equally good.
Then each submission was graded.

![{alt}](pictures/marks.svg)

Marks and order agree with a rank correlation of **{agree:.3f}** (Spearman's; 1 would be the same
order). Without the sentence about one known mistake it would be {without:.3f}. None of the {count}
submissions in group 10 gets more than {most:g}%.

Where do a teacher and the rules disagree most?

{apart}

## The rules, as students read them

{rules}

The percentages are in `assignment.toml`, under `[marks]`, and a teacher can change them:

```python
>>> from mha_numpy.teach.classroom.marks import MARKS, Values, points_of
>>> MARKS
{{'shape': 10, 'values': 80, 'robustness': 10, 'slip': 40}}
>>> points_of(Values(right=4, asked=6), {{"shape": True, "robustness": True}}, 30, MARKS)
20.0
>>> points_of(Values(right=4, asked=6, slips=2), {{"shape": True, "robustness": True}}, 30, MARKS)
23.2
>>> points_of(Values(right=6, asked=6), {{"shape": False, "robustness": True}}, 30, MARKS)
27.0

```

## The sixty submissions

Each is one function, or a whole homework. The column *teacher* shows roughly what a teacher would
give for it; only the order of the groups counts. The submissions and a reason for each are in
[`typical.toml`](../tests/teach/classroom/typical.toml).

"""
END = """
`python docs/examples/marks.py` grades every submission, and writes this page and its picture.

Back: [teaching](teaching.md).
"""


class Typical(NamedTuple):
    """A submission, its place in the teacher's order, and what it gets."""

    group: int  # 1 is best
    percent: int  # that a teacher would give, roughly
    of: str  # an exercise, or a homework
    name: str
    why: str
    result: Result

    @property
    def marks(self) -> float:
        """The percent of the points that it gets."""
        return round(100 * self.result.points / self.result.out_of, 1)


def graded(slip: float = MARKS["slip"], *, of: str = "", name: str = "") -> list[Typical]:
    """Grade all of them, or those of an exercise and name; `slip` is as in `MARKS`."""
    data = tomllib.loads(DATA.read_text(encoding="utf-8"))
    right = "".join(data["right"].values())
    found = []
    for one in data["submission"]:
        if of not in ("", one["of"]) or name not in ("", one["name"]):
            continue
        text = apply_edits(right, dict(one.pop("edits", []))) + one.pop("code", "")
        found.append(Typical(**one, result=grade(text, one["of"], slip)))
    return found


def without_slips(found: Sequence[Typical]) -> list[Typical]:
    """Return them with the marks that they would get without the rule about slips."""
    return [
        graded(0, of=one.of, name=one.name)[0] if any(f.kind for f in one.result.functions) else one
        for one in found
    ]


def grade(text: str, of: str, slip: float = MARKS["slip"]) -> Result:
    """Grade a text for an exercise or a homework, in the usual conventions."""
    exercises = {
        name: float(POINTS * find_exercise(name).difficulty) for name in HOMEWORK.get(of, (of,))
    }
    given = Assignment(of, of, exercises, {**MARKS, "slip": slip})
    files = (File("hw.py", text.encode()),)
    return grade_one(Task("", "", False, (), files, given, Limits(seconds=SECONDS), False, ""))


def agreement(found: Sequence[Typical]) -> float:
    """Return Spearman's rank correlation of the marks and the teacher's order."""
    order, marks = _ranks([-one.group for one in found]), _ranks([one.marks for one in found])
    return float(np.corrcoef(order, marks)[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray:
    """Return the place of each value; equal ones share theirs."""
    array = np.array(values)
    return (array[:, None] > array).sum(axis=1) + (array[:, None] == array).sum(axis=1) / 2


def drawn(found: Sequence[Typical]) -> Drawing:
    """Draw the marks against the teacher's order, a disc for each submission."""
    picture = Drawing(
        "Marks of sixty submissions in a teacher's order",
        "From left to right, ten groups as a teacher orders them, the best first. Each disc is a "
        "submission, and its height is its marks, from 100% to 0; a ring is what a teacher "
        "would give. The discs fall with the rings.",
    )
    groups = sorted({one.group for one in found})
    wide = (PHONE - LEFT - 2 * MARGIN) / len(groups)
    foot = MARGIN + 12 + HIGH
    for percent in range(0, 101, 20):
        y = foot - HIGH * percent / 100
        picture.text(MARGIN + LEFT - 8, y + 5, str(percent), "s", align="end")
        picture.box(MARGIN + LEFT, y, wide * len(groups), 1, fill="line")
    for place, group in enumerate(groups):
        members = [one for one in found if one.group == group]
        left = MARGIN + LEFT + place * wide
        picture.text(left + wide / 2, foot + 26, str(group), "s", align="middle")
        for number, one in enumerate(members):
            x = left + wide * (number + 0.5) / len(members)
            y = foot - HIGH * one.percent / 100
            ring = f'style="fill:none;stroke:{picture.color("soft")}"'
            picture.add(f'<circle {ring} cx="{x:.1f}" cy="{y:g}" r="4"/>')
            picture.mark(x, foot - HIGH * one.marks / 100, 0)
    picture.text(MARGIN + LEFT, foot + 48, "groups (disc: marks, ring: a teacher)", "s")
    return picture


def page(found: Sequence[Typical], without: float) -> str:
    """Return the page about them; `without` is the agreement without the rule about slips."""
    rows = [
        [
            f"{one.group}",
            f"`{one.of}`",
            f"{one.name}: {one.why}",
            f"{one.percent}",
            f"{one.marks:g}",
        ]
        for one in found
    ]
    columns = ["group", "of", "submission, and why a teacher puts it there", "teacher", "marks"]
    last = [one for one in found if one.group == max(one.group for one in found)]
    apart = sorted(found, key=lambda one: -abs(one.percent - one.marks))[:APART]
    top = TOP.format(
        alt=drawn(found).desc,
        agree=agreement(found),
        without=without,
        count=len(last),
        most=max(one.marks for one in last),
        apart="\n".join(
            f"- `{one.of}`, {one.name}: {one.marks:g}%, where a teacher would give about "
            f"{one.percent}%."
            for one in apart
        ),
        rules=fill(rules(MARKS), 98, initial_indent="> ", subsequent_indent="> "),
    )
    return top + Table("", columns, rows).to_markdown() + "\n" + END


if __name__ == "__main__":
    typical = graded()
    PAGE.write_text(page(typical, agreement(without_slips(typical))), encoding="utf-8")
    svg = drawn(typical).svg()
    wide, high = map(int, re.findall(r'viewBox="0 0 (\d+) (\d+)"', svg)[0])
    size = f'width="{GROWN * wide:.0f}" height="{GROWN * high:.0f}"'
    svg = svg.replace(f'width="{wide}" height="{high}"', size, 1)
    PICTURE.write_text(svg, encoding="utf-8", newline="\n")
    print(f"agreement {agreement(typical):.3f}")
