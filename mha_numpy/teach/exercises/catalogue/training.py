"""Training: a step of Adam, a loop with plain gradients, a loop with Adam and dropout."""

from mha_numpy.dtypes import Array
from mha_numpy.teach.exercises.exercise import Hints, exercise


@exercise(
    "adam-step",
    title="A step of Adam",
    difficulty=2,
    minutes=15,
    hints=Hints(
        where="Algorithm 1 of Kingma and Ba 2015 has six lines. Which numbers go to the next step, "
        "and which are used in this one alone?",
        question="Before the first step mean and square are 0, and the gradient is 5. With beta_1 "
        "= 0.9, what is the mean after it, and by what must it be divided to be 5 again?",
        mistake="corrected means kept",
        fix="mean = beta_1 * mean + (1 - beta_1) * gradient; square = beta_2 * square + (1 - "
        "beta_2) * gradient**2; param - learning_rate * (mean / (1 - beta_1**t)) / (np.sqrt("
        "square / (1 - beta_2**t)) + eps), mean, square",
    ),
)
def adam_step(
    param: Array,
    gradient: Array,
    mean: Array,
    square: Array,
    t: int,
    learning_rate: float,
    beta_1: float,
    beta_2: float,
    eps: float,
) -> tuple[Array, Array, Array]:
    """Move a param by Adam.

    ``mean`` becomes ``beta_1 * mean + (1 - beta_1) * gradient``, and ``square`` becomes
    ``beta_2 * square + (1 - beta_2) * gradient^2``. Both began at 0 and are too small in the first
    steps, so the step takes ``mean_hat = mean / (1 - beta_1^t)`` and ``square_hat`` likewise::

        param - learning_rate * mean_hat / (sqrt(square_hat) + eps)

    Parameters
    ----------
    param, gradient, mean, square : arrays of one shape
        `mean` and `square` are those that the step before returned; 0 in the first.
    t : int
        Number of this step, counted from 1.
    learning_rate, beta_1, beta_2, eps : float

    Returns
    -------
    param, mean, square : arrays of that shape
        `mean` and `square` are those that the next step takes.
    """
    raise NotImplementedError


@exercise(
    "train-steps",
    title="A training loop",
    difficulty=3,
    minutes=30,
    needs=("embedding-backward", "linear-backward", "cross-entropy-backward"),
    hints=Hints(
        where="Each batch takes forward, loss, backward from the last line to the first, and a "
        "step. The next batch uses the params after this step.",
        question="A sequence is 7 1 4. Which tokens does the model read, and which is it to guess "
        "for each? On which params does the loss of the second batch depend?",
        mistake="gradients not zeroed",
        fix="for each batch of tokens:\n"
        "inputs, targets = batch[:, :-1], batch[:, 1:]\n"
        "and, with all gradients computed before:\n"
        "table = table - learning_rate * d_table\n"
        "and so for w and b",
    ),
)
def train_steps(
    tokens: Array, table: Array, w: Array, b: Array, learning_rate: float
) -> tuple[Array, Array, Array, Array]:
    """Train a small model to guess the next token, and return its params and losses.

    The model reads one token and guesses the next: ``logits = table[token] @ w + b``. In each batch
    it reads all tokens but the last of a sequence, and is to guess all but the first. The loss is
    the mean over all these tokens of ``-log softmax(logits)[target]``. Each batch makes one step of
    gradient descent: ``param = param - learning_rate * gradient``. The arrays that are handed in
    stay as they are.

    Parameters
    ----------
    tokens : (N, B, T + 1) int
        N batches of B sequences; ids of 0 to V - 1.
    table : (V, D)
    w : (D, V)
    b : (V,)
    learning_rate : float

    Returns
    -------
    table, w, b : arrays of these shapes
        The params after N steps.
    losses : (N,)
        The loss of each batch, before its step.
    """
    raise NotImplementedError


@exercise(
    "train-with-adam",
    title="A training loop with Adam and dropout",
    difficulty=4,
    minutes=30,
    needs=("train-steps", "adam-step"),
    hints=Hints(
        where="Three things differ from the loop before: what is kept for each param from step to "
        "step, where dropout stands forward and backward, and that evaluation has no dropout.",
        question="In step 3, how often has each param been moved? What is t for the table, and for "
        "w? And what is dropped when the sequences held out are evaluated?",
        mistake="dropout not undone backward",
        fix="x = table[inputs] * keep[n] / (1 - p); ...; d_embedded = d_x * keep[n] / (1 - "
        "p)\n"
        "then adam_step for the table and for w, in which t begins at 1:\n"
        "t = n + 1\n"
        "at the end, without dropout:\n"
        "table[inputs] @ w",
    ),
)
def train_with_adam(
    tokens: Array,
    held_out: Array,
    keep: Array,
    p: float,
    table: Array,
    w: Array,
    learning_rate: float,
) -> tuple[Array, Array, Array]:
    """Train a small model with Adam and dropout, and evaluate it on what was held out.

    The model reads one token and guesses the next: ``logits = dropout(table[token]) @ w``. In each
    batch it reads all tokens but the last of a sequence, and is to guess all but the first. The
    loss is the mean over all these tokens of ``-log softmax(logits)[target]``. Dropout, in training
    alone, is ``x * keep[n] / (1 - p)`` in step n. Each batch makes one step of Adam, with beta_1 =
    0.9, beta_2 = 0.99 and eps = 0.001. The arrays that are handed in stay as they are.

    Parameters
    ----------
    tokens : (N, B, T + 1) int
        N batches of B sequences; ids of 0 to V - 1.
    held_out : (B, T + 1) int
        Sequences that the model is evaluated on, after the last step.
    keep : (N, B, T, D) bool
        True where a feature is kept in training.
    p : float
        The share of features that is dropped.
    table : (V, D)
    w : (D, V)
    learning_rate : float

    Returns
    -------
    table, w : arrays of these shapes
        The params after N steps.
    loss : a number
        The loss of what was held out, with these params and without dropout.
    """
    raise NotImplementedError
