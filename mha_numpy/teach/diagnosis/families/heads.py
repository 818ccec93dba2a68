"""Heads: splitting into them, merging them again."""

import numpy as np

from mha_numpy.teach.diagnosis.mistake import Mistake
from mha_numpy.teach.diagnosis.piece import Piece, Reaction, moved

SPLIT = Piece(
    "split_heads",
    lambda rng: [
        {"x": rng.normal(size=shape), "num_heads": H}
        for shape, H in (((2, 5, 12), 3), ((3, 4, 10), 5))
    ],
    result="heads",
    reactions=[
        Reaction(
            "a change of the last token changes no other token",
            moved("x", np.s_[:, -1]),
            lambda _, arrays: arrays[""][:, :, :-1],
        )
    ],
)
MERGE = Piece(
    "merge_heads",
    lambda rng: [{"heads": rng.normal(size=shape)} for shape in ((2, 3, 5, 4), (3, 5, 4, 2))],
    result="merged",
    reactions=[
        Reaction(
            "a change of the last token changes no other token",
            moved("heads", np.s_[:, :, -1]),
            lambda _, arrays: arrays[""][:, :-1],
        )
    ],
)
PIECES = [SPLIT, MERGE]

# fmt: off
MISTAKES = [
    Mistake("split without transpose", "heads are split by reshape alone, which deals out the numbers in memory order",
            "x.reshape(B, T, H, d).transpose(0, 2, 1, 3)",
            {"x.reshape(B, T, num_heads, d).transpose(0, 2, 1, 3)": "x.reshape(B, num_heads, T, d)"}),
    Mistake("heads interleaved when split", "each head takes every H-th column instead of a block of d columns",
            "reshape to (B, T, H, d), not to (B, T, d, H)",
            {"num_heads, d).transpose(0, 2, 1, 3)": "d, num_heads).transpose(0, 3, 1, 2)"}),
    Mistake("heads left behind the tokens", "the heads stay behind the tokens, (B, T, H, d), so that a token's heads would attend to one another",
            "after the reshape to (B, T, H, d): .transpose(0, 2, 1, 3)",
            {"num_heads, d).transpose(0, 2, 1, 3)": "num_heads, d)",
             "merged = merge_heads(heads)": "merged = heads.reshape(*heads.shape[:2], -1)"}),
    Mistake("heads before the batch", "the axis of the heads stands before that of the batch: (H, B, T, d)",
            "x.reshape(B, T, H, d).transpose(0, 2, 1, 3), or np.stack(np.split(...), axis=1)",
            {"num_heads, d).transpose(0, 2, 1, 3)": "num_heads, d).transpose(2, 0, 1, 3)"}),
    Mistake("tokens reversed when split", "the tokens are in reverse order",
            "leave the token axis as it is", {"x.reshape(B, T, num_heads": "x[:, ::-1].reshape(B, T, num_heads"}),
    Mistake("merge without transpose", "heads are merged by reshape alone, which mixes the tokens",
            "heads.transpose(0, 2, 1, 3).reshape(B, T, H * d)", {"heads.transpose(0, 2, 1, 3)": "heads"}),
    Mistake("heads not merged", "tokens and heads are exchanged, but not merged: the result is (B, T, H, d)",
            "heads.transpose(0, 2, 1, 3).reshape(B, T, H * d)", {".reshape(B, T, H * d)": ""}),
    Mistake("heads merged in reverse", "the heads are concatenated from last to first",
            "head 0 has the first d columns", {"B, H, T, d = heads.shape": "B, H, T, d = heads.shape\n    heads = heads[:, ::-1]"}),
    Mistake("heads interleaved when merged", "the heads' columns alternate instead of lying in blocks",
            "transpose to (B, T, H, d), not to (B, T, d, H)", {"heads.transpose(0, 2, 1, 3)": "heads.transpose(0, 2, 3, 1)"}),
    Mistake("heads averaged instead of concatenated", "every head's place holds the mean of all heads",
            "lay the heads side by side",
            {"B, H, T, d = heads.shape": "B, H, T, d = heads.shape\n    heads = np.repeat(heads.mean(axis=1, keepdims=True), H, axis=1)"}),
]
