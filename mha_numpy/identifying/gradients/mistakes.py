"""The mistakes that people make in a backward pass, each an edit of its steps."""

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import NamedTuple

from mha_numpy.dtypes import Array
from mha_numpy.identifying.gradients.backward import Backward, same

SHORT = {"query": "q", "key": "k", "value": "v", "packed": "qkv"}
MAPS = {n: (f"from_{n}", f"d_wide_{n}") for n in "qkv"} | {"o": ("merged", "d_out")}
UNMASKED = "softmax(scores)"
D_Q, D_K = "d_q = scale * d_scores @ k", "d_k = scale * d_scores.swapaxes(-1, -2) @ q"
D_V, D_P = "d_v = weights.swapaxes(-1, -2) @ d_out", "d_weights = d_out @ v.swapaxes(-1, -2)"
OF_GROUP = "sum {} over the query heads that share it"
RIGHT = {  # what to write for a step, where one line says it
    "d_scores": "d_scores = weights * (d_weights - (weights * d_weights).sum(-1, keepdims=True))",
    "p": "use the weights of forward", "d_turned_q": D_Q, "scaled_q": D_Q, "d_keys": D_K,
    "scaled_k": D_K, "d_values": D_V, "mixed": D_V, "d_dropped": D_P,
    "d_weights": f"{D_P} * dropout_mask", "d_raw": "d_scores * (1 - np.tanh(scores / softcap)**2)",
    "d_turned_k": OF_GROUP.format("d_k"), "d_turned_v": OF_GROUP.format("d_v"),
    "d_bias": "sum d_scores over the axes that all cells of a bias share", "d_out": "use d_out as it is",
    "d_w_o": "d_w_o = merged.T @ d_out, with rows of all sequences", "d_merged": "d_out @ w_o.T",
    **{f"d_w_{n}": f"d_w_{n} = x.T @ d_{n}, with rows of all sequences" for n in "qkv"},
    **{f"d_b_{n}": f"sum d_{n} over batch and tokens" for n in "qkv"},
    "d_b_o": "sum d_out over batch and tokens", **{f"share_{n}": f"d_{n} @ w_{n}.T" for n in "qkv"},
}  # fmt: skip


class Mistake(NamedTuple):
    """A mistake: what happens, and what is computed instead, by step."""

    name: str
    says: str
    edits: dict[str, str]


def name_of(role: str) -> str:
    """Return the name of the gradient of a role's array."""
    return "d_" + SHORT.get(role, role.removeprefix("wide_"))


def instead_of(steps: Iterable[str]) -> str:
    """Return what to write for steps that are wrong."""
    return "; ".join(dict.fromkeys(RIGHT[step] for step in steps if step in RIGHT))


def mistakes_in(backward: Backward) -> Iterator[tuple[Mistake, dict[str, Array]]]:
    """Yield the known mistakes that change a gradient here, each with the gradients it gives."""
    right = backward.run({}) or {}
    for mistake in _mistakes(backward):
        if {*mistake.edits} <= {*backward.steps}:
            own = backward.run(mistake.edits)
            if own is not None and not all(same(own[role], right[role]) for role in right):
                yield mistake, own


