"""Optimizers: how a gradient moves a param."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy.backends import ONE_PASS_KERNELS, find_kernels
from mha_numpy.calls import Explained
from mha_numpy.checks import check_count, check_number
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError, ShapeError, TrainingError
from mha_numpy.foreign import missing_attribute
from mha_numpy.layers import Layer
from mha_numpy.layers.layer import check_layer
from mha_numpy.layers.params_file import mismatch
from mha_numpy.models.train.finite import ADVICE, check_finite, is_finite
from mha_numpy.models.train.gradients import fitting_grads, movable_params
from mha_numpy.models.train.options import ATTRIBUTES, ParamGroup, check_options, options_by_name


def sgd_equations(
    param: Array,
    gradient: Array,
    velocity: Array,
    learning_rate: float,
    momentum: float,
    nesterov: bool,
) -> tuple[Array, Array]:
    """Return param and velocity after a step of gradient descent."""
    # 1. the velocity remembers the gradients before
    velocity = momentum * velocity + gradient

    # 2. look ahead, to where the next step will begin
    direction = gradient + momentum * velocity if nesterov else velocity

    # 3. move
    return param - learning_rate * direction, velocity


def sgd_step(
    param: Array,
    gradient: Array,
    velocity: Array,
    *,
    learning_rate: float,
    momentum: float = 0.0,
    nesterov: bool = False,
) -> tuple[Array, Array]:
    """Step against the gradient, and continue in the direction of earlier steps.

    ``velocity = momentum * velocity + gradient`` and ``param = param - learning_rate * velocity``;
    with Nesterov ``param = param - learning_rate * (gradient + momentum * velocity)``.

    Parameters
    ----------
    param, gradient, velocity : float arrays of one shape
        The velocity is 0 before the first step.
    learning_rate : float
    momentum : float
        0 <= m < 1: the share of the velocity to keep.
    nesterov : bool
        Whether the step already includes the share of the velocity that the next one will keep:
        the gradient is then the one at the point to which the velocity leads. Needs momentum > 0.

    Returns
    -------
    param, velocity : arrays like `param`

    Notes
    -----
    Sources: Polyak 1964; Nesterov 1983; both in this form: Sutskever et al. 2013, *On the
    importance of initialization and momentum in deep learning*, section 2; Nesterov's with the
    param at the point ahead: Bengio et al. 2013, *Advances in optimizing recurrent networks*,
    section 3.5.

    Examples
    --------
    >>> one = np.array([1.0])
    >>> param, velocity = sgd_step(one, one, one, learning_rate=0.1, momentum=0.5)
    >>> print(param.round(3), velocity)
    [0.85] [1.5]
    >>> param, _ = sgd_step(one, one, one, learning_rate=0.1, momentum=0.5, nesterov=True)
    >>> print(param)  # 1 - 0.1 * (1 + 0.5 * 1.5)
    [0.825]
    """
    param, gradient, velocity = _as_like_arrays(param=param, gradient=gradient, velocity=velocity)
    options = {"learning_rate": learning_rate, "momentum": momentum, "nesterov": nesterov}
    return sgd_equations(param, gradient, velocity, **check_options(options))


def adam_equations(
    param: Array,
    gradient: Array,
    mean: Array,
    square: Array,
    t: int,
    learning_rate: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float = 0.0,
    backend: str | None = None,
) -> tuple[Array, Array, Array]:
    """Return param, mean and square after step t of Adam."""
    kernels = find_kernels(ONE_PASS_KERNELS, param, gradient, mean, square, backend=backend)
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
    backend: str | None = None,
) -> tuple[Array, Array, Array]:
    """Step by the running mean of the gradient over the root of that of its square.

    ``mean = beta_1 mean + (1 - beta_1) gradient``, ``square = beta_2 square + (1 - beta_2)
    gradient^2``, ``param = param - learning_rate * mean_hat / (sqrt(square_hat) + eps)``, where
    ``mean_hat = mean / (1 - beta_1^t)``, and ``square_hat`` with beta_2, undo the start at 0.

    Parameters
    ----------
    param, gradient, mean, square : float arrays of one shape
        `mean` and `square` are 0 before the first step.
    t : int
        Number of this step, from 1.
    learning_rate : float
    betas : (float, float)
        How much of the running mean and of the running square to keep.
    eps : float
        Keeps a param without gradients from being divided by 0.
    weight_decay : float
        The param first shrinks by ``learning_rate * weight_decay`` of itself, apart from the
        gradient: AdamW.
    backend : {"numpy", "loops", "numba"}, optional
        Where to compute: NumPy, for "loops" too, or a kernel.

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
    >>> print(param.round(4))  # the first step has the same length for any size of the gradient
    [-0.1  0.1]
    """
    param, gradient, mean, square = _as_like_arrays(
        param=param, gradient=gradient, mean=mean, square=square
    )
    options: dict[str, Any] = {"learning_rate": learning_rate, "betas": betas, "eps": eps}
    options |= {"weight_decay": weight_decay, "backend": backend}
    t, options = check_count("t", t), check_options(options)
    return adam_equations(param, gradient, mean, square, t, **options)


def _as_like_arrays(**arrays: Array) -> list[Array]:
    (first, *_), found = arrays, [as_float_array(name, x) for name, x in arrays.items()]
    for name, x in zip(arrays, found, strict=True):
        if x.shape != found[0].shape:
            raise ShapeError(
                f"{name}: expected the shape of {first} {found[0].shape}; got {x.shape}"
            )
    return found


class Optimizer(metaclass=Explained):
    """Moves all params of a layer; keeps for each param the memory of its rule.

    Parameters
    ----------
    layer : Layer
        With float32 or float64 params, each in its own memory: they move in their arrays.
    learning_rate : float
        That of a step whose factor in the schedule is 1.
    groups : list of ParamGroup
        Params with different options; each belongs to the first group that matches its name.
    **options
        The rule's other options. Each option is an attribute.

    Notes
    -----
    No other attributes can be set, because a misspelt `learning_rate` would go unnoticed. A
    subclass that needs more attributes sets them before it calls this constructor.
    """

    learning_rate: float
    remembers = 0  # how many arrays like each param

    def __init__(
        self,
        layer: Layer,
        learning_rate: float,
        *,
        groups: Sequence[ParamGroup] = (),
        **options: Any,
    ) -> None:
        check_layer("layer", layer)
        check_number("learning_rate", learning_rate, positive=True)
        options = check_options({"learning_rate": learning_rate, **options})
        self._params = movable_params(layer)
        options_by_name(groups, self._params, options)
        self.layer = layer
        self.groups = tuple(groups)
        self._option_names = tuple(options)
        vars(self).update(options)
        self.t = 0  # steps taken
        self.memory: dict[str, tuple[Array, ...]] = {}  # by the dotted name of a param

    def __repr__(self) -> str:
        options = {**self.options, **({"groups": list(self.groups)} if self.groups else {})}
        told = "".join(f", {name}={value!r}" for name, value in options.items())
        return f"{type(self).__name__}({type(self.layer).__name__}{told})"

    if not TYPE_CHECKING:  # or a type checker would believe that optimizers have every attribute

        def __getattr__(self, name: str) -> Any:
            """Raise the error of a missing attribute."""
            raise missing_attribute(self, name, ATTRIBUTES)

        def __setattr__(self, name: str, value: Any) -> None:
            """Set an attribute; after the constructor, only an existing one."""
            if "memory" in vars(self):
                getattr(self, name)
            object.__setattr__(self, name, value)

    @property
    def options(self) -> dict[str, Any]:
        """All options of the rule, by name."""
        return {name: getattr(self, name) for name in self._option_names}

    def options_of(self, name: str) -> dict[str, Any]:
        """Return the options for one param, by its dotted name; those of its group come first."""
        shared = self.options
        return {**shared, **options_by_name(self.groups, self._params, shared).get(name, {})}

    def start(self, param: Array) -> tuple[Array, ...]:
        """Return the memory of a param before the first step: zeros."""
        return tuple(np.zeros_like(param) for _ in range(self.remembers))

    def remembered(self, name: str, param: Array) -> tuple[Array, ...]:
        """Return the memory of a param."""
        return self.memory.get(name) or self.start(param)

    def rule(
        self, param: Array, gradient: Array, memory: tuple[Array, ...], **options: Any
    ) -> tuple[Array, ...]:
        """Return the param after step t + 1, then its memory."""
        raise NotImplementedError

    def _current_params(self) -> dict[str, Array]:
        params = dict(self.layer.named_params())
        if [*map(id, params.values())] != [*map(id, self._params.values())]:
            params = movable_params(self.layer)
            if wrong := mismatch(params, self._params):
                raise ConfigError(
                    "layer: expected the params that it had when the optimizer was made; "
                    f"got {wrong}; make a new {type(self).__name__} once you have replaced a layer"
                )
            self._params = params
        return params

    def step(self, scale: float = 1.0) -> None:
        """Move every param once, in its own array, by `scale` times its learning rate.

        Raises
        ------
        TrainingError
            If a gradient is not finite, or a param or its memory would no longer be; then nothing
            has changed.
        """
        scale, shared = check_number("scale", scale, least=0), check_options(self.options)
        params, moved = self._current_params(), []
        own, grads = options_by_name(self.groups, params, shared), fitting_grads(self.layer)
        for name, param in params.items():
            options = {**shared, **own.get(name, {})}
            options["learning_rate"] *= scale
            with np.errstate(all="ignore"):  # an overflow is reported below
                new, *rest = self.rule(param, grads[name], self.remembered(name, param), **options)
                new = new.astype(param.dtype, copy=False)
            if not is_finite([new, rest]):
                check_finite([(name, grads[name])], "in the gradient, before the step")
                place = "what the optimizer remembers" if is_finite(new) else "the param"
                raise TrainingError(
                    f"{name}: expected finite numbers after the step; got nan or inf in {place}; "
                    f"{ADVICE}"
                )
            moved.append((name, param, new, tuple(rest)))

        for name, param, new, memory in moved:  # all of them, or none
            param[...], self.memory[name] = new, memory
        self.t += 1


class SGD(Optimizer):
    """Stochastic gradient descent: `sgd_step` for each param.

    Parameters
    ----------
    layer, learning_rate, groups
        As for `Optimizer`.
    momentum, nesterov
        As for `sgd_step`.

    Examples
    --------
    >>> from mha_numpy.layers import LayerNorm
    >>> layer = LayerNorm(2)
    >>> layer.grads["gain"] = np.array([1.0, -1.0])
    >>> SGD(layer, 0.1).step()
    >>> layer.params["gain"]
    array([0.9, 1.1])
    """

    remembers = 1  # the velocity

    def __init__(
        self,
        layer: Layer,
        learning_rate: float,
        *,
        momentum: float = 0.0,
        nesterov: bool = False,
        groups: Sequence[ParamGroup] = (),
    ) -> None:
        super().__init__(
            layer, learning_rate, momentum=momentum, nesterov=nesterov, groups=groups
        )  # fmt: skip

    def rule(
        self, param: Array, gradient: Array, memory: tuple[Array, ...], **options: Any
    ) -> tuple[Array, ...]:
        """Return the param after this step, and its velocity."""
        (velocity,) = memory
        return sgd_equations(param, gradient, velocity, **options)


class Adam(Optimizer):
    """Adam: `adam_step` for each param, without decay.

    Parameters
    ----------
    layer, learning_rate, groups
        As for `Optimizer`.
    betas, eps, backend
        As for `adam_step`.

    Examples
    --------
    >>> from mha_numpy.layers import LayerNorm
    >>> layer = LayerNorm(2)
    >>> layer.grads["gain"] = np.array([1.0, -0.001])
    >>> Adam(layer, 0.1).step()
    >>> layer.params["gain"].round(3)
    array([0.9, 1.1])
    """

    remembers = 2  # mean and square

    def __init__(
        self,
        layer: Layer,
        learning_rate: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        backend: str | None = None,
        groups: Sequence[ParamGroup] = (),
    ) -> None:
        super().__init__(layer, learning_rate, betas=betas, eps=eps, backend=backend, groups=groups)

    def rule(
        self, param: Array, gradient: Array, memory: tuple[Array, ...], **options: Any
    ) -> tuple[Array, ...]:
        """Return the param after this step, and the running mean and square of its gradient."""
        mean, square = memory
        return adam_equations(param, gradient, mean, square, self.t + 1, **options)


class AdamW(Adam):
    """Adam with decay: `adam_step` for each param, which also shrinks by itself.

    Parameters
    ----------
    layer, learning_rate, groups
        As for `Optimizer`.
    betas, eps, weight_decay, backend
        As for `adam_step`. All params decay, including those of norms and biases, unless a group
        exempts them.

    Examples
    --------
    >>> from mha_numpy.layers import LayerNorm
    >>> layer = LayerNorm(2)
    >>> AdamW(layer, 0.1, weight_decay=0.5).step()  # without gradients there is only decay
    >>> layer.params["gain"]
    array([0.95, 0.95])
    >>> AdamW(layer, 0.1, groups=[ParamGroup("gain bias", weight_decay=0.0)])
    AdamW(LayerNorm, learning_rate=0.1, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01, \
backend=None, groups=[ParamGroup('gain bias', weight_decay=0.0)])
    """

    def __init__(
        self,
        layer: Layer,
        learning_rate: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        backend: str | None = None,
        groups: Sequence[ParamGroup] = (),
    ) -> None:
        Optimizer.__init__(
            self, layer, learning_rate, betas=betas, eps=eps, weight_decay=weight_decay,
            backend=backend, groups=groups,
        )  # fmt: skip
