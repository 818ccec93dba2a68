"""Optimizers: how a gradient moves a param."""

import numpy as np

from mha_numpy.checks import check_number, check_share
from mha_numpy.core.backends import ONE_PASS_KERNELS, check_backend, find_kernels
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError
from mha_numpy.nn import Layer


def sgd_step(
    param: Array, gradient: Array, velocity: Array, *, learning_rate: float, momentum: float = 0.0
) -> tuple[Array, Array]:
    """Step against the gradient, and go on in the direction of the steps before.

    ``velocity = momentum * velocity + gradient`` and ``param = param - learning_rate * velocity``.

    Parameters
    ----------
    param, gradient, velocity : float arrays of one shape
        The velocity is 0 before the first step.
    learning_rate : float
    momentum : float
        0 <= m < 1: the share of the velocity that is kept.

    Returns
    -------
    param, velocity : arrays like `param`

    Notes
    -----
    Source: Polyak 1964; in this form Sutskever et al. 2013, without Nesterov's look ahead.

    Examples
    --------
    >>> one = np.array([1.0])
    >>> param, velocity = sgd_step(one, one, one, learning_rate=0.1, momentum=0.5)
    >>> print(param.round(3), velocity)
    [0.85] [1.5]
    """
    # 1. the velocity remembers the gradients before
    velocity = momentum * velocity + gradient

    # 2. move
    return param - learning_rate * velocity, velocity


def adam_step(
    param: Array,
    gradient: Array,
    mean: Array,
    square: Array,
    t: int,
    *,
    learning_rate: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    backend: str = "numpy",
) -> tuple[Array, Array, Array]:
    """Step by the running mean of the gradient over the root of that of its square.

    ``mean = beta_1 mean + (1 - beta_1) gradient``, ``square = beta_2 square + (1 - beta_2)
    gradient^2``, ``param = param - learning_rate * mean_hat / (sqrt(square_hat) + eps)``, where
    ``mean_hat = mean / (1 - beta_1^t)`` and ``square_hat`` likewise undo the start at 0.

    Parameters
    ----------
    param, gradient, mean, square : float arrays of one shape
        `mean` and `square` are 0 before the first step.
    t : int
        Number of this step, from 1.
    learning_rate : float
    betas : (float, float)
        How much of the running mean and of the running square is kept.
    eps : float
        Keeps a param without gradients from being divided by 0.
    weight_decay : float
        The param first shrinks by ``learning_rate * weight_decay`` of itself, apart from the
        gradient: AdamW.
    backend : {"numpy", "loops", "numba"}
        What computes: NumPy, for "loops" as well, or a kernel.

    Returns
    -------
    param, mean, square : arrays like `param`

    Notes
    -----
    Sources: Kingma and Ba 2015, *Adam*, algorithm 1; decay: Loshchilov and Hutter 2019, *Decoupled
    weight decay regularization*, algorithm 2.

    Examples
    --------
    >>> zero = np.zeros(2)
    >>> param, mean, square = adam_step(
    ...     zero, np.array([1e-3, -1e3]), zero, zero, 1, learning_rate=0.1
    ... )
    >>> print(param.round(4))  # the first step has the same length whatever the gradient's size
    [-0.1  0.1]
    """
    kernels = find_kernels(ONE_PASS_KERNELS, backend, param, gradient, mean, square)
    if kernels is not None:
        return kernels.adam(
            param, gradient, mean, square, t, learning_rate, betas, eps, weight_decay
        )
    beta_1, beta_2 = betas
    # 1. running mean of the gradient, and of its square
    mean = beta_1 * mean + (1 - beta_1) * gradient
    square = beta_2 * square + (1 - beta_2) * gradient**2

    # 2. both began at 0, which makes them too small in the first steps
    mean_hat = mean / (1 - beta_1**t)
    square_hat = square / (1 - beta_2**t)

    # 3. shrink, apart from the gradient
    if weight_decay:
        param = param * (1 - learning_rate * weight_decay)

    # 4. move
    return param - learning_rate * mean_hat / (np.sqrt(square_hat) + eps), mean, square


class Optimizer:
    """Moves all params of a layer; keeps for each what its rule remembers.

    Parameters
    ----------
    layer : Layer
    learning_rate : float
        Of a step whose factor in the schedule is 1.
    """

    def __init__(self, layer: Layer, learning_rate: float) -> None:
        self.layer = layer
        self.learning_rate = check_number("learning_rate", learning_rate, positive=True)
        self.t = 0  # steps taken
        self.memory: dict[str, tuple[Array, ...]] = {}  # by the dotted name of a param

    def start(self, param: Array) -> tuple[Array, ...]:
        """Return what is remembered of a param before the first step."""
        raise NotImplementedError

    def remembered(self, name: str, param: Array) -> tuple[Array, ...]:
        """Return what is remembered of a param."""
        return self.memory.get(name) or self.start(param)

    def rule(
        self, param: Array, gradient: Array, memory: tuple[Array, ...], learning_rate: float
    ) -> tuple[Array, ...]:
        """Return the param after this step, then what is remembered of it."""
        raise NotImplementedError

    def step(self, scale: float = 1.0) -> None:
        """Move every param once, in its own array, by `scale` times the learning rate."""
        self.t += 1
        learning_rate = self.learning_rate * float(scale)  # a NumPy scalar would widen float32
        grads = dict(self.layer.named_grads())
        for name, param in self.layer.named_params():
            memory = self.remembered(name, param)
            param[...], *rest = self.rule(param, grads[name], memory, learning_rate)
            self.memory[name] = tuple(rest)