# name, what happens, and the edits; where a verdict of the exercises says it, in the same words
SOFTMAX = [
    ("row sum left out", "the row sum of softmax is left out, so rows of d_scores do not sum to 0", "p * d_weights"),
    ("row sum over queries", "the row sum of softmax is taken over the queries", "p * (d_weights - (p * d_weights).sum(-2, keepdims=True))"),
    ("only the diagonal of the Jacobian", "only the diagonal p (1 - p) of softmax's Jacobian is used", "p * (1 - p) * d_weights"),
    ("row sum over heads", "the row sum of softmax is taken over the heads", "p * (d_weights - (p * d_weights).sum(1, keepdims=True))"),
    ("row sum unweighted", "the row sum of softmax sums only d_weights, without the weights", "p * (d_weights - d_weights.sum(-1, keepdims=True))"),
    ("row mean instead of the weighted sum", "the plain mean of d_weights is subtracted, not the weighted mean", "p * (d_weights - d_weights.mean(-1, keepdims=True))"),
    ("row sum added", "the row sum of softmax is added to d_weights, not subtracted", "p * (d_weights + row_sum)"),
    ("row sum without the factor p", "the row sum of softmax is subtracted without the factor weights", "p * d_weights - row_sum"),
    ("factor p left out", "d_scores lacks the factor weights, so masked keys get gradients", "d_weights - row_sum"),
    ("softmax skipped in backward", "d_weights is used as d_scores: softmax is skipped", "d_weights"),
    ("log-softmax's Jacobian", "the backward of log-softmax is used instead of softmax's", "d_weights - p * d_weights.sum(-1, keepdims=True)"),
    ("mask forgotten in d_scores", "d_scores is computed from weights without the mask, so masked keys get gradients",
     f"{UNMASKED} * (d_weights - ({UNMASKED} * d_weights).sum(-1, keepdims=True))"),
    ("masked keys get gradients", "d_scores is not 0 where the mask hides", "np.where(visible, p * (d_weights - row_sum), d_weights - row_sum)"),
    ("dropped weights in softmax's backward", "softmax's backward uses the weights after dropout",
     "mixed * (d_weights - (mixed * d_weights).sum(-1, keepdims=True))"),
]  # fmt: skip
ONE_STEP = [
    ("mask forgotten in backward", "the weights are computed again without the mask, so hidden keys get gradients", "p", UNMASKED),
    ("mask forgotten in d_v", "d_v is computed from weights without the mask, so hidden values get gradients", "mixed", UNMASKED),
    ("d_scores not transposed", "d_scores is not transposed in d_k", "d_keys", "scaled_k @ turned_q"),
    ("d_scores reshaped", "d_scores is reshaped in d_k instead of transposed", "d_keys", "reshaped(scaled_k) @ turned_q"),
    ("d_scores transposed in d_q", "d_scores is transposed in d_q", "d_turned_q", "T(scaled_q) @ keys"),
    ("d_q made from q", "d_q is computed from q instead of k", "d_turned_q", "scaled_q @ turned_q"),
    ("d_k made from k", "d_k is computed from k instead of q", "d_keys", "T(scaled_k) @ keys"),
    ("d_k made from the weights", "d_k is computed from the weights instead of d_scores", "scaled_k", "scale * p"),
    ("weights not transposed", "the weights are not transposed in d_v", "d_values", "mixed @ d_heads"),
    ("weights reshaped", "the weights are reshaped in d_v instead of transposed", "d_values", "reshaped(mixed) @ d_heads"),
    ("d_v made from d_scores", "d_v is computed from d_scores instead of weights", "d_values", "T(p * (d_weights - row_sum)) @ d_heads"),
    ("v not transposed", "v is not transposed in d_weights", "d_dropped", "d_heads @ values"),
    ("v reshaped", "v is reshaped in d_weights instead of transposed", "d_dropped", "d_heads @ reshaped(values)"),
    ("softcap left out of backward", "the derivative of the softcap is left out", "d_raw", "d_scores"),
    ("softcap: 1 - tanh", "the derivative of the softcap is 1 - tanh instead of 1 - tanh^2", "d_raw", "d_scores * (1 - bounded)"),
    ("dropout ignored in d_weights", "d_weights is d_dropped: dropout is skipped", "d_weights", "d_dropped"),
    ("dropout ignored in d_v", "d_v is computed from the weights before dropout", "mixed", "p"),
    ("d_bias with the scale", "d_bias has the scale as a factor", "d_bias", "sum_to(scale * d_raw, bias.shape)"),
    ("d_bias: mean over the batch", "d_bias is the mean over the batch instead of the sum", "d_bias", "sum_to(d_scores, bias.shape) / B"),
    ("everything divided by B", "all gradients are divided by the batch size", "d_out", "upstream / B"),
    ("everything divided by B T_q", "all gradients are divided by the number of tokens", "d_out", "upstream / (B * T_q)"),
    ("output projection skipped in backward", "d_merged is d_out: the output projection is skipped", "d_merged", "d_out"),
    ("heads split without transpose", "d_merged is split into heads by a reshape without the transpose", "d_heads", "d_merged.reshape(heads.shape)"),
]  # fmt: skip
SEVERAL_STEPS = [
    ("mask forgotten in backward", "the weights are computed again without the mask, so hidden keys get gradients",
     {"p": "np.exp(scores - lse[..., None])", "row_sum": "(weights * d_weights).sum(-1, keepdims=True)"}),
    ("d_q and d_k swapped", "d_q and d_k are swapped", {"d_turned_q": "T(scaled_k) @ turned_q", "d_keys": "scaled_q @ keys"}),
    ("groups tiled in backward", "query head h reads key/value head h % H_kv in backward",
     {f"own_{n}": f"np.tile(turned_{n}, (1, share, 1, 1))" for n in "kv"}),
    ("sign of d_scores", "d_scores has the wrong sign", {"d_raw": "-d_scores"}),
    ("dropout ignored in backward", "dropout is skipped in backward", {"d_weights": "d_dropped", "mixed": "p"}),
    ("w_q for all branches", "d_q, d_k and d_v all go back through w_q", {f"share_{n}": f"d_wide_{n} @ w_q.T" for n in "kv"}),
    ("heads merged without transpose", "gradients of heads are merged by a reshape without the transpose",
     {f"d_wide_{n}": f"d_{n}.reshape(wide_{n}.shape)" for n in "qkv"}),
]  # fmt: skip
SCALE = [
    ("scale left out of {}", "the scale is missing in {}", "d_raw"),
    ("scale twice in {}", "the scale is applied twice in {}, or its square is used", "scale**2 * d_raw"),
    ("scale inverted in {}", "the scale divides in {}, where it should multiply", "d_raw / scale"),
]  # fmt: skip
GROUP = [
    ("only the first of the group", "gets only the gradient of the first query head of its group", "grouped({})[:, :, 0]"),
    ("only the last of the group", "gets only the gradient of the last query head of its group", "grouped({})[:, :, -1]"),
    ("mean over the group", "gets the mean over its group instead of the sum", "grouped({}).mean(2)"),
    ("group not summed", "has a gradient for each query head: the sum over the group is left out", "{}"),
    ("summed over the wrong heads", "gets the gradients of query heads of other groups", "otherwise({}).sum(2)"),
]  # fmt: skip
D_W = [
    ("{} transposed", "{} is transposed", "rows({d}).T @ rows({x})"),
    ("{} from the first sequence only", "{} is computed from the first sequence only", "rows({x}[:1]).T @ rows({d}[:1])"),
    ("{}: mean over batch and tokens", "{} is a mean over batch and tokens", "rows({x}).T @ rows({d}) / len(rows({x}))"),
    ("{} not summed over the batch", "{} has an axis B: the sum over the batch is left out", "T({x}) @ {d}"),
]  # fmt: skip
D_B = [
    ("{}: mean", "{} is a mean over batch and tokens", "{d}.mean((0, 1))"),
    ("{} not summed", "{} is not summed over batch and tokens", "{d}"),
    ("{} from the first sequence only", "{} is computed from the first sequence only", "{d}[0].sum(0)"),
]  # fmt: skip
LAST = [  # of each gradient by itself
    ("sign of {}", "{} has the wrong sign", "-({d})"),
    ("{} zero", "{} is 0: no gradient arrives", "0 * ({d})"),
    ("{} divided by B", "{} is divided by the batch size", "({d}) / B"),
]  # fmt: skip


