import io
import re
import signal
import sys

import numpy as np
import pytest

from mha_numpy.errors import ConfigError, MhaError, TrainingError
from mha_numpy.layers import Dropout, Embedding, Layer, Linear, Sequential
from mha_numpy.models.train import IGNORED, SGD, AdamW, Batch, constant, fit, loss_and_gradients
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


@pytest.mark.parametrize(("steps", "expected"), [(5, [0, 3, 5]), (6, [0, 3, 6])])
def test_the_last_step_is_measured_once(steps, expected):
    history = train(make_model(), steps=steps, measure=lambda *_: {"one": 1}, measure_every=3)
    assert [measure["step"] for measure in history.measures] == expected


class Odd(Layer):
    """Multiply what passes by factors, which are functions of a generator and of the step."""

    def __init__(self, forward=lambda rng, step: 1, backward=lambda rng, step: 1):
        super().__init__()
        self.factors, self.rng, self.step = (forward, backward), np.random.default_rng(0), 0

    def forward(self, x):
        return x * self.factors[0](self.rng, self.step)

    def backward(self, d_out):
        self.step += 1
        return d_out * np.asarray(self.factors[1](self.rng, self.step), d_out.dtype)


def with_odd(*factors):
    """Return a model that is odd between two layers."""
    odd = [Dropout(0.5, rng=0), Odd(*factors)]
    return Sequential(Embedding(V, 3, rng=0), *odd, Linear(3, V, rng=0))


def test_a_loss_that_is_not_finite_names_step_and_layer():
    model, before = with_odd(lambda rng, step: np.inf if rng.random() > 0.9 else 1), []

    def draw_batch(rng):
        before.append(bytes_of(model))
        return count_up(rng)

    expected = r"got loss nan, which began in the forward of parts\.2;"
    with pytest.raises(TrainingError, match=expected) as error:
        train(model, draw_batch, steps=1000)
    assert str(error.value).startswith(f"step {len(before)}: ")
    assert len(before) > 1
    assert bytes_of(model) == before[-1]
    assert "forward" not in vars(model.parts[0])  # nothing watches it any more
    assert not model.training


def test_a_gradient_that_is_not_finite_names_step_and_layer():
    with pytest.raises(TrainingError, match=r"^step 1: .* norm nan, .* the backward of parts\.2;"):
        train(with_odd(lambda rng, step: 1, lambda rng, step: np.nan))


def half_squared_error(out, targets):
    return ((out - targets) ** 2).sum() / 2, out - targets


LEAST_SQUARES = (half_squared_error, lambda d, difference: d * difference)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["inputs[0]", "targets"])
def test_a_batch_that_is_not_finite_is_to_blame(name, odd):
    arrays = {"inputs[0]": np.ones((2, 4, 3)), "targets": np.zeros((2, 4, V))}
    arrays[name][1, 2, 0] = odd
    batch = Batch((arrays["inputs[0]"],), arrays["targets"])
    with pytest.raises(TrainingError) as error:
        train(Linear(3, V, rng=0), lambda rng: batch, loss=LEAST_SQUARES)
    assert str(error.value) == (
        f"step 1: expected finite numbers in the batch; got NaN or inf in {name}, "
        f"an array {arrays[name].shape} of float64"
    )


def test_a_param_that_is_not_finite_is_named():
    model = make_model()

    def draw_batch(rng):
        model.blocks[1].feed_forward.layer.params["b_in"][2] = -np.inf
        return count_up(rng)

    expected = r"the forward of blocks\.1\.feed_forward\.layer, whose b_in is not finite"
    with pytest.raises(TrainingError, match=expected):
        train(model, draw_batch)


