"""One more token."""

from typing import NamedTuple

import numpy as np

from mha_numpy.core.multihead_params import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import draw_params, normal, opposite_params, opposite_tokens
from mha_numpy.teach.task import Hints, Inputs, Law, Mistake, Task
from mha_numpy.teach.tasks.attention import attend
from mha_numpy.teach.tasks.merge_heads import merge_heads
from mha_numpy.teach.tasks.multi_head import project_k, project_o, project_q, project_v
from mha_numpy.teach.tasks.split_heads import split_heads


class Decoded(NamedTuple):
    """The output for the new token, and the keys and values of all tokens."""

    out: Array  # (B, 1, D)
    k: Array  # (B, H_kv, T + 1, d)
    v: Array


def decode_step(
    x: Array, k_past: Array, v_past: Array, params: MultiHeadParams, num_heads: int
) -> Decoded:
    """Attend from one new token to all tokens so far, whose keys and values were kept.

    Query, key and value of the new token are ``x @ w + b``, each with its own params, and head h
    has the h-th block of d columns. Its key and value come after those of the T tokens before it;
    T may be 0. Its query attends to all T + 1 tokens: query head h reads key and value head
    ``h // (H // H_kv)`` and returns ``softmax(q k^T / sqrt(d)) v``. The H heads, side by side in
    their order, are ``merged``; the output is ``merged @ w_o + b_o``. Large scores must not
    overflow.

    Do not change the inputs. Use NumPy and your own functions.

    Parameters
    ----------
    x : (B, 1, D)
    k_past, v_past : (B, H_kv, T, d)
        Already split into heads; H_kv divides H.
    params : MultiHeadParams
        ``params.w_q`` (D, H*d), ``params.w_k`` and ``params.w_v`` (D, H_kv*d), ``params.w_o``
        (H*d, D); four biases, ``params.b_q`` to ``params.b_o``, each with one number for each
        column of its ``w``.
    num_heads : int
        H.

    Returns
    -------
    out : (B, 1, D)
    k, v : (B, H_kv, T + 1, d)
        Keys and values of all tokens, for the next step.
    """
    H_kv = k_past.shape[1]
    q = split_heads(project_q(x, params), num_heads)
    k = append(k_past, split_heads(project_k(x, params), H_kv))
    v = append(v_past, split_heads(project_v(x, params), H_kv))
    out = project_o(merge_heads(attend(q, k, v).heads), params)
    return Decoded(out, k, v)


def append(past: Array, new: Array) -> Array:
    """Put the new tokens after the past ones."""
    return np.concatenate([past, new], axis=2)


def _draw_decode(rng: np.random.Generator) -> list[Inputs]:
    """Draw shared heads, an empty past, and large scores where all sizes but D are equal."""
    probes = []
    for B, T, D, d, H, H_kv in ((2, 5, 10, 3, 4, 2), (2, 0, 12, 3, 6, 2)):
        arrays = normal(rng, x=(B, 1, D), k_past=(B, H_kv, T, d), v_past=(B, H_kv, T, d))
        params = draw_params(rng, D, H * d, kv_width=H_kv * d)
        probes.append(arrays | {"params": params, "num_heads": H})
    x, params = opposite_tokens(rng, (4, 1, 16)), opposite_params(draw_params(rng, 16, 16))
    k, v = rng.integers(-40, -30, (4, 4, 4, 4)).astype(float), rng.normal(size=(4, 4, 4, 4))
    probes.append({"x": x, "k_past": k, "v_past": v, "params": params, "num_heads": 4})
    for B, T, D, d, H, H_kv in ((3, 2, 7, 5, 6, 3), (1, 4, 5, 2, 3, 1)):
        arrays = normal(rng, x=(B, 1, D), k_past=(B, H_kv, T, d), v_past=(B, H_kv, T, d))
        params = draw_params(rng, D, H * d, kv_width=H_kv * d)
        probes.append(arrays | {"params": params, "num_heads": H})
    return probes


MISTAKES = [
    Mistake("past forgotten", "the new token sees only itself: the past keys and values are not used",
            "np.concatenate([k_past, k_new], axis=2)", {"np.concatenate([past, new], axis=2)": "new"}),
    Mistake("new key before the past", "the new key and value are put before the past instead of after it",
            "np.concatenate([k_past, k_new], axis=2)", {"[past, new]": "[new, past]"}),
    Mistake("last of the past overwritten", "the new key and value overwrite the last ones of the past",
            "np.concatenate([k_past, k_new], axis=2)", {"[past, new]": "[past[:, :, :-1], new]"}),
    Mistake("first of the past dropped", "the first key and value of the past are dropped",
            "np.concatenate([k_past, k_new], axis=2)", {"[past, new]": "[past[:, :, 1:], new]"}),
    Mistake("own key not seen", "the new token attends only to the past, not to itself", "append first, then attend",
            {"attend(q, k, v).heads)": "attend(q, k_past, v_past).heads)"}),
    Mistake("decoded as position 0", "the new token is masked as if it were the first, so it sees only the first key",
            "it is at position T and sees all T + 1 keys",
            {"attend(q, k, v).heads)": "attend(q, k[:, :, :1], v[:, :, :1]).heads)"}),
    Mistake("new value not kept", "the returned v lacks the new value",
            "return v with the new value after the past", {"Decoded(out, k, v)": "Decoded(out, k, v_past)"}),
    Mistake("nothing new is kept", "the returned k and v lack the new token",
            "return k and v with the new token after the past",
            {"Decoded(out, k, v)": "Decoded(out, k_past, v_past)"}),
]  # fmt: skip

TASK = Task(
    decode_step,
    place=240,
    difficulty=3,
    minutes=20,
    needs=("multi-head", "grouped-attention"),
    hints=Hints(
        where="Ask which of q, k, v are new, and which axis of k and v holds the tokens: notebook "
        '17, "What is kept".',
        question="Three tokens are kept and a fourth arrives: how many rows does q have, and how "
        "many does k have? Is the fourth token among the keys that it attends to? What must the "
        "step return if no token was kept before?",
        mistake="own key not seen",
        fix="k, v = np.concatenate([k_past, k_new], axis=2), np.concatenate([v_past, "
        "v_new], axis=2)\n"
        "then the one query of each head attends to all of k and v",
    ),
    returns="tuple[Array, Array, Array]",
    draw=_draw_decode,
    laws=[
        Law(
            "the past keys and values come first, unchanged",
            lambda inputs, arrays: np.concatenate(
                [arrays[name][:, :, :-1] - inputs[f"{name}_past"] for name in "kv"]
            ),
        )
    ],
    mistakes=MISTAKES,
)
