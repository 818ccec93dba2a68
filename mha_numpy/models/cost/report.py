"""A model's cost in tables."""

from collections.abc import Iterator
from dataclasses import replace

from mha_numpy.models.cost.configurations import CONFIGURATIONS, ModelConfig
from mha_numpy.models.cost.counts import count_flops, count_parameters, kv_cache_bytes
from mha_numpy.tables import Table

UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
BYTES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def overview() -> Table:
    """Return all known models, one per line."""
    rows = []
    for config in CONFIGURATIONS.values():
        sizes = (
            config.embed_dim, config.num_layers, config.num_heads, config.num_kv_heads,
            config.head_dim, config.feed_forward,
        )  # fmt: skip
        total, context = count_parameters(config).total, config.context
        first, second, all_tokens = (kv_cache_bytes(config, n) for n in (1, 2, context))
        caches = (in_bytes(second - first), in_bytes(all_tokens))  # a state is there from the first
        rows.append([config.name, *map(str, sizes), f"{total:,}", *caches, str(context)])
    columns = [
        "model", "D", "L", "H", "H_kv", "d_k", "F", "params", "KV cache per token", "of T", "T",
    ]  # fmt: skip
    return Table("Known models; the KV cache at 2 bytes per number", columns, rows)


def sections(config: ModelConfig, context: int, batch: int) -> Iterator[Table | str]:
    """Yield one model's cost for T = `context` and B = `batch`: params, operations, KV cache."""
    special = ""
    for name in ("latent", "delta"):
        if sizes := getattr(config, name):
            special += "".join(f", {name}.{of}={size}" for of, size in sizes._asdict().items())
    if config.local_layers:
        special += f", local_layers={config.local_layers}, window={config.window}"
    yield (
        f"{config.name}: {config.variant}, D={config.embed_dim}, L={config.num_layers}, "
        f"H={config.num_heads}, H_kv={config.num_kv_heads}, d_k={config.head_dim}, "
        f"F={config.feed_forward}, V={config.vocabulary}{special}\nsource: {config.source}"
    )
    params = count_parameters(config)
    yield Table(
        f"Params: {params.total:,}; published: {config.published:,.0f}",
        ["part", "params", "share"],
        [[part, f"{n:,}", f"{n / params.total:.1%}"] for part, n in params._asdict().items() if n],
    )
    read, step = (
        count_flops(config, tokens, past=context - tokens, batch=batch) for tokens in (context, 1)
    )
    yield Table(
        f"Operations (2 per multiply-add), B={batch}, T={context}",
        ["part", "all T tokens", "share", "only the last", "share"],
        [
            [part, short(n), f"{n / read.total:.1%}", short(m), f"{m / step.total:.1%}"]
            for (part, n), m in zip(read._asdict().items(), step, strict=True)
            if n
        ]
        + [["all", short(read.total), "", short(step.total), ""]],
    )
    unshared = replace(config, latent=None, num_kv_heads=config.num_heads)
    one_head = replace(unshared, num_kv_heads=1)
    shared = {"multi-head": unshared, "as it is": config, "multi-query": one_head}
    if config.local_layers:
        shared["without windows"] = replace(config, local_layers=0)
    if config.delta:
        shared["with attention in all layers"] = replace(config, delta=None)
    rows = []
    for name, model in shared.items():
        size = in_bytes(kv_cache_bytes(model, context, batch=batch))
        rows.append([name, "latent" if model.latent else str(model.num_kv_heads), size])
    yield Table(
        f"KV cache at 2 bytes per number, B={batch}, T={context}",
        ["if it were", "H_kv", "size"],
        rows,
    )


def short(number: float, units: tuple[tuple[float, str], ...] = UNITS, rest: str = "") -> str:
    """Return a number in three digits and a unit: 124439808 is 124 M."""
    found = (f"{number / size:.3g} {unit}" for size, unit in units if number >= size)
    return next(found, f"{number:.3g}{rest}")


def in_bytes(number: float) -> str:
    """Return a number of bytes in three digits and a unit: 2684354560 are 2.5 GiB."""
    return short(number, BYTES, rest=" B")