# optimizer, the factors of the schedule and of the gradient in the odd step, what the error says
RUINED = {
    "a schedule of NaN": (SGD, np.nan, 1, "expected a finite factor of the schedule; got nan"),
    "a schedule of inf": (SGD, np.float64(np.inf), 1, "factor of the schedule; got inf"),
    "a rate beyond float32": (SGD, 1e42, 1, r"parts\.0\.table: expected finite numbers after"),
    "Adam's too": (AdamW, 1e300, 1, r"parts\.0\.table: expected finite numbers after"),
    "a square that overflows": (
        AdamW, 1, 1e30, r"parts\.0\.table: .* the optimizer remembers; .* max_norm",
    ),
}  # fmt: skip


@pytest.mark.parametrize("odd", [3, 6])
@pytest.mark.parametrize("name", RUINED)
def test_a_step_that_would_ruin_params_is_not_taken(name, odd, tmp_path):
    kind, factor, length, expected = RUINED[name]
    model = with_odd(lambda rng, step: 1, lambda rng, step: length if step == odd else 1)
    optimizer, states = kind(model.astype(np.float32), 0.1), []

    def draw_batch(rng):
        states.append((bytes_of(model), optimizer.t, repr(optimizer.memory)))
        return count_up(rng)

    with pytest.raises(TrainingError, match=f"^step {odd}: .*{expected}"):
        train(
            model, draw_batch, steps=6, optimizer=optimizer, max_norm=None,
            schedule=lambda at: factor if at == odd else 1e-3, checkpoint=tmp_path / "run.npz",
        )  # fmt: skip
    if np.isfinite(factor):  # else it fails before it draws
        assert (bytes_of(model), optimizer.t, repr(optimizer.memory)) == states.pop()
    assert optimizer.t == len(states) == odd - 1
    assert all(np.isfinite(param).all() for _, param in model.named_params())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("dtype", "factor", "failing"), [("f8", 1e300, 3), ("f4", 1e42, 2)])
def test_a_factor_that_is_far_too_large_is_named(dtype, factor, failing):
    model = make_model().astype(dtype)
    expected = re.escape(f"; the largest factor so far was schedule(2) = {factor:g}")
    with pytest.raises(TrainingError, match=f"^step {failing}: .*{expected}$"):
        train(
            model, optimizer=SGD(model, 0.1), rng=0, max_norm=None,
            schedule=lambda step: factor if step == 2 else 2.0,
        )  # fmt: skip


