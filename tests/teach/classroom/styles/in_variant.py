"""A student's file: functions in the usual conventions, with adapters to those of a variant.

The adapters know nothing of how the package turns arrays: they are written from the sentences that
a student reads.
"""

import re
from pathlib import Path

STYLES = {
    name: Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
    for name in ("matmul", "einsum", "loops")
}
AXES = {  # of arguments and results, in the usual order; D is the width of a layer, q and k cells
    "split_heads": "x:btD num_heads -> :bhtd",
    "merge_heads": "heads:bhtd -> :btD",
    "scores": "q:bhqd k:bhkd -> :bhqk",
    "softmax": "scores:...qk mask:...qk -> :...qk",
    "make_mask": "lengths T_q T_k q_offset left -> mask:bhqk",
    "attention": "q:qd k:kd v:kd -> :qd",
    "multi_head": "x:btD params num_heads mask:qk -> :btD",
    "scores_backward": "d_scores:bhqk q:bhqd k:bhkd -> :bhqd :bhkd",
    "softmax_backward": "d_weights:...qk weights:...qk -> :...qk",
    "attention_backward": "d_heads:bhqd q:bhqd k:bhkd v:bhkd weights:bhqk -> :bhqd :bhkd :bhkd",
    "linear_backward": "d_out:btD x:btD w:io -> :btD :io :D",
    "input_gradient": "d_q:bhtd d_k:bhtd d_v:bhtd params -> :btD",
    "multi_head_backward": "d_out:btD params saved -> :btD params",
    "grouped_attention": "q:bhqd k:bhkd v:bhkd -> :bhqd",
    "masked_attention": "q:bhqd k:bhkd v:bhkd mask:bhqk softcap -> :bhqd",
    "sum_over_group": "d_per_query_head:bhtd num_kv_heads -> :bhtd",
    "grouped_backward": "d_heads:bhqd q:bhqd k:bhkd v:bhkd weights:bhqk -> :bhqd :bhkd :bhkd",
    "decode_step": "x:btD k_past:bhtd v_past:bhtd params num_heads -> :btD :bhtd :bhtd",
    "online_attention": "q:qd k:kd v:kd block -> :qd",
}
SCALES = {"scores over d_k": "1 / d", "scores without scale": "1.0"}
OF_QUERY_HEADS = {"q", "d_heads", "weights", "d_per_query_head"}
HELPERS = """

def in_blocks(w, count):  # its columns alternated
    return np.concatenate([w[..., h::count] for h in range(count)], axis=-1)


def in_turn(w, count):  # its columns were blocks
    out = np.empty_like(w)
    for h, block in enumerate(np.split(w, count, axis=-1)):
        out[..., h::count] = block
    return out


def dealt(H, H_kv):  # which head of the variant is each head of a group, group by group
    return [h for g in range(H_kv) for h in range(g, H, H_kv)]


def of_params(params, H, H_kv, change):
    counts = {"q": H, "k": H_kv, "v": H_kv}
    new = {f"w_{n}": change(getattr(params, f"w_{n}"), count) for n, count in counts.items()}
    new |= {f"b_{n}": change(getattr(params, f"b_{n}"), count) for n, count in counts.items()}
    return params._replace(**new, w_o=change(params.w_o.T, H).T)


def turned(params):
    return params._replace(**{f"w_{n}": getattr(params, f"w_{n}").T for n in "qkvo"})


class Kept:
    pass


class Params(tuple):
    pass
"""


def in_variant(text, conventions):
    """Return the text of a file that is right under some conventions, from one for the usual."""
    for name, value in SCALES.items():
        if name in conventions:
            text = text.replace("return 1 / np.sqrt(d)", f"return {value}")
    usual = re.sub(rf"\b({'|'.join(AXES)})\(", r"usual_\1(", text)
    adapters = [_adapter(name, axes, frozenset(conventions)) for name, axes in AXES.items()]
    return usual + HELPERS + "\n\n".join(["", *adapters])


def written(axes, conventions):
    """Return the order of axes in a variant."""
    is_of_heads = axes[:2] == "bh" and axes[-1] == "d"
    if "tokens as columns" in conventions and len(axes) > 1:
        return axes[:-2] + axes[:-3:-1]
    if "heads after the tokens" in conventions and is_of_heads:
        return f"b{axes[2]}hd"
    if "tokens first" in conventions and is_of_heads:
        return f"{axes[2]}bhd"
    if "tokens first" in conventions and axes == "btD":
        return "tbD"
    if "heads first" in conventions and axes[:2] == "bh":
        return f"hb{axes[2:]}"
    return axes


def _moved(what, before, after):
    return what if before == after else f'np.einsum("{before}->{after}", {what})'.replace("D", "x")


