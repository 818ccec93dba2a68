"""A head learns in the page: its gradients and its optimizer are the library's, and it learns."""

import json
import re

import numpy as np
import pytest

from mha_numpy.layers import LearnedPositions, cross_entropy_backward, cross_entropy_forward
from mha_numpy.look import HEADS, TOKENS
from mha_numpy.models.train.optimizers import adam_step
from mha_numpy.show.page import training_page
from mha_numpy.show.page.training import describe_training, training_step
from mha_numpy.show.page.widget import LEARNING_SCRIPTS as SCRIPTS
from mha_numpy.show.template import read
from tests.compare import assert_close

pytestmark = pytest.mark.slow

START = "() => { window.training = startTraining(document.querySelector('#train'), data); }"


@pytest.fixture
def page(browser):
    """Open an empty page with the scripts of the training; what they define is within reach."""
    page = browser.new_page()
    page.set_content('<section id="train"></section>')
    page.add_script_tag(content="\n".join(map(read, SCRIPTS)))
    page.add_script_tag(content=f"const data = {json.dumps(describe_training())};")
    yield page
    page.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_the_gradients_of_a_step_are_those_of_the_layers(page, seed):
    trace, head = training_step(seed)
    given = {
        s.name: s.array.ravel().tolist()
        for s in (*trace.constants, *trace.steps)
        if s.name in ("x_v", "targets", "places", "w_q", "w_k", "w_v", "w_o")
    }
    loss, gradients = page.evaluate(
        """(given) => {
            const { trace, params } = openTraining(data);
            const named = (name) => trace.arrays[trace.byName.get(name)];
            for (const [name, numbers] of Object.entries(given)) named(name).numbers.set(numbers);
            trace.compute();
            return [trace.loss(), Object.fromEntries(
                params.map((param) => [param.name, [...trace.gradientOf(param).data]]))];
        }""",
        given,
    )
    want = gradients_by_layers(trace, head)
    assert_close(loss, trace["loss"])
    assert gradients.keys() == want.keys()
    for name, gradient in gradients.items():
        assert_close(np.reshape(gradient, want[name].shape), want[name])


def gradients_by_layers(trace, head):
    """Compute the same step by layers, which know nothing of traces."""
    (places,) = (s.array for s in trace.constants if s.name == "places")
    digits, targets = trace["x_v"], trace["expected"].argmax(axis=-1)
    positions = LearnedPositions(*places.shape)
    positions.params["table"] = places
    placed = positions(digits)
    _, cache = cross_entropy_forward(head(placed, placed, digits), targets)
    head.zero_grads()
    d_query, d_key, _ = head.backward(cross_entropy_backward(np.array(1.0), cache).d_logits)
    positions.backward(d_query + d_key)
    return {"places": positions.grads["table"], **head.grads}


def test_its_optimizer_is_adam(page, rng):
    param, gradients = rng.normal(size=5), rng.normal(size=(4, 5))
    got = page.evaluate(
        """([param, gradients]) => {
            const memory = { mean: new Float64Array(5), square: new Float64Array(5) };
            gradients.forEach((gradient, i) => adamStep(param, gradient, memory, i + 1, 0.03));
            return param;
        }""",
        [param.tolist(), gradients.tolist()],
    )
    mean = square = np.zeros(5)
    for t, gradient in enumerate(gradients, start=1):
        param, mean, square = adam_step(param, gradient, mean, square, t, learning_rate=0.03)
    assert_close(np.array(got), param)


def test_every_seed_learns(page):
    """In 250 steps of the default rate; the antidiagonal is where it looks."""
    found = page.evaluate(
        """() => [0, 1, 2, 3, 4, 5, 6, 7].map((seed) => {
            const training = openTraining(data, seed);
            for (let step = 1; step < 250; step++) training.learn(data.learningRate);
            const { right, loss } = training.learn(data.learningRate);
            const passed = [...training.passedOn()];
            return { right, loss, passed, ...training.read([0, 0, 1, 2, 3, 3, 4, 5]) };
        })"""
    )
    for training in found:
        assert training["right"] > 0.95
        assert training["loss"] < 0.2
        assert training["antidiagonal"] > 0.9
        assert training["said"] == [5, 4, 3, 3, 2, 1, 0, 0]
        votes = np.reshape(training["passed"], (10, 10))
        assert (votes.argmax(axis=1) == np.arange(10)).all()  # each digit's is for itself