def test_ruined_params_are_not_trained_or_saved(tmp_path):
    model, path = make_model(), tmp_path / "run.npz"
    model.norm.params["bias"][1] = np.nan
    for steps in (0, 1):
        with pytest.raises(TrainingError, match=r"^norm\.bias: expected finite numbers before"):
            train(model, steps=steps, checkpoint=path)

    def ruin(model, step):
        model.norm.params["bias"][1] = np.nan if step else 0
        return {}

    with pytest.raises(TrainingError, match=r"^params/norm\.bias: expected finite numbers in a"):
        train(make_model(), steps=2, checkpoint=path, measure=ruin)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def ctrl_c():
    """Let Ctrl-C interrupt, also where a shell has started the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_waits_for_the_step_and_leaves_a_checkpoint(tmp_path):
    whole, model, again, drawn = make_model(), make_model(), make_model(), []
    expected, path = train(whole), tmp_path / "run.npz"

    def interrupted(rng):
        drawn.append(1)
        if len(drawn) == 5:
            signal.raise_signal(signal.SIGINT)
        return count_up(rng)

    with pytest.raises(KeyboardInterrupt, match="after step 5 of 12"):
        train(model, interrupted, checkpoint=path)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert path.exists()
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
    drawn = []

    def draw_batch(rng):
        drawn.append(1)
        if len(drawn) == 5:
            raise ValueError
        return count_up(rng)

    with pytest.raises(ValueError) as failure:  # it holds the frames, and so the bar
        train(make_model(), draw_batch, steps=9, progress=True)
    assert re.search(r"training .*44%.* loss \d\.\d{3}, [\d,]+ tokens/s", sys.stderr.getvalue())
    assert "\x1b[?25h" in sys.stderr.getvalue()  # the cursor is back
    del failure


def drawing(inputs, targets=0):
    return {"draw_batch": lambda rng: Batch(inputs, targets)}


PAIR = r"loss: expected a pair of functions, \(forward, backward\); got "
IMPOSSIBLE = [
    (r"optimizer: expected one of this model, .*; got SGD\(TransformerLM, .* of a different model",
     {"optimizer": SGD(make_model(), 0.1)}),
    (r"optimizer: expected .* such as AdamW\(model, 1e-3\); got 'sgd'", {"optimizer": "sgd"}),
    (r"draw_batch: expected a Batch, such as .*; got \(1, 2\)",
     {"draw_batch": lambda rng: (1, 2)}),
    ("draw_batch: .* got a Batch of None", drawing(None)),
    ("draw_batch: expected a function of rng; got <function", {"draw_batch": lambda: None}),
    ("steps: expected an integer >= 0", {"steps": -1}),
    (r"schedule\(1\): expected a finite number; got None", {"schedule": lambda step: None}),
    (r"schedule\(1\): expected a number >= 0; got -1", {"schedule": lambda step: -1}),
    ("measure: expected a function of model and step", {"measure": lambda model: {}}),
    ("measure: expected a dict of numbers by their names; got 0.5", {"measure": lambda *_: 0.5}),
    ("measure: expected names other than 'step'; got 'step'", {"measure": lambda *_: {"step": 1}}),
    ("batch: expected the inputs that TransformerLM takes; got 2", drawing((1, 2))),
    ("targets: expected .*; got -1; where nothing is asked, write -100, the ignore_index$",
     drawing((np.zeros((4, T), int),), np.full((4, T), -1))),
    ("checkpoint: expected an existing folder; got nowhere", {"checkpoint": "nowhere/run.npz"}),
    (PAIR + "'mse'", {"loss": "mse"}),
    (PAIR + "<function", {"loss": half_squared_error}),
    (PAIR, {"loss": (half_squared_error,)}),
    (PAIR + r"\(1, 2\)", {"loss": (1, 2)}),
    ("label_smoothing: expected 0 with your own loss",
     {"loss": LEAST_SQUARES, "label_smoothing": 0.1}),
]  # fmt: skip


@pytest.mark.parametrize(("message", "arguments"), IMPOSSIBLE)
def test_impossible_arguments_are_named(message, arguments):
    model = make_model()
    options = {"optimizer": SGD(model, 0.1), "draw_batch": count_up, "steps": 1, **arguments}
    with pytest.raises(MhaError, match=f"^{message}"):
        fit(model, progress=False, **options)
    if "loss" in arguments:
        options = {name: arguments.get(name) for name in ("loss", "label_smoothing")}
        with pytest.raises(ConfigError, match=f"^{message}"):
            loss_and_gradients(model, count_up(np.random.default_rng(0)), **options)


@pytest.mark.parametrize("backward", [LEAST_SQUARES[1], lambda d, difference: (d * difference,)])
def test_another_loss_finds_the_least_squares(backward, rng):
    x, w = rng.normal(size=(50, 3)), rng.normal(size=(3, 2))
    y = x @ w + 0.1 * rng.normal(size=(50, 2))
    layer = Linear(3, 2, bias=False, rng=0)
    history = train(
        layer, lambda _: Batch((x,), y), steps=300, optimizer=SGD(layer, 0.01), max_norm=None,
        loss=(half_squared_error, backward), schedule=constant,
    )  # fmt: skip
    expected, rest, *_ = np.linalg.lstsq(x, y, rcond=None)
    np.testing.assert_allclose(layer.params["w"], expected, atol=1e-8)
    assert history.losses[-1] == pytest.approx(rest.sum() / 2)


class Tensor:
    """An array as other libraries have it: its size is a method."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array

    def size(self):
        return self.array.shape


def test_targets_may_be_tensors():
    batch = count_up(np.random.default_rng(0))
    batch = batch._replace(targets=Tensor(batch.targets))
    assert len(train(make_model(), lambda _: batch, steps=2).losses) == 2
