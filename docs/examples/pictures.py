"""Draw the films and pictures of README and the docs: docs/pictures/*.svg.

python docs/examples/pictures.py [NAME ...]

The picture of heads is drawn from docs/data, which docs/heads_data.py writes; the verdict needs the
submissions of tests/teach. The kernels' pictures were drawn once; ratios.svg is a panel of what
mha-numpy bench --chart writes, and random-calls*.svg are what --sweep 100 draws for a phone.
"""

import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mha_numpy.core import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    RopeOptions,
    YarnScaling,
    rope_forward,
    softmax_forward,
)
from mha_numpy.dtypes import Array
from mha_numpy.models.train import load_trained
from mha_numpy.show.page import stored_report
from mha_numpy.show.pictures import (
    Picture,
    arrows,
    film,
    matrices,
    precision_atlas,
    sharing_map,
    wavelength_chart,
    weights_by_head,
    weights_over_picture,
)
from mha_numpy.show.pictures.svg import MARGIN, PHONE, Drawing
from mha_numpy.show.scenes import story_of
from mha_numpy.show.walk import walk
from mha_numpy.teach.diagnosis.mutants import apply_edits
from mha_numpy.teach.exercises import find_exercise, judge

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "pictures"
CHOSEN = 14  # of the wrong submissions
NAMED = 0, 2  # layer and head that the text speaks of
CELL, BETWEEN, LEFT = 1.4, 2.6, 20  # of the picture of heads
GROWN = {"heads": 1.9, "steps": 1.4}  # on a wide page
STEPS = {  # of attention, below the array that each reads; and whether a step is an option
    "q": [("1 Match", "compare with each key", False)],
    "scores": [("2 Softcap", "keep scores small", True), ("3 Bias", "add to each score", True),
               ("4 Softmax", "hide, then share out", False)],
    "weights": [("5 Dropout", "switch cells off", True),
                ("6 Mix", "add up shares of values", False)],
    "heads": [("7 Head gate", "turn a head down", True)],
}  # fmt: skip
TURNS = 6  # positions
TRAINED = 8192  # tokens: the texts that Llama 3 was trained on, at first
NAMES, BAND = 86, 32  # units: the column of names, and the height of a step


def draw_film(*, back: bool = False) -> Picture:
    """Draw the example's way through attention, or the way back from a goal."""
    seen = walk()
    story = story_of(seen.trace, tokens=seen.tokens, meaning=seen.meaning, note=seen.note)
    return film(story, back=back)


def draw_weights() -> Picture:
    """Draw what the trained translator looks at."""
    seen = walk("three hundred forty-two", model="numbers")
    return weights_by_head(
        seen.weights, seen.tokens, seen.source_tokens, query_name=seen.query_name,
        key_name=seen.key_name, note=seen.note,
    )  # fmt: skip


def draw_captions() -> Picture:
    """Draw what the trained captioner looks at while it writes."""
    trained = load_trained("captions")
    model, task = trained.model, trained.task
    scene = task.read("red square left of blue circle", rng=4)
    written = task.words(model(*task.batch_of(scene).inputs)[0].argmax(axis=-1))
    weights = model.decoder[0].cross_attention.layer.weights[0]
    note = f"Trained: {trained.origin}."
    return weights_over_picture(task.pictures(scene)[0], weights, written, note=note)


def draw_heads() -> Picture:
    """Draw all heads of MiniLM on one sentence, a row for each layer."""
    data = stored_report(ROOT / "docs" / "data" / "minilm-heads.json").data
    text = data["texts"][0]
    drawn = Drawing(
        f'72 heads of MiniLM on "{text["name"]}"',
        "A picture for each head: rows look, columns are looked at. In layer 0, head 2 looks at "
        "the token before; many later heads look at the first token. A colour is a pattern; the "
        "start, the end and full stops are grey.",
    )
    drawn.text(MARGIN, MARGIN + 12, "12 heads in each of 6 layers", "s")
    T = len(text["labels"])
    is_aside = np.isin(text["labels"], ["[CLS]", "[SEP]", "."])
    for number, layer in enumerate(text["weights"]):
        weights = np.reshape(layer, (-1, T, T)) / 1000
        side = weights.shape[-1] * CELL
        top = MARGIN + 40 + number * (side + BETWEEN)
        drawn.text(MARGIN, top + side / 2 + 5, str(number), "s")
        for h, head in enumerate(weights):
            color = data["families"][text["families"][number][h]][1]
            left = MARGIN + LEFT + h * (side + BETWEEN)
            if number == 0:
                drawn.text(left + side / 2, MARGIN + 33, str(h), "s", align="middle")
            token = "plain" if color is None else f"head-{color}"
            most = head[:, ~is_aside].max() if color is not None else head.max()
            shares = head / most * np.where(is_aside & (color is not None), -1, 1)  # less is grey
            drawn.cells((left, top), shares, token, (CELL, CELL), 0)
            if (number, h) == NAMED:
                frame = left - 2, top - 2, side + 4, side + 4
                drawn.box(*frame, stroke="ink", thick=2, rx=3)
    return Picture([drawn], alt=drawn.desc)


