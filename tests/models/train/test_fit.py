import io
import re
import signal
import sys

import numpy as np
import pytest

from mha_numpy.errors import ConfigError, MhaError, TrainingError
from mha_numpy.layers import Dropout, Embedding, Layer, Linear
from mha_numpy.models.train import IGNORED, SGD, AdamW, Batch, fit, loss_and_gradients
from tests.models.train.models import T, V, bytes_of, count_up, make_model, train


def test_what_is_not_asked_teaches_nothing():
    model = make_model().eval()
    (ids,), targets = count_up(np.random.default_rng(0))
    asked = np.where(np.arange(T) < 2, targets, IGNORED)
    loss = loss_and_gradients(model, Batch((ids,), asked))
    grads = dict(model.named_grads())
    shorter = loss_and_gradients(model, Batch((ids[:, :2],), targets[:, :2]))
    assert loss == pytest.approx(shorter)
    for name, gradient in model.named_grads():
        np.testing.assert_allclose(grads[name], gradient, atol=1e-14, err_msg=name)


def test_it_learns_measures_and_stops():
    model, seen, in_training = make_model(), [], []

    def draw_batch(rng):
        in_training.append(model.training)
        return count_up(rng)

    def measure(model, step):
        seen.append((step, any(layer.training for layer in model.layers())))
        (ids,), targets = count_up(np.random.default_rng(1))
        return {"right": (model(ids).argmax(-1) == targets).mean()}

    history = train(
        model, draw_batch, steps=400, measure=measure, measure_every=20,
        stop=lambda history: history.measures[-1]["right"] == 1,
    )  # fmt: skip
    steps, right = history.curve("right")
    assert right[0] < 0.5
    assert right[-1] == 1 > right[-2]
    assert history.step == steps[-1] < 400
    assert list(steps) == list(range(0, history.step + 1, 20))
    assert seen == [(step, False) for step in steps]
    assert len(history.norms) == len(history.losses) == history.step
    assert all(in_training)
    assert not any(layer.training for layer in model.layers())


def test_the_last_step_is_measured_once():
    for steps, expected in {5: [0, 3, 5], 6: [0, 3, 6]}.items():
        history = train(
            make_model(), steps=steps, measure=lambda *_: {"one": 1}, measure_every=3
        )  # fmt: skip
        assert [measure["step"] for measure in history.measures] == expected


class Odd(Layer):
    """Pass a gradient that is not finite, or, by chance, such an output."""

    def __init__(self, *, forward=False):
        super().__init__()
        self.odd_forward = forward
        self.rng = np.random.default_rng(0)

    def forward(self, x):
        return x * (np.inf if self.odd_forward and self.rng.random() > 0.9 else 1)

    def backward(self, d_out):
        return d_out * (1 if self.odd_forward else np.nan)


class WithOdd(Layer):
    """A model that is odd between two layers."""

    def __init__(self, odd):
        super().__init__()
        self.embedding = Embedding(V, 3, rng=0)
        self.middle = [Dropout(0.5, rng=0), odd]
        self.unembedding = Linear(3, V, rng=0)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.middle:
            x = layer(x)
        return self.unembedding(x)

    def backward(self, d_logits):
        d_x = self.unembedding.backward(d_logits)
        for layer in self.middle[::-1]:
            d_x = layer.backward(d_x)
        self.embedding.backward(d_x)


def test_a_loss_that_is_not_finite_names_step_and_layer():
    model = WithOdd(Odd(forward=True))
    before = []

    def draw_batch(rng):
        before.append(bytes_of(model))
        return count_up(rng)

    with pytest.raises(
        TrainingError, match=r"got loss nan, which began in the forward of middle\.1;"
    ) as e:
        train(model, draw_batch, steps=1000)
    assert str(e.value).startswith(f"step {len(before)}: ")
    assert len(before) > 1
    assert bytes_of(model) == before[-1]
    assert "forward" not in vars(model.embedding)  # nothing watches it any more
    assert not model.training


def test_a_gradient_that_is_not_finite_names_step_and_layer():
    with pytest.raises(TrainingError, match=r"^step 1: .* norm nan, .* the backward of middle\.1;"):
        train(WithOdd(Odd()))


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_a_batch_that_is_not_finite_is_to_blame(odd):
    model = Linear(3, V, rng=0)
    x = np.ones((2, 4, 3))
    x[1, 2, 0] = odd
    batch = Batch((x,), np.zeros((2, 4), int))
    with pytest.raises(TrainingError) as error:
        fit(model, lambda rng: batch, steps=1, optimizer=SGD(model, 0.1), progress=False)
    assert str(error.value) == (
        "step 1: expected finite numbers in the batch; got NaN or inf in inputs[0], "
        "an array (2, 4, 3) of float64"
    )


def test_a_param_that_is_not_finite_is_named():
    model = make_model()

    def draw_batch(rng):
        model.blocks[1].feed_forward.layer.params["b_in"][2] = -np.inf
        return count_up(rng)

    expected = r"the forward of blocks\.1\.feed_forward\.layer, whose b_in is not finite"
    with pytest.raises(TrainingError, match=expected):
        train(model, draw_batch)


