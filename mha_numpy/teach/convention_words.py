"""How a text about a usual function is told under a convention: patterns, and what to say instead.

The texts are docstrings, hints, laws and verdicts. Patterns are applied in their order.
"""

import re

from mha_numpy.teach.turns import Words

# what texts say of shapes and code
AXES = r"\(B, (H\w*), (T\w*|T \+ 1), (d\w*)\)"  # of heads
OF_TOKENS = r"\(B, (T\w*|1), (D|kdim|H\*d|O|I)\)"
OF_MAP = r"\((D|kdim|I|H\*d\w*), (H\*d\w*|H_kv\*d|D|O)\)"
SPLIT = r"\.reshape\(B, T, H, d\)\.transpose\(0, 2, 1, 3\)"
DEALT = r"\.reshape\(B, T, d, H\)\.transpose\(0, 3, 1, 2\)"  # where heads alternate
SCORES, MIX = r"q @ k\.swapaxes\(-1, -2\)", r"weights @ v(?!\[)"
OF_GROUP, MIX_OF_GROUP = r"q\[:, h\] @ k\[:, g\]\.swapaxes\(-1, -2\)", r"weights @ v\[:, g\]"
OTHER_NAMES = {
    "row": "column",
    "rows": "columns",
    "column": "row",
    "columns": "rows",
    "Rows": "Columns",
}


def _exchanged(found: re.Match[str]) -> str:
    """Exchange rows and columns, except in a quoted title."""
    return OTHER_NAMES.get(found[0], found[0])


def _einsum(subscripts: str, *names: str) -> str:
    return f'np.einsum("{subscripts}", {", ".join(names)})'


def _of_layout(split: str, dealt: str, order: str, second: str, axis: int) -> Words:
    """Return the words of an order of axes: how to split, an index, a place, a number."""
    places = ", ".join(order)
    return {
        SPLIT: split,
        DEALT: dealt,
        r"heads\[b, h, t, c\]": f"heads[{places.lower().replace('d', 'c')}]",
        "Of B, H, T, d,": f"Of {places},",
        "the heads come second": f"the heads come {second}",
        "axis 1, where": f"axis {axis}, where",
    }