def draw_verdict() -> Picture:
    """Draw what a check says of a wrong submission, with the first array that differs."""
    file = ROOT / "tests" / "teach" / "exercises" / "foreign" / "attention-backward.toml"
    solutions = tomllib.loads(file.read_text(encoding="utf-8"))["solution"]
    found = [
        apply_edits(solution["code"], dict(mistake["edit"]))
        for solution in solutions for mistake in solution.get("mistake", ())
    ]  # fmt: skip
    names: dict[str, object] = {"np": np}
    exec(found[CHOSEN], names)
    exercise = find_exercise("attention-backward")
    verdict = judge(exercise, lambda: names[exercise.function_name])
    assert verdict.difference is not None
    panels = {name: getattr(verdict.difference, name) for name in ("expected", "actual")}
    panels = {"expected": panels["expected"], "yours": panels["actual"],
              "difference": panels["actual"] - panels["expected"]}  # fmt: skip
    picture = matrices(panels, title=f"{verdict.title}: {verdict.difference.title}")
    told = [f"{name}: {text}" for name, text in verdict.remarks.items()]
    return Picture(picture.panels, title=picture.title, notes=told, alt=picture.alt)


def draw_steps() -> Picture:
    """Draw the row of It on its way through attention's seven steps, and its gradients."""
    seen = walk()
    arrays = {array.name: array.array for array in seen.trace}
    asker, features = seen.tokens.index("It"), seen.meaning.matched[0]
    drawn = Drawing(
        "Attention in seven steps, down and back up",
        "From its query, It gets a score for each word, then a weight for each, then a mixture of "
        "values. Each array has its gradient below it. Match, softmax and mix are always there; "
        "softcap, bias, dropout and head gate are options.",
    )
    y, right = float(MARGIN), PHONE - MARGIN
    for name, steps in STEPS.items():
        is_cells = name in ("scores", "weights")
        pitch = (right - NAMES) / len(seen.tokens if is_cells else features)
        for place, label in enumerate(seen.tokens if is_cells else features):
            middle = NAMES + pitch * (place + 0.5) - 1
            drawn.text(middle, y + 13, label, "w" if is_cells else "s", align="middle")
        y += 20
        for array, high in ((name, 28), (f"d_{name}", 24)):
            row = arrays[array][0, 0, asker]
            drawn.text(MARGIN, y + high / 2 + 5, array, "m" if array == name else "sh")
            shares = (row / abs(row).max())[None]
            drawn.cells((NAMES, y), shares, "fill-0", (pitch - 2, high))
            for place, value in enumerate(row):
                text = f"{value:.2f}".replace("0.", ".")
                text = f"{value:.3g}" if value % 1 == 0 or value > 1 else text
                text = text.replace("-", "\N{MINUS SIGN}")
                kind = "n s3" if value else "n s3 z"
                drawn.text(NAMES + pitch * (place + 0.5) - 1, y + high / 2 + 5, text, kind)
            y += high + 2
        y += 8
        for title, about, is_option in steps:
            dashes = ' stroke-dasharray="4 3"' if is_option else ""
            color, thick = ("edge", 1) if is_option else ("ink", 1.5)
            drawn.add(
                f'<rect style="fill:none;stroke:{drawn.color(color)};stroke-width:{thick}"{dashes} '
                f'x="{MARGIN}" y="{y:g}" width="{right - MARGIN}" height="{BAND - 6}" rx="7"/>',
                right, y + BAND,
            )  # fmt: skip
            for x, arrow in (
                (MARGIN + 8, "\N{DOWNWARDS ARROW}"),
                (right - 16, "\N{UPWARDS ARROW}"),
            ):
                drawn.text(x, y + 18, arrow, "s")
            drawn.text(MARGIN + 26, y + 18, title, "s i" if is_option else "s i b")
            drawn.text(right - 26, y + 18, about, "s", align="end")
            y += BAND
        y += 6
    return Picture([drawn], alt=drawn.desc)