def _mistakes(b: Backward) -> Iterator[Mistake]:
    """Yield the known mistakes, the usual ones first."""
    steps = b.steps
    for name, says, text in SOFTMAX:
        yield Mistake(name, says, {"d_scores": text})
    for where, own in (("d_q and d_k", "qk"), ("d_q", "q"), ("d_k", "k")):
        for name, says, text in SCALE:
            yield Mistake(
                name.format(where), says.format(where), {f"scaled_{n}": text for n in own}
            )
    parts = {"d_turned_k": "d_keys", "d_turned_v": "d_values"}
    for step in ("", *parts):
        for name, says, text in GROUP:
            edits = {s: text.format(d) for s, d in parts.items() if step in s}
            where = f" in d_{step[-1]}" if step else ""
            yield Mistake(name + where, f"a shared head {says}{where and ','}{where}", edits)
    for name, says, step, text in ONE_STEP:
        if b.values["has_rule"] or not name.startswith("mask"):
            yield Mistake(name, says, {step: text})
    yield from (Mistake(*each) for each in SEVERAL_STEPS)
    for n, step in (("q", "d_turned_q"), ("k", "d_keys")):
        yield Mistake(f"sign of d_{n}", f"d_{n} has the wrong sign", {step: f"-({steps[step]})"})
    swapped = {"d_k": steps["d_v"], "d_v": steps["d_k"]}
    yield Mistake("d_k and d_v swapped", "d_k and d_v are swapped", swapped)
    yield from _of_rotation(b)
    yield from _of_maps(b)
    for role in b.roles:
        yield from _of_sum(name_of(role), f"d_{role}", steps[f"d_{role}"].split(" + "))
    inputs = [role for role in b.roles if role[:2] not in ("w_", "b_")]
    for one, two in combinations(inputs, 2):
        names = f"{name_of(one)} and {name_of(two)}"
        edits = {f"d_{one}": steps[f"d_{two}"], f"d_{two}": steps[f"d_{one}"]}
        yield Mistake(f"{names} swapped", f"{names} are swapped", edits)
    for role in b.roles:
        d = name_of(role)
        for name, says, text in LAST:
            yield Mistake(
                name.format(d), says.format(d), {f"d_{role}": text.format(d=steps[f"d_{role}"])}
            )


