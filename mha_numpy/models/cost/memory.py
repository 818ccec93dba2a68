"""How many bytes a KV cache takes."""

from mha_numpy.checks import check_count
from mha_numpy.models.cost.configurations import ModelConfig


def kv_cache_bytes(config: ModelConfig, tokens: int, *, batch: int = 1, itemsize: int = 2) -> int:
    """Count the bytes of the keys and values of all layers: ``2 L B H_kv T d_k`` numbers.

    Parameters
    ----------
    config : ModelConfig
    tokens : int
        T of each sequence.
    batch : int
        B, sequences.
    itemsize : int
        Bytes of a number: 2 for float16, 4 for float32.

    Returns
    -------
    int

    Notes
    -----
    Grouping divides it by G = H / H_kv. Sources: Shazeer 2019; Ainslie et al. 2023.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from mha_numpy.models.cost import CONFIGURATIONS
    >>> llama = CONFIGURATIONS["llama-3-70b"]
    >>> kv_cache_bytes(llama, 8192) / 2**30  # GiB
    2.5
    >>> kv_cache_bytes(replace(llama, num_kv_heads=64), 8192) / 2**30  # were it multi-head
    20.0
    """
    numbers = 2 * config.num_layers * config.num_kv_heads * config.head_dim
    for name, value in (("tokens", tokens), ("batch", batch), ("itemsize", itemsize)):
        numbers *= check_count(name, value)
    return numbers
