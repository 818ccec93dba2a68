"""What a text says only where a convention is the usual one, as patterns, by the other's name."""

USUAL_WORDS = {
    "True = blocked": r"True = may|True counts|mask is True|multiplied by the mask|with OR",
    "0 and -inf": r"True|\bbool\b|with OR|the mask is (added|multiplied)",
    "p = kept": r"1 - p\b(?!, the share that was dropped)|was dropped|below 1",
    "groups in turn": r"h // (?!H_kv`` query heads)|neighbour(?!s that share a head; in your variant)",
    "heads alternate": r"\bblocks?\b|h\*d|side by side|\(0, 2, 1, 3\)",
    "packed as q, v, k": r"D the keys, the last|GPT-2, as|q, k, v",
    "scores over d_k": r"sqrt\(q|sqrt\(d|square root|root of a head",
    "scores without scale": r"sqrt\(q|sqrt\(d|by the square root|root of a head|instead of its root",
    "params as (outputs, inputs)": (
        r"\(I, O\)|@ (params\.)?w\w* \+|column of its|used transposed|instead of w\.T"
    ),
    "heads after the tokens": r"\(B, H\w*, T\w*( \+ 1)?, d|b, h, t|B, H, T, d|\(0, 2, 1, 3\)|q @|heads come second",
    "tokens first": (
        r"\(B, H\w*, T\w*( \+ 1)?, d|\(B, (T\w*|1), [DHkIO]|b, t\b|b, h, t|B, H, T, d|\(0, 2, 1, 3\)|q @|heads come second"
    ),
    "heads first": r"\(B, (H|1, T)|b, h, [ti]|B, H, T, d|\(0, 2, 1, 3\)|heads come second",
    "tokens as columns": (
        r"\brows? (that (sees?|can)|sums? to (?!1, columns)|of (scores|d_sc)|is|far|are (far|divided))|last axis(?! but)|T_q, T_k\)|\(T_\w, d|q k\^T"
        r"|[xy] @|merged @|@ v\b|\(B, (T\w*|1), [DHkIO]|, T\w*( \+ 1)?, d|b, t,|side by side|axis=-1|\(0, 2, 1, 3\)"
    ),
}