class SGD(Optimizer):
    """Stochastic gradient descent: `sgd_step` for each param.

    Parameters
    ----------
    layer : Layer
        Whose params move.
    learning_rate : float
    momentum : float
        0 <= m < 1.

    Raises
    ------
    ConfigError
        An argument has an impossible value; the message names it.

    Examples
    --------
    >>> from mha_numpy.nn import LayerNorm
    >>> layer = LayerNorm(2)
    >>> layer.grads["gain"] = np.array([1.0, -1.0])
    >>> SGD(layer, 0.1).step()
    >>> layer.params["gain"]
    array([0.9, 1.1])
    """

    def __init__(self, layer: Layer, learning_rate: float, *, momentum: float = 0.0) -> None:
        super().__init__(layer, learning_rate)
        self.momentum = check_share("momentum", momentum)

    def start(self, param: Array) -> tuple[Array, ...]:
        """Return a velocity of 0."""
        return (np.zeros_like(param),)

    def rule(
        self, param: Array, gradient: Array, memory: tuple[Array, ...], learning_rate: float
    ) -> tuple[Array, ...]:
        """Return the param after this step, and its velocity."""
        return sgd_step(
            param, gradient, *memory, learning_rate=learning_rate, momentum=self.momentum
        )


class Adam(Optimizer):
    """Adam: `adam_step` for each param, without decay.

    Parameters
    ----------
    layer : Layer
        Whose params move.
    learning_rate : float
    betas : (float, float)
        Each 0 <= beta < 1.
    eps : float
    backend : {"numpy", "loops", "numba"}

    Raises
    ------
    ConfigError
        An argument has an impossible value; the message names it.

    Examples
    --------
    >>> from mha_numpy.nn import LayerNorm
    >>> layer = LayerNorm(2)
    >>> layer.grads["gain"] = np.array([1.0, -0.001])
    >>> Adam(layer, 0.1).step()
    >>> layer.params["gain"].round(3)
    array([0.9, 1.1])
    """

    def __init__(
        self,
        layer: Layer,
        learning_rate: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        backend: str = "numpy",
    ) -> None:
        super().__init__(layer, learning_rate)
        beta_1, beta_2 = betas
        self.betas = check_share("betas", beta_1), check_share("betas", beta_2)
        self.eps = check_number("eps", eps, positive=True)
        self.weight_decay = 0.0
        self.backend = check_backend(backend)

    def start(self, param: Array) -> tuple[Array, ...]:
        """Return a mean and a square of 0."""
        return np.zeros_like(param), np.zeros_like(param)

    def rule(
        self, param: Array, gradient: Array, memory: tuple[Array, ...], learning_rate: float
    ) -> tuple[Array, ...]:
        """Return the param after this step, and the running mean and square of its gradient."""
        mean, square = memory
        return adam_step(
            param, gradient, mean, square, self.t, learning_rate=learning_rate,
            betas=self.betas, eps=self.eps, weight_decay=self.weight_decay,
            backend=self.backend,
        )  # fmt: skip


class AdamW(Adam):
    """Adam with decay: `adam_step` for each param, which also shrinks by itself.

    Parameters
    ----------
    layer : Layer
        Whose params move.
    learning_rate : float
    betas : (float, float)
        Each 0 <= beta < 1.
    eps : float
    weight_decay : float
        At least 0. All params decay, those of norms and biases too.
    backend : {"numpy", "loops", "numba"}

    Raises
    ------
    ConfigError
        An argument has an impossible value; the message names it.

    Examples
    --------
    >>> from mha_numpy.nn import LayerNorm
    >>> layer = LayerNorm(2)
    >>> AdamW(layer, 0.1, weight_decay=0.5).step()  # without gradients there is decay alone
    >>> layer.params["gain"]
    array([0.95, 0.95])
    """

    def __init__(
        self,
        layer: Layer,
        learning_rate: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        backend: str = "numpy",
    ) -> None:
        super().__init__(layer, learning_rate, betas=betas, eps=eps, backend=backend)
        self.weight_decay = check_number("weight_decay", weight_decay)
        if self.weight_decay < 0:
            raise ConfigError(f"weight_decay: expected a number >= 0; got {weight_decay}")
