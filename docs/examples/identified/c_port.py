"""A port of a forward pass in C: loops over single numbers."""

import math

import numpy as np


def attention_forward(inp, NH):
    """inp: (B, T, 3C) holds the query, key and value vectors. Returns out (B, T, C)."""
    B, T, C3 = inp.shape
    C = C3 // 3
    hs = C // NH
    scale = 1.0 / math.sqrt(hs)
    out = np.zeros((B, T, C))
    for b in range(B):
        for t in range(T):
            for h in range(NH):
                query = inp[b, t, h * hs : (h + 1) * hs]
                att = np.zeros(T)
                maxval = -math.inf
                for t2 in range(t + 1):
                    key = inp[b, t2, C + h * hs : C + (h + 1) * hs]
                    for i in range(hs):
                        att[t2] += query[i] * key[i] * scale
                    maxval = max(maxval, att[t2])
                expsum = 0.0
                for t2 in range(t + 1):
                    att[t2] = math.exp(att[t2] - maxval)
                    expsum += att[t2]
                for t2 in range(t + 1):
                    value = inp[b, t2, 2 * C + h * hs : 2 * C + (h + 1) * hs]
                    for i in range(hs):
                        out[b, t, h * hs + i] += att[t2] / expsum * value[i]
    return out
