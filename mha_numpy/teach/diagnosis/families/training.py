"""A step of Adam, and loops that train a model which guesses the next token."""

import numpy as np

from mha_numpy.teach.diagnosis.mistake import Mistake, for_each
from mha_numpy.teach.diagnosis.piece import Arrays, Inputs, Law, Piece, Reaction, moved


def _draw_adam(rng: np.random.Generator) -> list[Inputs]:
    """Draw the first step, and a later one; an eps that matters, and betas that differ."""
    probes = []
    for shape, t, eps in (((3, 4), 1, 0.1), ((5,), 4, 0.02)):
        param, gradient, mean = rng.normal(size=(3, *shape))
        mean, square = (0 * mean, 0 * mean) if t == 1 else (mean, rng.random(shape))
        probes.append(
            {"param": param, "gradient": gradient, "mean": mean, "square": square, "t": t,
             "learning_rate": 0.3, "beta_1": 0.8, "beta_2": 0.95, "eps": eps}
        )  # fmt: skip
    return probes


def _draw_steps(rng: np.random.Generator) -> list[Inputs]:
    """Draw batches for three steps: all sizes different; V = D, and some logits far apart.

    The first batch has every token but the last of the vocabulary, which never comes.
    """
    probes = []
    for (B, T, V, D), spread in (((2, 4, 6, 5), 1), ((3, 3, 4, 4), 8)):
        tokens = rng.integers(0, V - 1, (3, B, T + 1))
        tokens[0, :, :-1] = (np.arange(B * T) % (V - 1)).reshape(B, T)
        table, w, b = rng.normal(size=(V, D)), spread * rng.normal(size=(D, V)), rng.normal(size=V)
        probes.append({"tokens": tokens, "table": table, "w": w, "b": b, "learning_rate": 0.3})
    return probes


def _draw_with_adam(rng: np.random.Generator) -> list[Inputs]:
    """Draw the same, with what is held out, and the features kept: at first, all of them."""
    probes = []
    for inputs, p in zip(_draw_steps(rng), (0.25, 0.5), strict=True):
        tokens, table, w, _, _ = inputs.values()
        N, B, T = tokens.shape
        keep = rng.random((N, B, T - 1, table.shape[-1])) >= p
        keep[0] = True
        held_out = rng.integers(0, len(table) - 1, (B, T))
        probes.append(
            {"tokens": tokens, "held_out": held_out, "keep": keep, "p": p, "table": table, "w": w,
             "learning_rate": 0.1}
        )  # fmt: skip
    return probes


def _last_batch_changed(inputs: Inputs) -> Inputs:
    """Take other tokens in the last batch."""
    tokens = inputs["tokens"].copy()
    tokens[-1] = (tokens[-1] + 1) % len(inputs["table"])
    return {**inputs, "tokens": tokens}


def _held_out_changed(inputs: Inputs) -> Inputs:
    """Hold other tokens out."""
    return {**inputs, "held_out": (inputs["held_out"] + 1) % len(inputs["table"])}


def _trained(_: Inputs, arrays: Arrays) -> np.ndarray:
    """Return all params in a row."""
    return np.concatenate([arrays["table"].ravel(), arrays["w"].ravel()])


PIECES = [
    Piece(
        "adam_step",
        _draw_adam,
        reactions=[
            Reaction(
                "the param changes neither mean nor square",
                moved("param", 0),
                lambda _, arrays: np.stack([arrays["mean"], arrays["square"]]),
            )
        ],
    ),
    Piece(
        "train_steps",
        _draw_steps,
        laws=[
            Law(
                "the sum of b stays the same, as each token's d_logits sum to 0",
                lambda inputs, arrays: np.asarray(arrays["b"].sum() - inputs["b"].sum()),
            )
        ],
        reactions=[
            Reaction(
                "the last batch changes no loss but its own",
                _last_batch_changed,
                lambda _, arrays: arrays["losses"][:-1],
            )
        ],
    ),
    Piece(
        "train_with_adam",
        _draw_with_adam,
        reactions=[Reaction("the sequences held out change no param", _held_out_changed, _trained)],
    ),
]

MEAN_HAT, SQUARE_HAT = "mean_hat = mean / (1 - beta_1**t)", "square_hat = square / (1 - beta_2**t)"
LEFT_OUT = {MEAN_HAT: "mean_hat = mean", SQUARE_HAT: "square_hat = square"}
ROOT = "(np.sqrt(square_hat) + eps)"
MOVES = {
    name: f"        {name} = {name} - learning_rate * d_{name}\n" for name in ("table", "w", "b")
}
STEP = "".join(MOVES.values())
BACKWARD = "d_x, d_w, d_b = through_linear(d_logits, x, w)"
BEGIN = "losses = []\n"
RECORD = "losses.append(cross_entropy(logits, targets, -100))\n"
LOOP = "enumerate(zip(tokens, keep, strict=True), start=1):\n"
EVALUATED = "cross_entropy(table[inputs] @ w, targets, -100)"