class Long(Layer):
    """Pass a gradient that is far too long in one step."""

    def __init__(self, step):
        super().__init__()
        self.step, self.steps = step, 0

    def forward(self, x):
        return x

    def backward(self, d_out):
        self.steps += 1
        return d_out * np.float32(1e30 if self.steps == self.step else 1)


# optimizer, the factor of the odd step, in which other ways it is odd, what the error says
RUINED = {
    "a schedule of NaN": (SGD, np.nan, False, "expected a finite factor of the schedule; got nan"),
    "a schedule of inf": (SGD, np.float64(np.inf), False, "factor of the schedule; got inf"),
    "a rate beyond float32": (SGD, 1e42, False, r"embedding\.table: expected finite numbers after"),
    "Adam's too": (AdamW, 1e300, False, r"embedding\.table: expected finite numbers after"),
    "a square that overflows": (
        AdamW,
        1,
        True,
        r"embedding\.table: .* the optimizer remembers; .* max_norm",
    ),
}


@pytest.mark.parametrize("step", [3, 6])
@pytest.mark.parametrize("name", RUINED)
def test_a_step_that_would_ruin_params_is_not_taken(name, step, tmp_path):
    kind, factor, is_long, expected = RUINED[name]
    model = WithOdd(Long(step if is_long else None)).astype(np.float32)
    optimizer, states = kind(model, 0.1), []

    def draw_batch(rng):
        states.append((bytes_of(model), optimizer.t, repr(optimizer.memory)))
        return count_up(rng)

    with pytest.raises(TrainingError, match=f"^step {step}: .*{expected}"):
        fit(
            model, draw_batch, steps=6, optimizer=optimizer, progress=False,
            schedule=lambda at: factor if at == step else 1e-3, checkpoint=tmp_path / "run.npz",
        )  # fmt: skip
    if np.isfinite(factor):  # else it fails before it draws
        assert (bytes_of(model), optimizer.t, repr(optimizer.memory)) == states.pop()
    assert optimizer.t == len(states) == step - 1
    assert all(np.isfinite(param).all() for _, param in model.named_params())
    assert not list(tmp_path.iterdir())


def test_ruined_params_are_not_trained_or_saved(tmp_path):
    model = make_model()
    model.norm.params["bias"][1] = np.nan
    for steps in (0, 1):
        with pytest.raises(TrainingError, match=r"^norm\.bias: expected finite numbers before"):
            train(model, steps=steps, checkpoint=tmp_path / "run.npz")
    with pytest.raises(TrainingError, match=r"^params/norm\.bias: expected finite numbers in a"):
        train(make_model(), steps=2, checkpoint=tmp_path / "run.npz", measure=ruin)
    assert not list(tmp_path.iterdir())


def ruin(model, step):
    """Measure, and leave something behind."""
    model.norm.params["bias"][1] = np.nan if step else 0
    return {}