def draw_turns() -> Picture:
    """Draw how RoPE turns the two pairs of a query of width 4, from one position to the next."""
    query = np.broadcast_to([1.0, 0.0, 1.0, 0.0], (TURNS, 4))
    out, _ = rope_forward(query, base=100, interleaved=True)  # (T, d)
    pairs = {"pair 0": out[:, :2], "pair 1": out[:, 2:]}
    return arrows(pairs, title="One query at positions 0 to 5")


def draw_wavelengths() -> Picture:
    """Draw what scalings to 8 times the length do to the waves of Llama 3."""
    before = RopeOptions(base=500000.0, length=8 * TRAINED)
    scalings = {
        "linear": LinearScaling(8.0), "dynamic": DynamicScaling(1.0, TRAINED),
        "YaRN": YarnScaling(8.0, TRAINED), "Llama 3": Llama3Scaling(8.0, TRAINED),
    }  # fmt: skip
    after = {name: before._replace(scaling=scaling) for name, scaling in scalings.items()}
    return wavelength_chart(after, 128)


def draw_mistake(
    name: str, wrong: Callable[..., Any] | None = None, *, is_causal: bool = False
) -> Picture:
    """Draw the example's weights, as they should be or as a mistake makes them."""
    seen = walk()
    q, k = (next(one.array for one in seen.trace if one.name == name)[0, 0] for name in "qk")
    mask = np.tri(len(q), dtype=bool) if is_causal else np.ones((len(q), len(k)), bool)
    qk, d_k = q @ k.T, q.shape[-1]
    right, _ = softmax_forward(qk / d_k**0.5, mask=mask)
    weights = wrong(qk, d_k, mask) if wrong else np.where(mask, right, -np.inf)
    picture = matrices({name: weights}, row_labels=seen.tokens, column_labels=seen.tokens)
    (panel,) = picture.panels
    panel.parts = [part.replace("fill-x", "fill-0") for part in panel.parts]  # they are of head 0
    panel.used.add("fill-0")
    return Picture([panel], alt=picture.alt)


def shares(scores: Array, *, axis: int = -1) -> Array:
    """Return exp(scores), divided by its sums."""
    powers = np.exp(scores)
    return powers / powers.sum(axis=axis, keepdims=True)


PICTURES: dict[str, Callable[[], Picture]] = {
    "film": draw_film, "film-back": lambda: draw_film(back=True), "weights": draw_weights,
    "captions": draw_captions, "heads": draw_heads, "steps": draw_steps, "verdict": draw_verdict,
    "sharing": lambda: sharing_map(6, 3),
    "precision-atlas": lambda: precision_atlas("bfloat16", ("d_q", "d_k")),
    "turns": draw_turns, "wavelengths": draw_wavelengths,
    "weights-right": lambda: draw_mistake("right"),
    "weights-axis": lambda: draw_mistake(
        "wrong", lambda qk, d_k, mask: shares(qk / d_k**0.5, axis=0)
    ),
    "weights-scale": lambda: draw_mistake("wrong", lambda qk, d_k, mask: shares(qk / d_k)),
    "weights-causal": lambda: draw_mistake("right", is_causal=True),
    "weights-mask": lambda: draw_mistake(
        "wrong", lambda qk, d_k, mask: shares(qk / d_k**0.5 * mask), is_causal=True
    ),
}  # fmt: skip

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        svg = PICTURES[name]().svg(PHONE)  # readable on a phone, and not wider
        if name in GROWN:  # it has room to grow
            wide, high = map(int, re.findall(r'viewBox="0 0 (\d+) (\d+)"', svg)[0])
            size = f'width="{GROWN[name] * wide:.0f}" height="{GROWN[name] * high:.0f}"'
            old = f'viewBox="0 0 {wide} {high}" width="{wide}" height="{high}"'
            less = (6, wide - 10) if name == "heads" else (0, wide)  # margin
            svg = svg.replace(old, f'viewBox="{less[0]} 0 {less[1]} {high}" {size}', 1)
        (FOLDER / f"{name}.svg").write_text(svg, encoding="utf-8", newline="\n")
        print(f"{name}.svg")
