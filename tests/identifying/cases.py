"""Each value of the family, with a signature and other settings where it changes numbers."""

from mha_numpy.identifying.family import SETTINGS, USUAL

CAUSAL = {"causal": "past and itself"}
ROTATED = {"rotation": "halves"}
MASKED = "optional mask"
SIGNATURES = {  # of the settings that need other arguments than q, k and v
    "exchanged": "three inputs", "params": "three inputs", "left_out": "params", "packing": "packed",
    "split": "wide", "merge": "self", "w_o": "self", "b_o": "params", "after": "self",
    "rotation_axis": "wide", "grouping": "grouped params", "scale_given": "scaled", "bias": "bias",
    "softcap_at": "bias", "buckets": "table", "most_distance": "table", "window_given": "window",
    "mask": MASKED, "mask_index": MASKED, "combined": MASKED, "hide": MASKED, "rows": "lengths",
    "lengths": "lengths", "rows_by": "lengths", "dropout_mask": "dropped", "head_gate": "gated",
    "blind": "masked",
}  # fmt: skip
WITH = {  # what has to be there before a setting changes anything
    "direction": ROTATED, "rotated": ROTATED, "first_position": ROTATED,
    "q_position": ROTATED, "base": ROTATED, "frequencies": ROTATED, "rotation_axis": ROTATED,
    "alignment": CAUSAL, "block": {"normaliser": "streamed, sum not rescaled"},
    "softcap_at": {"softcap": 1.5}, "combined": CAUSAL,
}  # fmt: skip
ALSO = {"base": (500.0,), "softcap": (2.5,), "window": ((2, None), (1, 1), (3, 0)),
        "most_distance": (9,), "block": (3,), "scale": (0.3,)}  # fmt: skip
SPECIAL = {  # values with other arguments than those of their setting
    ("q_position", "after the cache"): "cache", ("params", "v := k"): "three inputs",
    ("softmax_axis", "features of batch"): "wide", ("left_out", "w_q"): "self", ("left_out", "w_k"): "self", ("left_out", "w_v"): "self",
    ("merge", "mean of heads"): "wide", ("merge", "sum of heads"): "wide",
}  # fmt: skip


def cases():
    """Yield the name of a signature, a setting, its value and the settings with it."""
    for setting, values in SETTINGS.items():
        for value in (*values, *ALSO.get(setting, ())):
            if value != USUAL[setting]:
                signature = SPECIAL.get((setting, value)) or SIGNATURES.get(setting, "heads")
                yield signature, setting, value, WITH.get(setting, {})
