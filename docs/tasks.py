"""The tasks of all exercises on one page, as `mha-numpy exercises start` hands them out.

A task is a line that opens; easy ones come first.
"""

from pathlib import Path

from mha_numpy.teach.exercises import EXERCISES

TOP = """# All tasks

What would you like to write? Open a task to see what you get: a signature, a description, and a
body to fill in or to fix. [Exercises](exercises.md) says how to check your answer, on your machine
or in the notebooks, and how to get a hint.
"""
LEVELS = {
    1: "a line or two",
    2: "one idea",
    3: "several steps",
    4: "a derivation, or patience",
    5: "an evening",
}
TASK = """<details class="row"><summary><b>{one.title}</b> \
<span><code>{one.id}</code> {one.minutes} min</span></summary>

({one.id})=

{after}```python
{one.stub_source}
```

</details>
"""


def write_tasks(page: Path) -> None:
    """Write the page for Sphinx."""
    parts = [TOP]
    for level, about in LEVELS.items():
        parts.append(f"## Level {level}: {about}\n")
        for one in (one for one in EXERCISES if one.difficulty == level):
            links = ", ".join(f"[{needed}](#{needed})" for needed in one.needs)
            parts.append(TASK.format(one=one, after=f"Best after {links}.\n\n" if links else ""))
    page.write_text("\n".join(parts), encoding="utf-8")