def _of_rotation(b: Backward) -> Iterator[Mistake]:
    """Yield the mistakes in turning the gradients of q and k back."""
    turned = {n: b.steps[f"d_{n}"][:-1].split("(") for n in "qk" if "(" in b.steps[f"d_{n}"]}
    for own in dict.fromkeys(("".join(turned), *turned)):
        d = " and ".join(f"d_{n}" for n in own)
        yield Mistake(
            f"{d} not turned back",
            f"rotation is left out of {d}",
            {f"d_{n}": turned[n][1] for n in own},
        )
        forward = {f"d_{n}": "{}.forward({})".format(*turned[n]) for n in own}
        yield Mistake(
            f"{d} turned forward", f"the rotation in {d} is forward again, not back", forward
        )


def _of_maps(b: Backward) -> Iterator[Mistake]:
    """Yield the mistakes in the backward of linear maps: in all of them, or in one."""
    maps = [n for n in MAPS if f"d_w_{n}" in b.steps]
    for own in dict.fromkeys(("".join(maps), "".join(maps).removesuffix("o"), *maps)):
        back = {"d_merged" if n == "o" else f"share_{n}": (MAPS[n][1], f"w_{n}") for n in own}
        w, d_w, d_b = ("each " + t if len(own) > 1 else f"{t}_{own}" for t in ("w", "d_w", "d_b"))
        yield Mistake(f"back through {w}, not its transpose", f"the gradient goes back through {w} instead of {w}.T",
                      {s: f"{d} @ {param}" for s, (d, param) in back.items()})  # fmt: skip
        yield Mistake(f"{w} skipped in backward", f"the gradient does not go back through {w}",
                      {s: d for s, (d, _) in back.items()})  # fmt: skip
        for name, says, text in D_W:
            edits = {f"d_w_{n}": text.format(x=MAPS[n][0], d=MAPS[n][1]) for n in own}
            yield Mistake(name.format(d_w), says.format(d_w), edits)
        for name, says, text in D_B:
            edits = {f"d_b_{n}": text.format(d=MAPS[n][1]) for n in own if f"d_b_{n}" in b.steps}
            yield Mistake(name.format(d_b), says.format(d_b), edits)


def _of_sum(d: str, step: str, parts: list[str]) -> Iterator[Mistake]:
    """Yield the mistakes in the sum of what comes back through q, k and v."""
    if len(parts) < 2 or step == "d_packed":
        return
    for part in parts:
        via = "the residual" if part == "d_out" else part[-1]
        rest = " + ".join(each for each in parts if each != part)
        yield Mistake(
            f"branch of {via} forgotten", f"{d} lacks the share through {via}", {step: rest}
        )
        if len(parts) > 2:
            yield Mistake(
                f"only the branch of {via}", f"{d} has only the share through {via}", {step: part}
            )
    mean = f"({' + '.join(parts)}) / {len(parts)}"
    yield Mistake(
        "mean of the branches", f"{d} is the mean of its branches instead of the sum", {step: mean}
    )
