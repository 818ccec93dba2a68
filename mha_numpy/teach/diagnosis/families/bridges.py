"""Bridges: params as GPT-2 stores them, and back."""

import numpy as np

from mha_numpy.teach.diagnosis.draws import draw_params
from mha_numpy.teach.diagnosis.edits import Edits
from mha_numpy.teach.diagnosis.mistake import Mistake
from mha_numpy.teach.diagnosis.piece import Inputs, Piece


def _draw_gpt2(rng: np.random.Generator) -> list[Inputs]:
    """Draw GPT-2's params for D = 6."""
    shapes = {"c_attn_w": (6, 18), "c_attn_b": (18,), "c_proj_w": (6, 6), "c_proj_b": (6,)}
    return [{name: rng.normal(size=shape) for name, shape in shapes.items()}]


PIECES = [
    Piece("from_gpt2", _draw_gpt2),
    Piece("to_gpt2", lambda rng: [{"params": draw_params(rng, 6, 6)}]),
]


def _in_order(order: str) -> Edits:
    """Take queries, keys and values for one another, in both directions."""
    w, b = (", ".join(f"{kind}_{letter}" for letter in order.split(", ")) for kind in "wb")
    return {
        "w_q, w_k, w_v = ": f"{w} = ", "[w_q, w_k, w_v]": f"[{w}]",
        "b_q, b_k, b_v = ": f"{b} = ", "[b_q, b_k, b_v]": f"[{b}]",
    }  # fmt: skip


# fmt: off
MISTAKES = [
    Mistake("every w transposed", "every w is transposed, as if GPT-2 stored (outputs, inputs)",
            "GPT-2 computes x @ w as well: no transpose",
            {
                old: new for w in ("w_q", "w_k", "w_v", "w_o")
                for old, new in ((f"{w}={w}", f"{w}={w}.T"), (f"= params.{w}, ", f"= params.{w}.T, "))
            }),
    Mistake("in the order k, q, v", "queries and keys have changed places: the order is q, k, v", "q, k, v",
            _in_order("k, q, v")),
    Mistake("in the order q, v, k", "keys and values have changed places: the order is q, k, v", "q, k, v",
            _in_order("q, v, k")),
    Mistake("in the order v, k, q", "queries and values have changed places: the order is q, k, v", "q, k, v",
            _in_order("v, k, q")),
    Mistake("columns of q, k, v alternate", "columns of q, k and v are taken in turn instead of in blocks of D",
            "np.split(c_attn_w, 3, axis=1), np.concatenate(..., axis=1)",
            {"np.split(c_attn_w, 3, axis=1)": "(c_attn_w[:, i::3] for i in range(3))",
             "np.split(c_attn_b, 3)": "(c_attn_b[i::3] for i in range(3))",
             "np.concatenate(ws, axis=1)": "np.stack(ws, axis=-1).reshape(len(w_q), -1)",
             "np.concatenate(bs)": "np.stack(bs, axis=-1).ravel()"}),
    Mistake("q, k, v by reshape alone", "reshape to or from (3, D, D) cuts the rows of c_attn_w, not its columns",
            "np.split(c_attn_w, 3, axis=1), np.concatenate(..., axis=1)",
            {"np.split(c_attn_w, 3, axis=1)": "c_attn_w.reshape(3, len(c_attn_w), -1)",
             "np.concatenate(ws, axis=1)": "np.stack(ws).reshape(len(w_q), -1)"}),
    Mistake("q, k, v along the rows", "q, k and v lie below one another instead of side by side", "axis=1",
            {"np.split(c_attn_w, 3, axis=1)": "np.split(c_attn_w, 3, axis=0)",
             "np.concatenate(ws, axis=1)": "np.concatenate(ws, axis=0)"}),
    Mistake("biases left out", "the biases are 0", "c_attn_b holds b_q, b_k, b_v; c_proj_b is b_o",
            {
                old: new for b in ("b_q", "b_k", "b_v", "b_o")
                for old, new in ((f"{b}={b}", f"{b}=np.zeros_like({b})"), (f", params.{b}\n", f", np.zeros_like(params.{b})\n"))
            }),
]
# fmt: on
