"""A page for each experiment, from its declaration and its stored result; and a list of all."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from mha_numpy.models.experiments import EXPERIMENTS, Chart, Experiment, Result, load_result
from mha_numpy.models.experiments.captions import CAPTIONS
from mha_numpy.models.experiments.report import measured_table
from mha_numpy.models.experiments.rounding import NAMES, ROUNDING
from mha_numpy.models.train import load_trained
from mha_numpy.show.pictures import experiment_chart, precision_atlas, weights_over_picture

PAGE = """# {one.title}

> {one.claim}

**In short:** {one.answer}

{sections}

## How it is done

{one.method} All of this is repeated with {seeds} seeds.

The claim comes from: {one.said_by}. {letters}

Repeat it on your computer, in about {minutes} on two cores:

```
mha-numpy experiment {one.name}
```

For other seeds, add `--first-seed 5`. The program says which of the sentences above hold with them.

<details class="row"><summary><b>All numbers</b> <span>mean of {seeds} seeds, and the interval \
in which it lies, 95% sure</span></summary>

{measures}

{table}

</details>
"""
NUMBERS = """<details class="row"><summary><b>Numbers of this chart</b> \
<span>each point of the bold lines</span></summary>

{}

</details>
"""
ATLAS = """<details class="row"><summary><b>{name}</b> <span>{kinds}</span></summary>

{pictures}

</details>
"""
LETTERS = "(A letter is a text of [coverage](../coverage.md).)"
MOST = 8  # points of a chart in a table
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
    return PAGE.format(
        one=one,
        sections="\n\n".join(_sections(one, result)),
        letters=LETTERS if re.match(r"[A-E]\b", one.said_by) else "",
        seeds=len(result.seeds),
        measures="\n".join(f"- *{name}*: {unit}" for name, unit in one.measures.items()),
        minutes=_in_minutes(result.seconds),
        table=_as_markdown(table.columns, table.rows),
    )


def _sections(one: Experiment, result: Result) -> Iterator[str]:
    """Yield charts with what they show, in the order of the findings; the first has no heading.

    A chart without a heading belongs to the one before it. A page's own picture comes first.
    """
    findings = [found for found in one.findings(result) if found.holds]
    if one.name in OWN:
        first, *rest = OWN[one.name]()
        yield first
        yield "\n\n".join(found.text for found in findings if found.chart is None)
        yield from rest
    findings = [found for found in findings if found.chart is not None]
    heads = [i for i, chart in enumerate(one.charts) if chart.point or i == 0]
    head_of = [max(head for head in heads if head <= i) for i in range(len(one.charts))]
    for place, head in enumerate(dict.fromkeys(head_of[found.chart] for found in findings)):
        if place:
            yield f"## {one.charts[head].point}"
        texts = [found.text for found in findings if head_of[found.chart] == head]
        charts = [i for i in range(len(one.charts)) if head_of[i] == head]
        for i in charts:
            yield experiment_chart(one.name, i)._repr_html_()
            if i == head:
                yield "\n\n".join(texts)
            yield NUMBERS.format(_points(one.charts[i], result))


def _points(chart: Chart, result: Result) -> str:
    """Return the means that a chart draws; of many, some from the first to the last."""
    at = np.unique(np.linspace(0, len(chart.x) - 1, min(len(chart.x), MOST)).round().astype(int))
    rows = [
        [name, *(f"{mean:.3g}" for mean in runs.mean(axis=0)[at])]
        for name, runs in chart.runs_of(result).items()
    ]
    return _as_markdown([chart.x_label, *(f"{chart.x[i]:g}" for i in at)], rows)


def _atlas() -> Iterator[str]:
    """Yield the atlas of one format, then that of all others, and bounds, to be unfolded."""
    shown = "bfloat16"
    yield precision_atlas(shown)._repr_html_()
    yield "## Other formats, and bounds"
    for name in (shown, *(name for name in NAMES if name != shown)):
        kinds = {"error": "measured", "bound": "what bounds allow"}
        if name == shown:
            del kinds["error"]
        pictures = (precision_atlas(name, kind=kind)._repr_html_() for kind in kinds)
        yield ATLAS.format(name=name, kinds=", ".join(kinds.values()), pictures="\n".join(pictures))
    yield "## All nine steps together"


def _captioner_at_work() -> Iterator[str]:
    captioner = load_trained("captions")
    model, task = captioner.model, captioner.task
    scene = task.read("red square left of blue circle", rng=4)
    said = model(*task.batch_of(scene).inputs)[0].argmax(axis=-1)
    weights = model.decoder[0].cross_attention.layer.weights[0]
    note = "The trained captioner that comes with the package, average of its four heads."
    picture = weights_over_picture(task.pictures(scene)[0], weights, task.words(said), note=note)
    yield picture._repr_html_()


OWN = {CAPTIONS.name: _captioner_at_work, ROUNDING.name: _atlas}


def _as_markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _in_minutes(seconds: float) -> str:
    minutes = max(1, round(seconds / 60))
    return "a minute" if minutes == 1 else f"{minutes} minutes"
