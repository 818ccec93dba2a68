"""Right ways to take heads out of a layer's params."""

import numpy as np


def by_deleting(params, num_heads, heads):
    def numbers(width):
        d = width // num_heads
        return np.concatenate([np.arange(h * d, h * d + d) for h in heads])

    smaller = {}
    for name, array in params._asdict().items():
        if name != "b_o":
            axis = 0 if name == "w_o" else -1
            array = np.delete(array, numbers(array.shape[axis]), axis=axis)
        smaller[name] = array
    return smaller


def by_joining_blocks(params, num_heads, heads):
    kept = sorted(set(range(num_heads)) - set(heads.tolist()))

    def of_kept(array, axis):
        blocks = np.split(array, num_heads, axis=axis)
        return np.concatenate([blocks[h] for h in kept], axis=axis)

    *read, w_o, b_o = params
    return (*(of_kept(array, -1) for array in read), of_kept(w_o, 0), b_o)


def by_an_axis_of_heads(params, num_heads, heads):
    stays = np.ones(num_heads, bool)
    stays[heads] = False

    def cut(array):
        by_head = array.reshape(*array.shape[:-1], num_heads, -1)
        return by_head[..., stays, :].reshape(*array.shape[:-1], -1)

    read = {name: cut(getattr(params, name)) for name in ("w_q", "b_q", "w_k", "b_k", "w_v", "b_v")}
    return params._replace(**read, w_o=cut(params.w_o.T).T)


RIGHT = [by_deleting, by_joining_blocks, by_an_axis_of_heads]