def test_the_reader_trains_and_starts_again(page):
    page.evaluate(START)
    told = page.locator(".train-told")
    assert "random" in told.inner_text()
    assert len(set(digits_said(page))) < 8

    page.get_by_role("button", name="One step").click()
    assert page.evaluate("training.steps()") == 1
    page.get_by_role("button", name="Continue").click()
    page.wait_for_function("!training.isRunning()", timeout=60_000)  # it ends by itself
    assert "every row looks at the mirrored place" in told.inner_text()
    assert page.locator(".train-maps").get_attribute("open") is not None
    assert page.evaluate("training.shareRight()") > 0.95
    assert digits_said(page) == list("62951413")
    page.get_by_role("textbox").fill("00112345")
    assert digits_said(page) == list("54321100")

    page.get_by_role("button", name="Start again").click()
    assert page.evaluate("training.steps()") == 0
    assert "random" in told.inner_text()
    assert digits_said(page) != list("54321100")


def test_the_reader_predicts_and_is_answered(page):
    page.evaluate(START)
    asked, start = page.locator("#train-asked"), page.locator(".train-start")
    assert "62951413. The outlined row has to say 1." in asked.inner_text()
    assert "Which of the 1s will it look at?" in asked.inner_text()
    assert "first" not in start.get_attribute("class")  # quiet, before a guess
    page.get_by_label("1, at place 2").check(force=True)
    assert "first" in start.get_attribute("class")
    assert "Your guess: the outlined row will look at the 2nd place." in asked.inner_text()
    marked = page.locator(".train-weights td.guess")
    assert marked.count() == 1
    assert marked.evaluate("td => [td.parentNode.rowIndex, td.cellIndex]") == [5, 2]
    start.click()
    page.wait_for_function("!training.isRunning()", timeout=60_000)
    assert page.get_by_role("radiogroup").is_hidden()  # no guess after the answer
    guessed, happened, _ = asked.text_content().splitlines()
    assert guessed == "Your guess: the 2nd place."
    what = "What happened: the outlined row went for the "
    assert re.match(what + r"1 in 4th place \((9\d|100)%\)", happened)
    page.get_by_role("textbox").fill("01234567")  # no digit is there twice
    assert asked.inner_text().startswith(f"{what}7 in 8th place (")


def test_what_happens_is_read_off_the_head(page):
    """A row has found its place when it gives it half of its weight, at the step that is said."""
    page.evaluate(START)
    told = page.locator(".train-told")
    once = page.get_by_role("button", name="One step")
    once.click()
    assert told.inner_text().startswith("Step 1: it still guesses.")
    page.evaluate(
        "() => { while (training.steps() < 85) document.querySelector('.train-once').click(); }"
    )
    for _ in range(20):
        once.click()
        cells = page.locator(".train-weights tbody td").all_inner_texts()
        half = [float(cells[8 * i + 7 - i]) - 0.5 for i in range(8)]  # of two decimals
        said = re.search(r"(\d) of the 8 rows|the first", told.inner_text())
        count = int(said[1] or 1) if said else 0
        assert sum(share > 0 for share in half) <= count <= sum(share >= 0 for share in half)
    assert count > 1


def test_on_a_phone_what_happens_is_in_sight_with_the_weights(show):
    """From the first step on: before it, the question has eight buttons."""
    page = show(training_page(), width=390, height=844)
    page.get_by_role("button", name="One step").click()
    for scrolled in (0, 250):
        page.evaluate("y => scrollTo(0, y)", scrolled)
        for name in ("start", "numbers", "told", "weights"):
            box = page.locator(f".train-{name}").bounding_box()
            assert box["y"] >= 0 or name in ("told", "weights")
            assert box["y"] + box["height"] < 844, name
    assert page.evaluate("() => document.documentElement.scrollWidth") == 390


def digits_said(page):
    """Read the digit at the end of each row."""
    return [words[0] for words in page.locator(".train-weights th.end").all_inner_texts()[1:]]


def test_a_rate_that_is_too_high_never_learns(page):
    page.evaluate(START)
    page.get_by_text("What a step does").click()
    page.locator(".train-rate").fill("-0.5")
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_function("training.steps() > 60", timeout=60_000)
    page.get_by_role("button", name="Pause").click()
    assert page.evaluate("training.shareRight()") < 0.9
    assert not page.evaluate("training.learnedAt()")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_its_pictures_have_the_colours_of_the_page(show, scheme):
    page = show(training_page(), color_scheme=scheme)
    shade = page.locator(
        ".train-weights tbody td"
    ).first.evaluate(  # about 1/8 of the head's colour
        """(cell) => {
            const ctx = new OffscreenCanvas(1, 1).getContext("2d");
            ctx.fillStyle = getComputedStyle(cell).backgroundColor;
            ctx.fillRect(0, 0, 1, 1);
            return [...ctx.getImageData(0, 0, 1, 1).data].slice(0, 3);
        }"""
    )
    at = ["light", "dark"].index(scheme)
    sunk, fill = (
        np.array([int(color[at][i : i + 2], 16) for i in (1, 3, 5)])
        for color in (TOKENS["sunk"], HEADS[0][2])
    )
    share = (shade - sunk) / (fill - sunk)
    assert 0.05 < share.min() <= share.max() < 0.2