def _adapter(name, axes, conventions):
    given, results = (part.split() for part in axes.split("->"))
    names = [one.partition(":")[0] for one in given]
    lines = []
    for one, axes_of in (one.split(":") for one in given if ":" in one and one != "w:io"):
        moved = _moved(one, written(axes_of, conventions), axes_of)
        if one == "mask" and "True = blocked" in conventions:
            moved = f"~{moved}"
        if one == "mask" and "0 and -inf" in conventions:
            moved = f"({moved} == 0)"
        if moved != one:
            lines.append(
                f"if {one} is not None:\n    {one} = {moved}"
                if one == "mask"
                else f"{one} = {moved}"
            )
    is_turned = {"params as (outputs, inputs)", "tokens as columns"} & conventions
    if "w" in names and is_turned:
        lines.append("w = w.T")
    if "saved" in names:
        lines.append("kept = Kept()")
        for one, axes_of in {
            "x": "btD",
            "q": "bhtd",
            "k": "bhtd",
            "v": "bhtd",
            "weights": "bhqk",
            "merged": "btD",
        }.items():
            lines.append(
                f"kept.{one} = {_moved(f'saved.{one}', written(axes_of, conventions), axes_of)}"
            )
    heads = {
        "multi_head": "num_heads", "decode_step": "num_heads", "split_heads": "num_heads",
        "input_gradient": "d_q.shape[1]", "multi_head_backward": "kept.q.shape[1]",
        "merge_heads": "heads.shape[1]",
    }.get(name)  # fmt: skip
    kv_heads = "k_past.shape[1]" if name == "decode_step" else heads
    if "params" in names and is_turned:
        lines.append("params = turned(params)")
    if "heads alternate" in conventions:
        if "params" in names:
            lines.append(f"params = of_params(params, {heads}, {kv_heads}, in_blocks)")
        if name == "split_heads":
            lines.append("x = in_blocks(x, num_heads)")
        if "saved" in names:
            lines.append(f"kept.merged = in_blocks(kept.merged, {heads})")
    is_dealt = "groups in turn" in conventions
    if is_dealt and name == "decode_step":
        lines += [
            "order = dealt(num_heads, k_past.shape[1])",
            "def blocks(w): return np.concatenate([np.split(w, num_heads, axis=-1)[h] for h in order], axis=-1)",
            "params = params._replace(w_q=blocks(params.w_q), b_q=blocks(params.b_q), w_o=blocks(params.w_o.T).T)",
        ]
    elif (
        is_dealt
        and (of_heads := [one for one in names if one in OF_QUERY_HEADS])
        and (
            name == "sum_over_group"
            or name in ("grouped_attention", "masked_attention", "grouped_backward")
        )
    ):
        H_kv = "num_kv_heads" if name == "sum_over_group" else "k.shape[1]"
        lines.append(f"order = dealt({of_heads[0]}.shape[1], {H_kv})")
        lines += [f"{one} = {one}[:, order]" for one in of_heads]
    called = [f"{'kept' if one == 'saved' else one}" for one in names]
    lines.append(f"found = usual_{name}({', '.join(called)})")
    if is_dealt and name in ("grouped_attention", "masked_attention"):
        lines.append("found = found[:, np.argsort(order)]")
    if is_dealt and name == "grouped_backward":
        lines.append("found = (found[0][:, np.argsort(order)], *found[1:])")
    if name == "merge_heads" and "heads alternate" in conventions:
        lines.append("found = in_turn(found, heads.shape[1])")
    if name == "make_mask":
        moved = _moved("found", "bhqk", written("bhqk", conventions))
        moved = {"True = blocked": f"~{moved}", "0 and -inf": f"np.where({moved}, 0.0, -np.inf)"}.get(
            next(iter(conventions & {"True = blocked", "0 and -inf"}), ""), moved
        )  # fmt: skip
        lines.append(f"found = {moved}")
    elif len(results) == 1:
        lines.append(
            f"found = {_moved('found', results[0][1:], written(results[0][1:], conventions))}"
        )
    else:
        parts = []
        for place, result in enumerate(results):
            what = f"found[{place}]"
            if result == "params":
                lines.append(f"grads = params._replace(**dict(zip(params._fields, {what})))")
                if "heads alternate" in conventions:
                    lines.append(f"grads = of_params(grads, {heads}, {kv_heads}, in_turn)")
                if is_turned:
                    lines.append("grads = turned(grads)")
                what = "grads"
            elif result == ":io":
                what += ".T" if is_turned else ""
            else:
                what = _moved(what, result[1:], written(result[1:], conventions))
            parts.append(what)
        lines.append(f"found = {', '.join(parts)}")
    body = "\n".join(f"    {line}" for text in lines for line in text.split("\n"))
    return f"def {name}({', '.join(names)}):\n{body}\n    return found"
