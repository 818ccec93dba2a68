"""The tasks of all exercises on one page, as `mha-numpy exercises start` hands them out."""

from pathlib import Path

from mha_numpy.teach.exercises import EXERCISES

TOP = """# All tasks

These are the exercises as you get them. [Exercises](exercises.md) says how to check your answer, on
your machine or in the notebooks, and how to get a hint.
"""
TASK = """## {one.id}

**{one.title}.** Difficulty {one.difficulty} of 5, about {one.minutes} minutes{after}.

```python
{one.stub_source}
```
"""


def write_tasks(page: Path) -> None:
    """Write the page for Sphinx."""
    parts = [TOP]
    for one in EXERCISES:
        links = ", ".join(f"[{needed}](#{needed})" for needed in one.needs)
        parts.append(TASK.format(one=one, after=f", after {links}" if links else ""))
    page.write_text("\n".join(parts), encoding="utf-8")
