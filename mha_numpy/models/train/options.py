"""Options of optimizers, and groups of params with different options from the rest."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from mha_numpy.backends import check_backend
from mha_numpy.calls import Explained
from mha_numpy.checks import check_flag, check_number, check_share
from mha_numpy.errors import ConfigError, describe
from mha_numpy.foreign import refuse


def _check_betas(name: str, value: Any) -> tuple[float, float]:
    try:
        beta_1, beta_2 = value
    except (TypeError, ValueError) as reason:
        raise ConfigError(
            f"{name}: expected two numbers, such as (0.9, 0.999); got {describe(value)}"
        ) from reason
    return check_share(name, beta_1), check_share(name, beta_2)


# every option of every optimizer, and its check
OPTIONS: dict[str, Callable[[str, Any], Any]] = {
    "learning_rate": partial(check_number, least=0),
    "momentum": check_share,
    "nesterov": check_flag,
    "betas": _check_betas,
    "eps": partial(check_number, positive=True),
    "weight_decay": partial(check_number, least=0),
    "backend": lambda name, value: check_backend(value),
}


def check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked options, or raise a ConfigError that names one."""
    refuse((name for name in options if name not in OPTIONS), OPTIONS)
    options = {name: OPTIONS[name](name, value) for name, value in options.items()}
    if options.get("nesterov") and options.get("momentum") == 0:
        raise ConfigError("nesterov: expected momentum > 0 with it; got momentum=0; write 0.9")
    return options


class ParamGroup(metaclass=Explained):
    """Params, chosen by their names, for which an optimizer has different options.

    Parameters
    ----------
    names : str
        Patterns of dotted names, separated by spaces. ``*`` matches any text, dots included, ``?``
        one character and ``[qk]`` one of these.
    **options
        Options of the optimizer, such as `learning_rate` or `weight_decay`. All others stay those
        of the optimizer.

    Notes
    -----
    A param belongs to the first group that matches its name. Most recipes leave biases and the
    gains of norms out of weight decay: there are few of them and little data determines them, so
    decay prevents hardly any overfitting there and can make the fit worse. Sources: Goodfellow et
    al. 2016, *Deep Learning*, section 7.1; for transformers, Radford et al. 2018, *Improving
    language understanding by generative pre-training*, section 4.1.

    Examples
    --------
    >>> from mha_numpy.models import TransformerLM
    >>> from mha_numpy.models.train import AdamW
    >>> model = TransformerLM(vocab_size=8, max_tokens=4, embed_dim=8, num_heads=2)
    >>> flat = ParamGroup("*.gain *.bias *.b_*", weight_decay=0.0)
    >>> slow = ParamGroup("embedding.* positions.*", learning_rate=1e-4)
    >>> optimizer = AdamW(model, 1e-3, weight_decay=0.1, groups=[flat, slow])
    >>> optimizer.options_of("norm.gain")["weight_decay"]
    0.0
    >>> optimizer.options_of("embedding.table")["learning_rate"]
    0.0001
    """

    def __init__(self, names: str, **options: Any) -> None:
        if not isinstance(names, str) or not names.split():
            raise ConfigError(
                "names: expected patterns of params' names, such as '*.gain *.b_*'; "
                f"got {describe(names)}"
            )
        self.names, self.options = names, check_options(options)

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"ParamGroup({self.names!r}{options})"


def options_by_name(
    groups: Any, names: Iterable[str], options: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the options of those params that belong to a group, by the name of the param.

    Raise a ConfigError if a pattern matches none of the remaining params, or if a group does not go
    with the options of the optimizer.
    """
    if not isinstance(groups, (list, tuple)) or any(not isinstance(g, ParamGroup) for g in groups):
        raise ConfigError(
            f"groups: expected a list of ParamGroup; got {describe(groups)}; "
            "write groups=[ParamGroup('*.gain *.b_*', weight_decay=0.0)]"
        )
    left, found = list(names), dict[str, dict[str, Any]]()
    for group in groups:
        if unknown := [name for name in group.options if name not in options]:
            raise ConfigError(
                "groups: expected options of the optimizer, "
                f"{', '.join(options)}; got {unknown[0]!r}"
            )
        check_options({**options, **group.options})
        patterns = group.names.split()
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in left):
                near = get_close_matches(pattern, left, n=3, cutoff=0) or ["none"]
                raise ConfigError(
                    f"groups: expected {pattern!r} to match a param that no earlier group has; "
                    f"got none; names like it: {', '.join(near)}"
                )
        chosen = [name for name in left if any(fnmatchcase(name, p) for p in patterns)]
        found |= dict.fromkeys(chosen, group.options)
        left = [name for name in left if name not in found]
    return found


# what other libraries' optimizers have as attributes, and what to write here instead
SAVE = "save_checkpoint(path, optimizer, rng, history) of mha_numpy.models.train, with the params"
LOAD = "load_checkpoint(path, optimizer, rng) of mha_numpy.models.train, with the params"
STEP = "optimizer.step(), after backward has filled the gradients"
MEMORY = "optimizer.memory, a dict by the names of the params"
ATTRIBUTES = {
    # PyTorch
    "zero_grad": "model.zero_grads(): gradients belong to the layers",
    "state_dict": SAVE,
    "load_state_dict": LOAD,
    "param_groups": "optimizer.groups, and optimizer.options for all other params",
    "add_param_group": "groups=[ParamGroup(names, ...)], when the optimizer is made",
    "defaults": "optimizer.options, a dict",
    "state": MEMORY,
    "lr": "optimizer.learning_rate",
    # Keras
    "apply": STEP,
    "apply_gradients": STEP,
    "minimize": "fit(model, ...) of mha_numpy.models.train",
    "iterations": "optimizer.t, the number of steps taken",
    "variables": MEMORY,
    # Optax
    "init": "nothing: an optimizer is ready once it is made",
    "update": STEP,
}
