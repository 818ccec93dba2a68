"""What a scaling of rotations does to which waves."""

from collections.abc import Mapping

import numpy as np

from mha_numpy.checks import check_count
from mha_numpy.core import RopeOptions, rope_frequencies
from mha_numpy.core.rope import check_rope
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, describe
from mha_numpy.show.pictures.line_chart import line_chart
from mha_numpy.show.pictures.save import Picture


def wavelength_chart(rotations: Mapping[str, RopeOptions], d_k: int) -> Picture:
    """Draw how much longer scaled rotations make each wave, over its length before.

    Parameters
    ----------
    rotations : mapping of name to RopeOptions
        All of the same width. Before is the first one's base without its scaling.
    d_k : int
        Width of a head.

    Returns
    -------
    Picture
        A `line_chart` with a point for each pair. A pair that does not turn leaves a gap.

    Examples
    --------
    >>> from mha_numpy.core import LinearScaling, Llama3Scaling
    >>> scalings = {"linear": LinearScaling(8.0), "Llama 3": Llama3Scaling(8.0, 8192)}
    >>> rotations = {name: RopeOptions(5e5, scaling=one) for name, one in scalings.items()}
    >>> wavelength_chart(rotations, 128).alt.split("; ")[1]
    'Llama 3 is lowest, 1, at 6.28 and highest, 8, at 8,219.'
    """
    d_k = check_count("d_k", d_k, least=2)
    if not isinstance(rotations, Mapping) or not rotations:
        raise ConfigError(
            f"rotations: expected a mapping of name to RopeOptions; got {describe(rotations)}"
        )
    for rope in rotations.values():
        check_rope(rope, d_k)
    frequencies = {name: _frequencies(rope, d_k) for name, rope in rotations.items()}
    before = _frequencies(next(iter(rotations.values()))._replace(scaling=None), d_k)
    for name, after in frequencies.items():
        if after.size != before.size or not before.size:
            raise ConfigError(
                f"rotations[{name!r}]: expected as many pairs as the first has, at least 1; "
                f"got {after.size} for {before.size}"
            )
    longer = {
        name: before / np.where(after > 0, after, np.nan) for name, after in frequencies.items()
    }
    return line_chart(
        2 * np.pi / before, longer, title="How much longer each wave gets",
        x_label="tokens for one turn before", y_label="times as long", log_x=True, log_y=True,
    )  # fmt: skip


def _frequencies(rope: RopeOptions, d_k: int) -> Array:
    rotary_dim = d_k if rope.rotary_dim is None else rope.rotary_dim
    return rope_frequencies(rotary_dim, base=rope.base, scaling=rope.scaling, length=rope.length)[0]
