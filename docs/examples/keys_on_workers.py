"""Attention to keys that lie on several workers of a Dask cluster, forward and backward.

``python docs/examples/keys_on_workers.py`` starts a small cluster on this machine. Each worker
attends to its own keys and keeps them, together with what its backward needs. Only queries,
outputs, lse and gradients travel.
"""

import numpy as np
from dask.distributed import Client

from mha_numpy import attention_backward, attention_forward, merge_backward, merge_forward


def attend(client, q, keys, values):
    """Return out, and what `attend_backward` needs; keys and values are lists of futures."""
    parts = [client.submit(attention_forward, q, k, v) for k, v in zip(keys, values, strict=True)]
    found = client.gather([client.submit(out_and_lse, part) for part in parts])
    out, merged = merge_forward([out for out, _ in found], [lse for _, lse in found])
    return out, (parts, merged)


def attend_backward(client, d_out, cache):
    """Return d_q, and lists of the parts of d_k and d_v."""
    parts, merged = cache
    d_outs, d_lses = merge_backward(d_out, merged)
    grads = client.gather(
        [
            client.submit(backward_of_part, d_out, d_lse, part)
            for d_out, d_lse, part in zip(d_outs, d_lses, parts, strict=True)
        ]
    )
    return (
        sum(part.d_q for part in grads),
        [part.d_k for part in grads],
        [part.d_v for part in grads],
    )


def out_and_lse(part):
    """Return what a worker sends: the cache stays where it is."""
    out, cache = part
    return out, cache.lse


def backward_of_part(d_out, d_lse, part):
    _, cache = part
    return attention_backward(d_out, cache, d_lse=d_lse)


def main():
    """Compare attention on four workers with attention in one piece."""
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(2, 6, 5, 16)), *rng.normal(size=(2, 2, 3, 1000, 16))
    d_out = rng.normal(size=(2, 6, 5, 16))
    with Client(n_workers=4, threads_per_worker=1, dashboard_address=None) as client:
        keys, values = (client.scatter(np.split(x, 4, axis=2)) for x in (k, v))
        out, cache = attend(client, q, keys, values)
        d_q, d_k, d_v = attend_backward(client, d_out, cache)
    whole, whole_cache = attention_forward(q, k, v)
    grads = attention_backward(d_out, whole_cache)
    pairs = {
        "out": (out, whole), "d_q": (d_q, grads.d_q),
        "d_k": (np.concatenate(d_k, axis=2), grads.d_k),
        "d_v": (np.concatenate(d_v, axis=2), grads.d_v),
    }  # fmt: skip
    for name, (found, expected) in pairs.items():
        print(f"{name}: largest difference {abs(found - expected).max():.0e}")


if __name__ == "__main__":
    main()