WORDS: dict[str, Words] = {
    "True = blocked": {
        "True = may attend: the cell is visible": "True = blocked: the cell is hidden",
        "True = may attend": "True = blocked",
        r"np\.where\(mask, scores, -np\.inf\)": "np.where(mask, -np.inf, scores)",
        "True counts as 1": "False counts as 1",
        r"\(1 - mask\) \* -inf, and where the mask is True": "mask * -inf, and where the mask is False",
        "multiplied by the mask": "multiplied by the inverted mask",
        "the mask is multiplied into": "the inverted mask is multiplied into",
        "the mask is added to": "the inverted mask is added to",
        "combined with OR, so a cell is visible as soon as one mask": "combined so that a cell is visible as soon as one of them",
    },
    "0 and -inf": {
        "True = may attend: the cell is visible": "0 = may attend: the cell is visible; -inf = hidden",
        "True = may attend": "0 = may attend, -inf = hidden",
        r"(mask : .*)\bbool\b": r"\1float",
        r"np\.where\(mask, scores, -np\.inf\)": "scores + mask",
        "combined with OR, so a cell is visible as soon as one mask": "combined so that a cell is visible as soon as one of them",
        "True is read as blocked": "0 is read as blocked",
    },
    "p = kept": {
        r"keep / \(1 - p\)``: each weight was dropped with probability `p`, and the others were": "keep / p``: each weight was kept with probability `p`, and these were",
        "From 0 to below 1": "Above 0, up to 1",
        r"the factor 1 / \(1 - p\)": "the factor 1 / p",
        "multiplied by 1 - p": "multiplied by p",
        "divided by p, the share that was dropped, not by 1 - p": "divided by 1 - p, the share that was dropped, not by p",
    },
    "groups in turn": {
        "``G = H // H_kv`` neighbouring query heads share a key head and a value head": "``G = H // H_kv`` query heads share a key head and a value head",
        "number ``h // G`` of both": "number ``h % H_kv`` of both",
        "head ``h // G``, where ``G = H // H_kv``": "head ``h % H_kv``",
        r"``g = h // \(H // H_kv\)``": "``g = h % H_kv``",
        r"``h // \(H // H_kv\)``": "``h % H_kv``",
        r"head h // G, with ``G = H // num_kv_heads``": "head ``h % num_kv_heads``",
        'the table of who reads what. Notebook 16, "Repeat, never tile"': "the table of who reads what. It and notebook 16 describe neighbours that share a head; in your variant heads h, h + H_kv, ... share one",
        "where neighbours share a head": "where heads h, h + H_kv, ... share a head",
        "changes only the first group": "changes only the query heads that read it",
    },
    "heads alternate": {
        r"Head h gets columns ``h\*d`` to ``\(h \+ 1\)\*d - 1`` of every token": "Head h gets every H-th column of every token, starting with column h",
        r"x\[b, t, h\*d \+ c\]": "x[b, t, c*H + h]",
        "Head 0 has the first d columns, head 1 the next, and so on": "The columns of the heads alternate: column 0 of each head, then column 1, and so on",
        r"merged\[b, t, h\*d \+ c\]": "merged[b, t, c*H + h]",
        "A block of columns for every head": "Columns for every head",
        "The heads side by side again": "The heads joined again",
        "Lay the heads of every token side by side": "Join the heads of every token, with columns that alternate",
        "Head h takes the h-th block of their columns, d_k wide for queries and keys and d_v for values,": "Head h takes every H-th of their columns, starting with column h, d_k of them for queries and keys and d_v for values,",
        r"The (H )?heads, side by side in their order, are": r"The columns of the \1heads alternate in the same way in",
        "head h has the h-th block of d columns": "head h has every H-th column, starting with column h (every H_kv-th of keys and values)",
        SPLIT: ".reshape(B, T, d, H).transpose(0, 3, 1, 2)",
    },
    "packed as q, v, k": {
        "the attention params of GPT-2, as Hugging Face stores them": "attention params that are packed as in GPT-2, but in CodeGen's order",
        "as GPT-2 stores its attention": "as GPT-2 stores its attention, but in CodeGen's order",
        "GPT-2 computes": "The model computes",
        "GPT-2, as in Hugging Face, computes": "The model computes",
        "the next D the keys, the last D the values": "the next D the values, the last D the keys",
        "the order is q, k, v": "the order is q, v, k",
    },
    "scores over d_k": {
        "divided by the square root of d_k": "divided by d_k",
        r"sqrt\((d\w*)\)": r"\1",
        r"np\.sqrt\((q\.shape\[-1\])\)": r"\1",
        "by the root of a head's width": "by a head's width",
        "Eq. 1 of Vaswani et al. 2017": "Eq. 1 of Vaswani et al. 2017 (yours has d_k instead of its root)",
    },
    "scores without scale": {
        ", divided by the square root of d_k": ", without any scale",
        r" / sqrt\(d\w*\)": "",
        r" / np\.sqrt\(q\.shape\[-1\]\)": "",
        "divided by d_k instead of its root": "divided by d_k",
        "before they are scaled": "too early",
        "Eq. 1 of Vaswani et al. 2017": "Eq. 1 of Vaswani et al. 2017 (yours has no square root)",
        "The scores are a matrix product with a number in front": "The scores are a matrix product; leave out the number in front",
    },
    "params as (outputs, inputs)": {
        OF_MAP: r"(\2, \1)",
        r"(\w+) @ (params\.)?(w\w*) \+": r"\1 @ \2\3.T +",
        "for each column of its ``w``": "for each row of its ``w``",
        "through w instead of w.T": "through w.T instead of w",
        r"(w_\w) is used transposed": r"\1 is used without its transpose",
        r"\(B, inputs, outputs\)": "(B, outputs, inputs)",
    },
    "heads after the tokens": {
        AXES: r"(B, \2, \1, \3)",
        SCORES: _einsum("bihc,bjhc->bhij", "q", "k"),
        MIX: _einsum("bhij,bjhc->bihc", "weights", "v"),
        OF_GROUP: "q[:, :, h] @ k[:, :, g].swapaxes(-1, -2)",
        MIX_OF_GROUP: "weights @ v[:, :, g]",
        **_of_layout(
            ".reshape(B, T, H, d)", ".reshape(B, T, d, H).swapaxes(2, 3)", "BTHd", "third", 2,
        ),
    },
    "tokens first": {
        AXES: r"(\2, B, \1, \3)",
        OF_TOKENS: r"(\1, B, \2)",
        r"(x|merged)\[b, t, ": r"\1[t, b, ",
        SCORES: _einsum("ibhc,jbhc->bhij", "q", "k"),
        MIX: _einsum("bhij,jbhc->ibhc", "weights", "v"),
        OF_GROUP: _einsum("ibc,jbc->bij", "q[:, :, h]", "k[:, :, g]"),
        MIX_OF_GROUP: _einsum("bij,jbc->ibc", "weights", "v[:, :, g]"),
        **_of_layout(
            ".reshape(T, B, H, d)", ".reshape(T, B, d, H).swapaxes(2, 3)", "TBHd", "third", 2,
        ),
    },
    "heads first": {
        r"\(B, (H\w*|1), (T\w*|T \+ 1), (d\w*|T\w*)\)": r"(\1, B, \2, \3)",
        r"\(B, H, T_q\)": "(H, B, T_q)",
        r"scores\[b, h, i, j\]": "scores[h, b, i, j]",
        OF_GROUP: "q[h] @ k[g].swapaxes(-1, -2)",
        MIX_OF_GROUP: "weights @ v[g]",
        **_of_layout(
            ".reshape(B, T, H, d).transpose(2, 0, 1, 3)",
            ".reshape(B, T, d, H).transpose(3, 0, 1, 2)", "HBTd", "first", 0,
        ),
    },
    "tokens as columns": {
        r'"[^"]*"|\b([Rr]ows?|columns?)\b': _exchanged,
        AXES: r"(B, \1, \3, \2)",
        OF_TOKENS: r"(B, \2, \1)",
        r"T_q, T_k\)": "T_k, T_q)",
        r"\((T_\w), (d_\w)\)": r"(\2, \1)",
        OF_MAP: r"(\2, \1)",
        r"(x|merged)\[b, t, ([^]]*)\]": r"\1[b, \2, t]",
        r"scores\[b, h, i, j\]": "scores[b, h, j, i]",
        "last axis": "last axis but one",
        "(heads,?|token) side by side": r"\1 one below the other",
        "d_k wide for": "d_k of them for",
        r"axis=-1\b": "axis=-2",
        r"(\w+) @ (params\.)?(w\w*) \+ ((?:params\.)?b\w*)": r"\2\3 @ \1 + \4[:, None]",
        r"softmax\(q k\^T(.*?)\) v": r"v softmax(k^T q\1)",
        r"\bq k\^T": "k^T q",
        r"\bk q\^T": "q^T k",
        SCORES: "k.swapaxes(-1, -2) @ q",
        MIX: "v @ weights",
        OF_GROUP: "k[:, g].swapaxes(-1, -2) @ q[:, h]",
        MIX_OF_GROUP: "v[:, g] @ weights",
        r"q\.shape\[-1\]": "q.shape[-2]",
        r"\(B, inputs, outputs\)": "(B, outputs, inputs)",
        **_of_layout(
            ".reshape(B, H, d, T)", ".reshape(B, d, H, T).swapaxes(1, 2)", "BHdT", "second", 1,
        ),
    },
}  # fmt: skip