# fmt: off
MISTAKES = [
    Mistake("no bias correction", "the running means are not corrected for their start at 0",
            "mean / (1 - beta_1**t) and square / (1 - beta_2**t)", LEFT_OUT),
    Mistake("square not corrected", "the running square is not corrected for its start at 0", "square / (1 - beta_2**t)",
            {SQUARE_HAT: LEFT_OUT[SQUARE_HAT]}),
    Mistake("mean not corrected", "the running mean is not corrected for its start at 0", "mean / (1 - beta_1**t)",
            {MEAN_HAT: LEFT_OUT[MEAN_HAT]}),
    Mistake("corrected by 1 - beta", "every step is corrected like the first: t stays at 1, or is left out", "1 - beta**t, with t counting the steps",
            {MEAN_HAT: MEAN_HAT.replace("**t", ""), SQUARE_HAT: SQUARE_HAT.replace("**t", "")}),
    Mistake("t counted one too far", "the correction is that of the next step", "t is 1 in the first step",
            {MEAN_HAT: MEAN_HAT.replace("**t", "**(t + 1)"), SQUARE_HAT: SQUARE_HAT.replace("**t", "**(t + 1)")}),
    Mistake("corrected means kept", "the corrected means are handed to the next step, so corrections pile up",
            "correct in this step alone, and return mean and square as they are",
            {"AdamStep(param - step, mean, square)": "AdamStep(param - step, mean_hat, square_hat)"}),
    Mistake("betas swapped", "beta_1 and beta_2 have changed places", "beta_1 for the mean, beta_2 for the square",
            {"mean = beta_1 * mean": "beta_1, beta_2 = beta_2, beta_1\n    mean = beta_1 * mean"}),
    Mistake("beta and 1 - beta swapped", "beta multiplies the new gradient, and 1 - beta the running mean",
            "beta_1 * mean + (1 - beta_1) * gradient",
            {"beta_1 * mean + (1 - beta_1) *": "(1 - beta_1) * mean + beta_1 *",
             "beta_2 * square + (1 - beta_2) *": "(1 - beta_2) * square + beta_2 *"}),
    Mistake("1 - beta left out", "the new gradient is added whole, as momentum does", "beta_1 * mean + (1 - beta_1) * gradient",
            {"(1 - beta_1) * gradient": "gradient", "(1 - beta_2) * gradient**2": "gradient**2"}),
    Mistake("gradient not squared", "the running square is one of gradients, not of their squares", "gradient**2",
            {"gradient**2": "gradient"}),
    Mistake("square of the mean", "the running square is that of the mean, not of the gradient", "gradient**2",
            {"* gradient**2": "* mean**2"}),
    Mistake("root of the square left out", "the mean is divided by the square, not by its root", "np.sqrt(square_hat) + eps",
            {ROOT: "(square_hat + eps)"}),
    Mistake("Adam: eps under the root", "eps is added under the root", "np.sqrt(square_hat) + eps", {ROOT: "np.sqrt(square_hat + eps)"}),
    Mistake("Adam: eps before the correction",
            "eps is added to the root of the square before its correction, as in the paper's other form",
            "np.sqrt(square_hat) + eps", {ROOT: "((np.sqrt(square) + eps) / np.sqrt(1 - beta_2**t))"}),
    Mistake("Adam: eps left out", "eps is not used", "np.sqrt(square_hat) + eps", {ROOT: "np.sqrt(square_hat)"}),
    Mistake("Adam: gradient for the mean", "the step takes the gradient itself, not its running mean", "mean_hat",
            {MEAN_HAT: "mean_hat = gradient"}),
    Mistake("steps uphill", "the params move along the gradient, so the loss rises", "param - learning_rate * gradient",
            {"param - step": "param + step", **{f"{name} - learning_rate": f"{name} + learning_rate" for name in MOVES}}),
    Mistake("learning rate left out", "the learning rate is left out", "param - learning_rate * gradient",
            {"step = learning_rate * mean_hat": "step = mean_hat",
             **{f"learning_rate * d_{name}": f"d_{name}" for name in MOVES}}),
    Mistake("targets not shifted", "the targets are the inputs: the model learns to repeat what it reads",
            "targets = tokens[:, 1:]", {"return batch[:, :-1], batch[:, 1:]": "return batch[:, :-1], batch[:, :-1]"}),
    Mistake("targets shifted twice", "the targets are shifted twice: the target of token t is token t + 2, not t + 1",
            "inputs = tokens[:, :-1], targets = tokens[:, 1:]", {"return batch[:, :-1], batch[:, 1:]": "return batch[:, :-2], batch[:, 2:]"}),
    Mistake("targets shifted backward", "the target of each token is the token before it, not the one after it",
            "inputs = tokens[:, :-1], targets = tokens[:, 1:]", {"return batch[:, :-1], batch[:, 1:]": "return batch[:, 1:], batch[:, :-1]"}),
    Mistake("targets from the start again", "the targets are rolled around: the target of the last token is the first token",
            "targets = tokens[:, 1:]", {"return batch[:, :-1], batch[:, 1:]": "return batch, np.roll(batch, -1, axis=1)"}),
    Mistake("gradients not zeroed", "gradients are added to those of the steps before", "begin with gradients of 0 in every step",
            {BEGIN: BEGIN + "    sums = dict.fromkeys(('table', 'w', 'b'), 0.0)\n",
             STEP: "        sums = {name: sums[name] + d for name, d in zip(sums, (d_table, d_w, d_b), strict=True)}\n"
                   "        table, w, b = (param - learning_rate * d for param, d in zip((table, w, b), sums.values(), strict=True))\n"}),
    Mistake("step before backward", "the step is taken before backward, so it uses the gradients of the batch before",
            "forward, backward, then the step",
            {BEGIN: BEGIN + "    d_table = d_w = d_b = 0.0\n", RECORD: RECORD + STEP, STEP: ""}),
    Mistake("w moved before d_x", "w is moved before d_x is computed, so d_x goes back through the new w",
            "all gradients first, then the step",
            {BACKWARD: BACKWARD + "\n        w = w - learning_rate * d_w\n        d_x = d_logits @ w.T",
             MOVES["w"]: ""}),
    *for_each(["table", "w"], "? never moves", "? stays as it was: its step is left out", "? = ? - learning_rate * d_?",
              {"        ? = ? - learning_rate * d_?\n": ""}),
    Mistake("one batch for all steps", "every step takes the first batch", "one batch for each step",
            {"for batch in tokens:": "for batch in tokens[:1].repeat(len(tokens), axis=0):"}),
    Mistake("each step from the first params", "each step begins at the first params, so the steps before are lost",
            "set the params up before the loop",
            {BEGIN: BEGIN + "    first = table, w, b\n", "x = table[inputs]\n": "table, w, b = first\n        x = table[inputs]\n"}),
    Mistake("loss after the step", "the loss is measured after the step instead of before", "the loss of the forward pass to which the gradients belong",
            {"        " + RECORD: "", MOVES["b"]: MOVES["b"] + "        losses.append(cross_entropy(table[inputs] @ w + b, targets, -100))\n"}),
    Mistake("gradients divided by B again", "the gradients are divided by the batch size, though the mean has divided by it already",
            "the loss takes the mean, once", {BEGIN: BEGIN + "    learning_rate = learning_rate / tokens.shape[1]\n"}),
    Mistake("t begins at 0", "t is 0 in the first step, and the correction divides by 0", "count from 1",
            {LOOP: LOOP.replace("start=1", "start=0")}),
    Mistake("t counted for each param", "t grows with each param instead of each step", "all params of a step have the same t",
            {"table_mean, table_square, t)": "table_mean, table_square, 2 * t - 1)", "w_mean, w_square, t)": "w_mean, w_square, 2 * t)"}),
    Mistake("Adam begins anew", "the running means are 0 again in every step", "keep them from step to step",
            {LOOP: LOOP + "        table_mean = table_square = np.zeros_like(table)\n        w_mean = w_square = np.zeros_like(w)\n"}),
    Mistake("dropout at evaluation", "dropout is left on at evaluation", "no dropout in the loss of the sequences held out",
            {EVALUATED: EVALUATED.replace("table[inputs]", "drop(table[inputs], keep[-1], p)")}),
    Mistake("scaled by 1 - p at evaluation", "features are divided by 1 - p in training and multiplied by it at evaluation", "no factor at evaluation",
            {EVALUATED: EVALUATED.replace("table[inputs]", "(1 - p) * table[inputs]")}),
    Mistake("dropout left out in training", "there is no dropout in training", "x * keep / (1 - p)", {"x * kept / (1 - p)": "x"}),
    Mistake("kept features not enlarged", "kept features are not divided by 1 - p", "x * keep / (1 - p)", {"x * kept / (1 - p)": "x * kept"}),
    Mistake("kept features divided by p", "kept features are divided by p, the share that was dropped", "x * keep / (1 - p)",
            {"x * kept / (1 - p)": "x * kept / p"}),
    Mistake("dropped features kept", "features to be dropped are kept, and the others are dropped", "keep is True where a feature stays",
            {"x * kept / (1 - p)": "x * ~kept / (1 - p)"}),
    Mistake("dropout not undone backward", "the gradient does not go back through dropout", "d_x * keep / (1 - p)",
            {"drop(d_x, kept, p)": "d_x"}),
    Mistake("one dropout for all steps", "every step drops the same features", "keep[n] in step n",
            {LOOP: LOOP + "        kept = keep[0]\n"}),
    Mistake("training batch evaluated", "the loss is that of the last training batch", "measure on the sequences held out",
            {"shift(held_out)": "shift(tokens[-1])"}),
    Mistake("first params evaluated", "the loss is that of the params before training", "measure with the trained params",
            {"    move = ": "    first_table, first_w = table, w\n    move = ",
             EVALUATED: EVALUATED.replace("table", "first_table").replace("@ w", "@ first_w")}),
]
# fmt: on
