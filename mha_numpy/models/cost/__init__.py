"""What attention costs: parameters, floating-point operations, bytes; arithmetic only."""

from mha_numpy.models.cost.configurations import (
    CONFIGURATIONS,
    Delta,
    Latent,
    ModelConfig,
    find_configuration,
)
from mha_numpy.models.cost.counts import (
    Flops,
    Parameters,
    count_flops,
    count_parameters,
    kv_cache_bytes,
)

__all__ = [
    "CONFIGURATIONS", "Delta", "Flops", "Latent", "ModelConfig", "Parameters", "count_flops",
    "count_parameters", "find_configuration", "kv_cache_bytes",
]  # fmt: skip
