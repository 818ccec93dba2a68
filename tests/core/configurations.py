"""Random attention problems that reach every option, and every pair of them sooner or later."""

import numpy as np

SEEDS = range(240)


def attention_configuration(seed):
    """Return (inputs to differentiate by, options, has_heads) of one random problem."""
    rng = np.random.default_rng(seed)
    rank = (4, 4, 4, 3, 2)[seed % 5]
    B, H_kv, G = rng.integers(1, 3), rng.integers(1, 4), rng.integers(1, 4)
    if seed % 7 == 0:
        H_kv = 1  # multi-query
    elif seed % 7 == 1:
        G = 1  # multi-head
    T_q, T_k, d_k, d_v = (int(n) for n in rng.choice([1, 2, 3, 4, 5, 6], size=4))
    query = {4: (B, H_kv * G), 3: (B,), 2: ()}[rank]
    key = {4: (B, H_kv), 3: (B,), 2: ()}[rank]
    cells = (*query, T_q, T_k)
    spread = (1.0, 3.0)[rng.integers(2)]

    def some(chance):
        return rng.random() < chance

    def broadcasting(shape):
        kept = tuple(n if rng.random() < 0.6 else 1 for n in shape)
        return kept[rng.integers(len(shape)) :] if some(0.3) else kept

    inputs = {
        "q": spread * rng.normal(size=(*query, T_q, d_k)),
        "k": rng.normal(size=(*key, T_k, d_k)),
        "v": rng.normal(size=(*key, T_k, d_v)),
    }
    options = {}
    if some(0.5):
        inputs["bias"] = rng.normal(size=broadcasting(cells))
        if some(0.3):
            inputs["bias"][rng.random(inputs["bias"].shape) < 0.2] = -np.inf
    if rank == 4 and some(0.5):
        inputs["head_gate"] = rng.normal(size=query if some(0.5) else query[1:])
    if some(0.5):
        options["mask"] = rng.random(broadcasting(cells)) < 0.7
        if some(0.4):
            options["mask"] = np.broadcast_to(options["mask"], cells).copy()
            options["mask"][..., rng.integers(T_q), :] = False  # a row that sees nothing
    if some(0.5):
        options["is_causal"] = True
    if some(0.4):
        options["window"] = [(1, 0), (2, 1), (None, 2), (0, None), (3, 3)][rng.integers(5)]
    if some(0.5):
        options["q_offset"] = int(rng.integers(-2, 5))
        if rank > 2 and some(0.5):
            options["q_offset"] = rng.integers(-2, 5, size=B)
    if some(0.4):
        options["softcap"] = float(rng.uniform(0.5, 4))
    if some(0.3):
        options["scale"] = float(rng.uniform(0.1, 1.5))
    if some(0.3):
        options["dropout_mask"] = (rng.random(broadcasting(cells)) > 0.3) / 0.7
    return inputs, options
