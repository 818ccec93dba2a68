"""Checks of what was recorded, before it is drawn."""

from collections.abc import Sequence

from mha_numpy.checking.tracing import Step, Trace
from mha_numpy.checks import check_integer
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.show.pictures.labels import check_labels

MAX_STEPS = 300  # in one picture


def check_steps(trace: Trace, picture: str, *, backward: bool | None = None) -> list[Step]:
    """Return the steps of a trace, or of one pass, if there are some and not too many."""
    if not isinstance(trace, Trace):
        raise ConfigError(
            f"trace: expected the Trace of `with trace() as t:`; got {type(trace).__name__}"
        )
    steps = [step for step in trace if backward in (None, step.is_backward)]
    if not steps:
        call = "backward" if backward else "forward"
        wanted = "gradient, a step named d_..." if backward else f"step of {call}"
        raise ConfigError(
            f"trace: expected at least one {wanted}; got {len(trace)} others: "
            f"call {call} inside `with trace() as t:`"
        )
    if len(steps) > MAX_STEPS:
        raise ConfigError(
            f"trace: expected at most {MAX_STEPS} steps for one {picture}; got {len(steps)}: "
            "record fewer calls"
        )
    return steps


def check_numbers(steps: Sequence[Step], kinds: str = "biufc") -> None:
    """Raise a ConfigError that names a step whose dtype is of none of the kinds."""
    for step in steps:
        if step.array.dtype.kind not in kinds:
            numbers = "numbers" if "c" in kinds else "real numbers"
            raise ConfigError(
                f"trace: expected arrays of {numbers}; got {step.name} of {step.array.dtype}"
            )


def check_sequence(steps: Sequence[Step], sequence: int) -> int | None:
    """Return the size of the batch, None without one, or raise an error that names the step."""
    batch = None
    for step in steps:
        names, shape = step.axes.split(), step.array.shape
        if len(names) != len(shape):
            raise ShapeError(
                f"{step.name}: expected one axis name per axis of shape {shape}; got {step.axes!r}"
            )
        if "B" in names:
            batch = shape[names.index("B")]
            if not 0 <= check_integer("sequence", sequence) < batch:
                raise ConfigError(
                    f"sequence: expected an index into the batch, 0 <= sequence < B={batch} "
                    f"({step.name}); got {sequence}"
                )
    if batch is None and check_integer("sequence", sequence) != 0:
        raise ConfigError(f"sequence: expected 0, as no step has an axis B; got {sequence}")
    return batch


def axis_labels(
    steps: Sequence[Step],
    tokens: Sequence[str] | None,
    source_tokens: Sequence[str] | None = None,
    features: Sequence[str] | None = None,
) -> dict[str, list[str]]:
    """Return the labels of each axis that has some, or raise a ConfigError that names them.

    Without source tokens, the keys have those of the queries if they are as many.
    """
    sizes: dict[str, int] = {}
    for step in steps:
        sizes |= zip(step.axes.split(), step.array.shape, strict=True)
    if source_tokens is None and sizes.get("T_k") == sizes.get("T_q"):
        source_tokens = tokens
    given = {"tokens": tokens, "source_tokens": source_tokens, "features": features}
    found: dict[str, list[str]] = {}
    for (name, labels), axis in zip(given.items(), ("T_q", "T_k", "D"), strict=True):
        if labels is not None:
            check_labels(name, labels, **{axis: sizes.get(axis, 0)})
            found[axis] = [str(label) for label in labels]
    return found
