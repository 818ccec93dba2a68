"""A page for each experiment, from its declaration and its stored result; and a list of all."""

from pathlib import Path

from mha_numpy.models.experiments import EXPERIMENTS, Experiment, Result, load_result
from mha_numpy.models.experiments.report import measured_table
from mha_numpy.show.pictures import experiment_chart

PAGE = """# {one.title}

> {one.claim}

Said by: {one.said_by}. (A letter stands for a text, as in [coverage](../coverage.md).)

**In short:** {one.answer}

## What it shows

{first}

{findings}

{others}

## How it is done

{one.method} Everything is done with {seeds} seeds.

Measured are:

{measures}

To do it again, which takes about {minutes} on two cores:

```
mha-numpy experiment {one.name}
```

For other seeds, add `--first-seed 5`. The program says whether each of the sentences above holds.

<details class="row"><summary><b>All numbers</b> <span>mean of {seeds} seeds, and the interval \
in which it lies, 95% sure</span></summary>

{table}

</details>
"""
ENTRY = "**[{one.title}](experiments/{one.name}.md)** *{one.claim}* {one.answer}\n"


def write_experiments(folder: Path, index: Path) -> None:
    """Write the pages for Sphinx, and add the list of them to the index."""
    folder.mkdir()
    entries = []
    for name, one in EXPERIMENTS.items():
        (folder / f"{name}.md").write_text(_page(one, load_result(name)), encoding="utf-8")
        entries.append(ENTRY.format(one=one))
    text = index.read_text(encoding="utf-8")
    index.write_text(text.replace("<!-- all -->", "\n".join(entries)), encoding="utf-8")


def _page(one: Experiment, result: Result) -> str:
    table = measured_table(one, result)
    first, *others = (experiment_chart(one.name, i)._repr_html_() for i in range(len(one.charts)))
    rows = [table.columns, ["---"] * len(table.columns), *table.rows]
    return PAGE.format(
        one=one,
        findings="\n".join(f"- {found.text}" for found in one.findings(result) if found.holds),
        first=first,
        others="\n\n".join(others),
        seeds=len(result.seeds),
        measures="\n".join(f"- *{name}*: {unit}" for name, unit in one.measures.items()),
        minutes=_in_minutes(result.seconds),
        table="\n".join(f"| {' | '.join(row)} |" for row in rows),
    )


def _in_minutes(seconds: float) -> str:
    minutes = max(1, round(seconds / 60))
    return "a minute" if minutes == 1 else f"{minutes} minutes"