# mistakes whose words would be false, however they are told
LAYOUT = {
    "split without transpose",
    "merge without transpose",
    "heads left after the tokens",
    "heads before the batch",
    "heads not merged",
}
FALSE_HERE = {
    "True = blocked": frozenset({"mask inverted"}),
    "0 and -inf": frozenset({"0 times -inf", "mask added to the scores", "mask multiplied into the scores", "powers times the mask", "powers times the mask, except in rows that see nothing", "powers times the mask, low rows become 0"}),
    "groups in turn": frozenset({"gradients summed as if tiled", "groups tiled, not repeated"}),
    "heads alternate": frozenset({"heads interleaved when merged", "heads interleaved when split", "heads merged in reverse", "merge without transpose", "split without transpose"}),
    "packed as q, v, k": frozenset({"in the order k, q, v", "in the order q, v, k", "in the order v, k, q"}),
    "scores over d_k": frozenset({"scale 1/sqrt(D) of the input"}),
    "scores without scale": frozenset({"scale 1/sqrt(D) of the input", "scale twice in backward"}),
    "heads after the tokens": frozenset(LAYOUT),
    "tokens first": frozenset(LAYOUT),
    "heads first": frozenset(LAYOUT | {"mask's batch axis lined up with the heads", "no axis for the heads"}),
    "tokens as columns": frozenset(LAYOUT | {"k reshaped, not transposed"}),
}  # fmt: skip
