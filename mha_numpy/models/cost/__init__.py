"""What attention costs: parameters, floating-point operations, bytes; arithmetic only."""

from mha_numpy.models.cost.configurations import CONFIGURATIONS, ModelConfig, find_configuration
from mha_numpy.models.cost.flops import Flops, count_flops
from mha_numpy.models.cost.memory import kv_cache_bytes
from mha_numpy.models.cost.parameters import Parameters, count_parameters

__all__ = [
    "CONFIGURATIONS", "Flops", "ModelConfig", "Parameters", "count_flops", "count_parameters",
    "find_configuration", "kv_cache_bytes",
]  # fmt: skip