@pytest.fixture
def ctrl_c():
    """Let Ctrl-C interrupt, also where a shell has started the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("dtype", "factor", "failing"), [("f8", 1e300, 3), ("f4", 1e42, 2)])
def test_a_factor_that_is_far_too_large_is_named(dtype, factor, failing):
    model = make_model().astype(dtype)
    expected = re.escape(f"; the largest factor so far was schedule(2) = {factor:g}")
    with pytest.raises(TrainingError, match=f"^step {failing}: .*{expected}$"):
        fit(
            model, count_up, steps=5, optimizer=SGD(model, 0.1), rng=0, progress=False,
            schedule=lambda step: factor if step == 2 else 2.0,
        )  # fmt: skip


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_waits_for_the_step_and_leaves_a_checkpoint(tmp_path):
    whole, model, path = make_model(), make_model(), tmp_path / "run.npz"
    expected = train(whole)
    drawn = []

    def interrupted(rng):
        drawn.append(1)
        if len(drawn) == 5:
            signal.raise_signal(signal.SIGINT)
        return count_up(rng)

    with pytest.raises(KeyboardInterrupt, match="after step 5 of 12"):
        train(model, interrupted, checkpoint=path)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert path.exists()
    again = make_model()
    assert train(again, checkpoint=path).losses == expected.losses
    assert bytes_of(again) == bytes_of(whole)


@pytest.mark.usefixtures("ctrl_c")
def test_a_second_ctrl_c_does_not_wait():
    def interrupted(rng):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError

    with pytest.raises(KeyboardInterrupt):
        train(make_model(), interrupted)


class Terminal(io.StringIO):
    """A stderr that is a terminal."""

    def isatty(self):
        return True


def test_a_terminal_shows_loss_and_speed_and_the_bar_ends_with_an_error(monkeypatch):
    monkeypatch.setattr("mha_numpy.progress.PATIENCE", 0)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", Terminal())
    model, drawn = make_model(), []

    def draw_batch(rng):
        drawn.append(1)
        if len(drawn) == 5:
            raise ValueError
        return count_up(rng)

    with pytest.raises(ValueError) as failure:  # it holds the frames, and so the bar
        fit(model, draw_batch, steps=9, optimizer=SGD(model, 0.1))
    assert re.search(r"training .*44%.* loss \d\.\d{3}, [\d,]+ tokens/s", sys.stderr.getvalue())
    assert "\x1b[?25h" in sys.stderr.getvalue()  # the cursor is back
    del failure


def test_impossible_arguments_are_named():
    model = make_model()
    for expected, arguments in {
        r"optimizer: expected one of this model, .*; got SGD\(TransformerLM, .* of another model": {
            "optimizer": SGD(make_model(), 0.1)
        },
        r"optimizer: expected .* such as AdamW\(model, 1e-3\); got 'sgd'": {"optimizer": "sgd"},
        r"draw_batch: expected a Batch, such as .*; got \(1, 2\)": {
            "draw_batch": lambda rng: (1, 2)
        },
        "draw_batch: .* got a Batch of None": {"draw_batch": lambda rng: Batch(None, None)},
        "draw_batch: expected a function of rng; got <function": {"draw_batch": lambda: None},
        "steps: expected an integer >= 0": {"steps": -1},
        r"schedule\(1\): expected a finite number; got None": {"schedule": lambda step: None},
        r"schedule\(1\): expected a number >= 0; got -1": {"schedule": lambda step: -1},
        "measure: expected a function of model and step": {"measure": lambda model: {}},
        "measure: expected a dict of numbers by their names; got 0.5": {"measure": lambda *_: 0.5},
        "batch: expected the inputs that TransformerLM takes; got 2": {
            "draw_batch": lambda rng: Batch((1, 2), 3)
        },
        "targets: expected .*; got -1; where nothing is asked, write -100, the ignore_index$": {
            "draw_batch": lambda rng: Batch(count_up(rng).inputs, count_up(rng).targets * 0 - 1)
        },
        "checkpoint: expected an existing folder; got nowhere": {"checkpoint": "nowhere/run.npz"},
    }.items():
        options = {"optimizer": SGD(model, 0.1), "draw_batch": count_up, "steps": 1, **arguments}
        with pytest.raises(MhaError, match=f"^{expected}"):
            fit(model, progress=False, **options)


def half_squared_error(out, targets):
    return ((out - targets) ** 2).sum() / 2, out - targets


def test_another_loss_finds_the_least_squares(rng):
    x, w = rng.normal(size=(50, 3)), rng.normal(size=(3, 2))
    y = x @ w + 0.1 * rng.normal(size=(50, 2))
    for backward in (lambda d, difference: d * difference, lambda d, difference: (d * difference,)):
        layer = Linear(3, 2, bias=False, rng=0)
        history = fit(
            layer, lambda _: Batch((x,), y), steps=300, optimizer=SGD(layer, 0.01),
            loss=(half_squared_error, backward), progress=False,
        )  # fmt: skip
        expected, rest, *_ = np.linalg.lstsq(x, y, rcond=None)
        np.testing.assert_allclose(layer.params["w"], expected, atol=1e-8)
        assert history.losses[-1] == pytest.approx(rest.sum() / 2)


@pytest.mark.parametrize("loss", ["mse", half_squared_error, (half_squared_error,), (1, 2)])
def test_what_is_no_loss(loss):
    model = make_model()
    with pytest.raises(ConfigError, match=r"^loss: expected a pair of functions, \(forward, backw"):
        fit(model, count_up, steps=1, optimizer=SGD(model, 0.1), loss=loss)
    pair = (half_squared_error, lambda d, cache: d * cache)
    with pytest.raises(ConfigError, match="^label_smoothing: expected 0 with a loss of your own"):
        loss_and_gradients(
            model, count_up(np.random.default_rng(0)), label_smoothing=0.1, loss=pair
        )


def test_targets_that_are_not_finite_are_to_blame():
    layer = Linear(3, 2, rng=0)
    with pytest.raises(TrainingError, match="step 1: .* got NaN or inf in targets, "):
        fit(
            layer, lambda _: Batch((np.ones((4, 3)),), np.full((4, 2), np.nan)), steps=1,
            optimizer=SGD(layer, 0.1), loss=(half_squared_error, lambda d, cache: d * cache),
        )  # fmt: skip


def test_targets_may_be_tensors():
    class Tensor:
        """An array as other libraries have it: its size is a method."""

        def __init__(self, array):
            self.array = array

        def __array__(self, dtype=None, copy=None):
            return self.array

        def size(self):
            return self.array.shape

    model = make_model()
    batch = count_up(np.random.default_rng(0))
    history = fit(
        model, lambda _: batch._replace(targets=Tensor(batch.targets)), steps=2,
        optimizer=SGD(model, 0.1), progress=False,
    )  # fmt: skip
    assert len(history.losses) == 2
