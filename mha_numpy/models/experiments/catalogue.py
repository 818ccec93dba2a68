"""All experiments, by name."""

from difflib import get_close_matches

from mha_numpy.errors import ConfigError, describe
from mha_numpy.models.experiments.captions import CAPTIONS
from mha_numpy.models.experiments.distillation import DISTILLATION
from mha_numpy.models.experiments.dropout import DROPOUT
from mha_numpy.models.experiments.experiment import Experiment
from mha_numpy.models.experiments.grouped import GROUPED
from mha_numpy.models.experiments.half_precision import HALF_PRECISION
from mha_numpy.models.experiments.heads import HEADS
from mha_numpy.models.experiments.in_context import IN_CONTEXT
from mha_numpy.models.experiments.norm_place import NORM_PLACE
from mha_numpy.models.experiments.redundancy import REDUNDANCY
from mha_numpy.models.experiments.rounding import ROUNDING
from mha_numpy.models.experiments.scale import SCALE
from mha_numpy.models.experiments.sharing import SHARING

ALL = (
    HEADS, SCALE, REDUNDANCY, SHARING, GROUPED, DISTILLATION, IN_CONTEXT, DROPOUT, NORM_PLACE,
    CAPTIONS, ROUNDING, HALF_PRECISION,
)  # fmt: skip
EXPERIMENTS = {each.name: each for each in ALL}


def find_experiment(name: str) -> Experiment:
    """Return an experiment by its name.

    Examples
    --------
    >>> find_experiment("scale").title
    'Why the scale?'
    """
    if name not in EXPERIMENTS:
        near = get_close_matches(str(name), EXPERIMENTS, cutoff=0.4) or EXPERIMENTS
        raise ConfigError(
            f"name: expected an experiment such as {', '.join(near)}; got {describe(name)}"
        )
    return EXPERIMENTS[name]
