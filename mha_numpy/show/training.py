"""The report of a training, and the files that it writes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.models import generate
from mha_numpy.models.train.history import History
from mha_numpy.models.train.recipes import Trained
from mha_numpy.tables import Table

FILES = ("params.npz", "loss.png", "loss.svg", "measured.png", "measured.svg")
BEGINNING, SAMPLE = 16, 160  # characters that a text model reads, and writes


def sections(trained: Trained, seconds: float) -> Iterator[Table | str]:
    """Yield the parts of the report: the last measurements, head scores, a sample."""
    history = trained.history
    measured = {name: n for name, n in history.measures[-1].items() if name != "step"}
    heads = {name: n for name, n in measured.items() if name[-1].isdigit()}
    rows = [["loss", f"{np.mean(history.losses[-20:]):.4f}"]] if history.losses else []
    rows += [[name, f"{n:.4f}"] for name, n in measured.items() if name not in heads]
    rows += [["steps", f"{history.step:,}"], ["seconds", f"{seconds:.1f}"]]
    yield Table(f"{trained.name}: measured after the last step", ["", ""], rows)
    if heads:
        yield _head_scores(heads)
    if trained.name == "text":
        ids = trained.task.held_out[None, :BEGINNING]
        written = generate(trained.model, ids, SAMPLE, temperature=0.8, rng=0)
        yield f"It writes, at temperature 0.8:\n{trained.task.decode(written[0])}"


def _head_scores(heads: dict[str, float]) -> Table:
    scores = list(dict.fromkeys(name.rsplit(" ", 1)[0] for name in heads))
    places = list(dict.fromkeys(name.rsplit(" ", 1)[1] for name in heads))
    rows = [[place, *(f"{heads[f'{score} {place}']:.2f}" for score in scores)] for place in places]
    return Table("Scores of each head (layer.head)", ["head", *scores], rows)


def _lines(history: History) -> dict[str, Array]:
    """Return the measurements over time; of a score per head, the best head's."""
    names = [name for name in history.measures[-1] if name != "step"]
    lines: dict[str, Array] = {}
    for name in names:
        curve = history.curve(name)[1]
        if name[-1].isdigit():
            name = f"{name.rsplit(' ', 1)[0]}, best head"
        lines[name] = np.maximum(lines[name], curve) if name in lines else curve
    return lines


def save(trained: Trained, folder: Path) -> list[Path]:
    """Write the params in float16, and pictures of the loss and the measurements."""
    from mha_numpy.show.pictures import line_chart
    from mha_numpy.show.pictures.save import save_all

    history = trained.history
    steps = np.arange(1, history.step + 1)
    figures = {"loss": line_chart(
        steps, {"loss": np.array(history.losses)},
        title=f"{trained.name}: the loss of each batch", x_label="step", y_label="nats",
    )}  # fmt: skip
    lines = _lines(history)
    figures["measured"] = line_chart(
        [measure["step"] for measure in history.measures], lines,
        title=f"{trained.name}: measured while training", x_label="step", y_label="",
    )  # fmt: skip
    paths = save_all(folder, figures)
    trained.model.save(folder / "params.npz", dtype=np.float16)
    return [folder / "params.npz", *paths]
