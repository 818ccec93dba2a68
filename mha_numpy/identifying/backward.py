"""Backward passes of attention: the right one in steps, and each known mistake as an edit of it.

A step is an expression of forward's arrays and of earlier steps. A mistake writes other expressions
for one or more steps, so two mistakes are both edits.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property, partial
from types import CodeType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.family import STAGES, USUAL, Problem, Settings, evaluate
from mha_numpy.identifying.family.stages import softmax

STEP = 1e-5  # of central differences
SHORT = {
    "query": "q", "wide_q": "q", "key": "k", "wide_k": "k", "value": "v", "wide_v": "v",
    "packed": "qkv",
}  # fmt: skip


def name_of(role: str) -> str:
    """Return the name of the gradient of a role's array."""
    return "d_" + SHORT.get(role, role)


class Mistake(NamedTuple):
    """A mistake in a backward pass: what is computed instead, by step."""

    name: str
    says: str
    edits: dict[str, str]


class Backward:
    """The backward pass of attention with these settings, from the gradient of one of its arrays.

    Parameters
    ----------
    problem, settings
        What `evaluate` is given; deviations of the forward pass stay in backward.
    what : str
        The array whose gradient is given: ``"out"``, ``"merged"`` or ``"projected"``.
    d_out : Array
        Its gradient.
    """

    def __init__(self, problem: Problem, settings: Settings, what: str, d_out: Array) -> None:
        self.problem, self.settings, self.what = problem, {**USUAL, **settings}, what
        values = evaluate(problem, settings)
        if values is None:
            raise ValueError("forward cannot be computed")
        self.values = {
            name: np.nan_to_num(a, nan=0.0) if name in BLIND else a for name, a in values.items()
        }  # a row that sees nothing has no gradient
        self.names: dict[str, Any] = {
            **problem.given, **self.values, "np": np, "T": lambda a: a.swapaxes(-1, -2),
            "rows": lambda a: a.reshape(-1, a.shape[-1]), "softmax": partial(softmax, axis=-1),
            "upstream": d_out, "sum_to": sum_to, "turned": _reshaped, "B": problem.sizes.B,
            "T_q": problem.sizes.T,
        }  # fmt: skip
        self.steps = dict(self._finish())
        for part in (self._mix(), self._match(), self._project()):
            self.steps.update(part)
        self.roles = [role for role in problem.given if f"d_{role}" in self.steps]
        self.right = self._run({}, self.names)

    def run(self, edits: Mapping[str, str]) -> dict[str, Array] | None:
        """Return the gradients by role, with some steps computed otherwise; None if they cannot."""
        try:
            with np.errstate(all="ignore"):
                own = self._run(edits, self.right) if edits else self.right
        except (ValueError, IndexError, NameError, AttributeError):
            return None
        return {role: own[f"d_{role}"] for role in self.roles}

    def _run(self, edits: Mapping[str, str], known: Mapping[str, Any]) -> dict[str, Any]:
        """Compute the steps that an edit changes, and all steps that follow from them."""
        own, changed = dict(known), set(edits)
        for step, expression in self.steps.items():
            code = _compiled(edits.get(step, expression))
            if step not in own or step in changed or changed & {*code.co_names}:
                own[step] = eval(code, {}, own)
                changed.add(step)
        return own

    @cached_property
    def mistakes(self) -> list[tuple[Mistake, dict[str, Array]]]:
        """Every known mistake that changes a gradient here, with the gradients it gives."""
        found = []
        for mistake in _mistakes(self):
            own = self.run(mistake.edits) if {*mistake.edits} <= {*self.steps} else None
            if own is not None and any(not same(own[r], self.right[f"d_{r}"]) for r in self.roles):
                found.append((mistake, own))
        return found

    def _pull(self, stage: str, source: str, target: str) -> str:
        """Return the name of a function that takes a gradient back through a part of a stage."""
        name = f"{source}_from_{target}"
        self.names[name] = Pull(partial(self._push, stage, source, target), self.values[source])
        return name

    def _push(self, stage: str, source: str, target: str, array: Array) -> Array:
        _, compute, names = STAGES[stage]
        chosen = SimpleNamespace(**{name: self.settings[name] for name in names})
        problem = self.problem.but(packed=array) if source == "packed" else self.problem
        out: Array = compute(SimpleNamespace(**{**self.values, source: array}), chosen, problem)[target]
        return out

    def _finish(self) -> Iterator[tuple[str, str]]:
        """From the gradient of the output to that of the heads."""
        yield "d_out", "upstream"
        if self.what == "out":
            yield "d_heads", "d_out"
            return
        last = self.what == "projected"
        if last and self.problem.get("b_o") is not None:
            yield "d_b_o", "d_out.sum((0, 1))"
        if last and self.problem.get("w_o") is not None:
            yield "d_w_o", "rows(merged).T @ rows(d_out)"
            yield "d_merged", "d_out @ w_o.T"
        else:
            yield "d_merged", "d_out"
        yield "d_heads", f"{self._pull('finish', 'heads', 'merged')}(d_merged)"

    def _mix(self) -> Iterator[tuple[str, str]]:
        """From the gradient of the heads to those of the values and the scores."""
        drop = self.problem.get("dropout_mask")
        if drop is not None:
            self.names["drop"] = drop == 0 if self.settings["dropout_mask"][0] == "1" else drop
        times = " * drop" if drop is not None else ""
        yield "p", "weights"
        yield "mixed", "p" + times
        yield "d_values", "T(mixed) @ d_heads"
        yield "d_dropped", "d_heads @ T(values)"
        yield "d_weights", "d_dropped" + times
        yield "row_sum", "(p * d_weights).sum(-1, keepdims=True)"
        s = self.settings
        if s["softmax_axis"] == "keys" and s["normaliser"] in ("softmax", "one more in the sum") and (
            s["hide"] == "-inf" or not self.values["has_rule"]
        ):  # fmt: skip
            yield "d_scores", "p * (d_weights - row_sum)"
        else:
            yield "d_scores", f"{self._pull('normalise', 'scores', 'weights')}(d_weights)"
        if self.problem.get("sink") is not None:
            yield "d_sink", "-((1 - p.sum(-1)) * row_sum[..., 0]).sum((0, 2))"

    def _match(self) -> Iterator[tuple[str, str]]:
        """From the gradient of the scores to those of turned queries and keys."""
        s, values = self.settings, self.values
        cap = self.problem.get("softcap") or s["softcap"]
        bare = {**s, "softcap": None, "alibi": "", "bias": USUAL["bias"]}
        plain = evaluate(self.problem.but(bias=None, softcap=None), bare)
        products = values["turned_q"] @ values["keys"].swapaxes(-1, -2)
        self.names["scale"] = (plain or values)["scores"].ravel() @ products.ravel() / (products**2).sum()
        yield "d_raw", "d_scores * (1 - bounded**2)" if cap else "d_scores"
        is_before = s["softcap_at"] == "before the bias"
        if cap:
            whole = evaluate(self.problem.but(softcap=None), {**s, "softcap": None})
            raw = (plain if is_before else whole) or values
            self.names |= {"cap": cap, "bounded": np.tanh(raw["scores"] / cap)}
        if self.problem.get("bias") is not None:
            after = "d_scores" if is_before else "d_raw"
            own = {"added after the scale": after, "added before the scale": "scale * d_raw",
                   "subtracted": f"-{after}", "ignored": "0 * d_scores"}[s["bias"]]  # fmt: skip
            yield "d_bias", f"sum_to({own}, bias.shape)"
        yield "scaled_q", "scale * d_raw"
        yield "scaled_k", "scale * d_raw"
        yield "d_turned_q", "scaled_q @ keys"
        yield "d_keys", "T(scaled_k) @ turned_q"
        groups = values["turned_k"].shape[1]
        self.names["grouped"] = partial(_grouped, G=groups, tiled=s["grouping"] == "tile")
        self.names["otherwise"] = partial(_grouped, G=groups, tiled=s["grouping"] != "tile")
        shared = "grouped({}).sum(2)" if groups != values["turned_q"].shape[1] else "{}"
        yield "d_turned_k", shared.format("d_keys")
        yield "d_turned_v", shared.format("d_values")

    def _project(self) -> Iterator[tuple[str, str]]:
        """From the gradients of queries, keys and values to those of inputs and params."""
        given, values = self.problem.given, self.values
        shares: dict[str, list[str]] = {}
        for n in "qkv":
            for stage, to, at in (("rotate", n, f"turned_{n}"), ("split", f"wide_{n}", n)):
                is_same = values[to] is values[at]
                yield f"d_{to}", f"d_{at}" if is_same else f"{self._pull(stage, to, at)}(d_{at})"
            role = next((r for r in given if given[r] is values[f"from_{n}"]), "")
            if f"w_{n}" in given:
                yield f"d_w_{n}", f"rows(from_{n}).T @ rows(d_wide_{n})"
            if f"b_{n}" in given:
                yield f"d_b_{n}", f"d_wide_{n}.sum((0, 1))"
            yield f"share_{n}", f"d_wide_{n} @ w_{n}.T" if f"w_{n}" in given else f"d_wide_{n}"
            shares.setdefault(role, []).append(f"share_{n}")
        if "packed" in shares or "w_qkv" in given:
            sizes = self.problem.sizes
            values.setdefault("packed", np.zeros(sizes.shape("B T P")))
            pulls = [f"{self._pull('project', 'packed', f'wide_{n}')}(d_wide_{n})" for n in "qkv"]
            yield "d_packed", " + ".join(pulls)
        if "w_qkv" in given:
            yield "d_w_qkv", "rows(from_q).T @ rows(d_packed)"
            yield "d_b_qkv", "d_packed.sum((0, 1))"
            shares = {role: ["d_packed @ w_qkv.T"] for role in shares}
        for role, own in shares.items():
            if role and role != "packed" and role[:5] != "wide_":
                is_residual = self.settings["after"] == "+ x" and given[role] is values["from_q"]
                yield f"d_{role}", " + ".join([*own, *(["d_out"] if is_residual else [])])


BLIND = ("weights", "dropped", "heads", "merged")


class Pull:
    """The transposed Jacobian of a function, by central differences: it pulls gradients back."""

    def __init__(self, function: Callable[[Array], Array], at: Array) -> None:
        self.function, self.at = function, at

    @cached_property
    def jacobian(self) -> Array:
        """The derivative of each output (rows) by each input (columns)."""
        columns = []
        for index in np.ndindex(self.at.shape):
            step = np.zeros(self.at.shape)
            step[index] = STEP
            gap = self.function(self.at + step) - self.function(self.at - step)
            columns.append(np.nan_to_num(gap).ravel() / (2 * STEP))
        return np.array(columns).T

    def __call__(self, d: Array) -> Array:
        """Return the gradient of the input."""
        return (d.ravel() @ self.jacobian).reshape(self.at.shape)

    def forward(self, d: Array) -> Array:
        """Return the gradient taken through the function once more, where shapes allow it."""
        return (self.jacobian @ d.ravel()).reshape(self.at.shape)


@cache
def _compiled(expression: str) -> CodeType:
    return compile(expression, "<step>", "eval")


def sum_to(array: Array, shape: tuple[int, ...]) -> Array:
    """Sum over the axes that broadcasting has made longer."""
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and array.shape[i] != 1)
    return array.sum(axes, keepdims=True)


def _grouped(array: Array, G: int, tiled: bool) -> Array:
    """Return the axis of heads as two: (G, heads of a group)."""
    B, H, *rest = array.shape
    if tiled:
        return array.reshape(B, H // G, G, *rest).swapaxes(1, 2)
    return array.reshape(B, G, H // G, *rest)


def _reshaped(array: Array) -> Array:
    """Return the last two axes exchanged as a reshape does it: the wrong numbers."""
    return array.reshape(*array.shape[:-2], array.shape[-1], array.shape[-2])


def same(a: Array, b: Array) -> bool:
    """Return whether two gradients agree, relative to the largest number."""
    return a.shape == b.shape and bool(
        abs(a - b).max(initial=0) <= 1e-5 * max(abs(b).max(initial=0), 1e-3)
    )


def _mistakes(b: Backward) -> Iterator[Mistake]:
    """Yield the known mistakes, those that people make most often first."""
    steps = b.steps
    for name, says, edits in KNOWN:
        if b.values["has_rule"] or not re.search("mask|hidden", name):
            yield Mistake(name, says, edits)
    yield from _scales()
    yield from _groups()
    yield from _of_maps([n for n in "qkvo" if f"d_w_{n}" in steps], steps)
    for n in "qkv":
        turn, split = steps[f"d_{n}"], steps[f"d_wide_{n}"]
        if "(" in turn:
            pull, inner = turn[:-1].split("(")
            yield Mistake(f"d_{n} not turned back", f"the rotation of {n} is left out of backward", {f"d_{n}": inner})
            yield Mistake(f"d_{n} turned forward", f"the gradient of {n} is turned forward again, not back",
                          {f"d_{n}": f"{pull}.forward({inner})"})  # fmt: skip
        if "(" in split:
            yield Mistake("heads merged without transpose", "gradients of heads are merged by a reshape without the transpose",
                          {f"d_wide_{m}": f"d_{m}.reshape(wide_{m}.shape)" for m in "qkv"})  # fmt: skip
    if all("(" in steps[f"d_{n}"] for n in "qk"):
        inner_q, inner_k = (steps[f"d_{n}"][:-1].split("(") for n in "qk")
        yield Mistake("rotation left out of backward", "the gradients of q and k are not turned back",
                      {"d_q": inner_q[1], "d_k": inner_k[1]})  # fmt: skip
        yield Mistake("gradients turned forward", "the gradients of q and k are turned forward again, not back",
                      {"d_q": f"{inner_q[0]}.forward({inner_q[1]})", "d_k": f"{inner_k[0]}.forward({inner_k[1]})"})  # fmt: skip
    finals = {role: f"d_{role}" for role in b.roles}
    for role, step in finals.items():
        yield from _of_sum(name_of(role), step, steps[step].split(" + "))
    main = {r: s for r, s in finals.items() if r[:2] not in ("w_", "b_")}
    for (one, first), (two, second) in _pairs(main):
        a, z = name_of(one), name_of(two)
        yield Mistake(f"{a} and {z} swapped", f"{a} and {z} are swapped", {first: steps[second], second: steps[first]})
    for role, step in finals.items():
        yield from _factors(name_of(role), step, steps[step])


def _pairs(roles: dict[str, str]) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    items = [*roles.items()]
    for i, one in enumerate(items):
        yield from ((one, two) for two in items[i + 1 :])


JACOBIAN = "the row sum of softmax"
KNOWN: list[tuple[str, str, dict[str, str]]] = [
    ("row sum left out", f"{JACOBIAN} is left out, so rows of d_scores do not sum to 0", {"d_scores": "p * d_weights"}),
    ("row sum over queries", f"{JACOBIAN} is taken over the queries", {"row_sum": "(p * d_weights).sum(-2, keepdims=True)"}),
    ("row sum over heads", f"{JACOBIAN} is taken over the heads", {"row_sum": "(p * d_weights).sum(1, keepdims=True)"}),
    ("row sum over the batch", f"{JACOBIAN} is taken over the batch", {"row_sum": "(p * d_weights).sum(0, keepdims=True)"}),
    ("row sum over all cells", f"{JACOBIAN} is taken over queries and keys", {"row_sum": "(p * d_weights).sum((-1, -2), keepdims=True)"}),
    ("row sum unweighted", f"{JACOBIAN} sums only d_weights, without the weights", {"row_sum": "d_weights.sum(-1, keepdims=True)"}),
    ("row mean instead of the weighted sum", "the plain mean of d_weights is subtracted, not the weighted mean", {"row_sum": "d_weights.mean(-1, keepdims=True)"}),
    ("row sum a mean", f"a mean replaces {JACOBIAN}, so it is T_k times too small", {"row_sum": "(p * d_weights).mean(-1, keepdims=True)"}),
    ("row sum added", f"{JACOBIAN} is added to d_weights, not subtracted", {"d_scores": "p * (d_weights + row_sum)"}),
    ("row sum without the factor", f"{JACOBIAN} is subtracted without the factor weights", {"d_scores": "p * d_weights - row_sum"}),
    ("only the diagonal of the Jacobian", "only the diagonal p (1 - p) of softmax's Jacobian is used", {"d_scores": "p * (1 - p) * d_weights"}),
    ("factor p left out", "d_scores lacks the factor weights, so hidden cells get gradients", {"d_scores": "d_weights - row_sum"}),
    ("softmax skipped in backward", "d_weights is used as d_scores: softmax is skipped", {"d_scores": "d_weights"}),
    ("weights used as d_scores", "the weights are used instead of d_scores", {"d_scores": "p"}),
    ("log-softmax's Jacobian", "the backward of log-softmax is used instead of softmax's", {"d_scores": "d_weights - p * d_weights.sum(-1, keepdims=True)"}),
    ("sigmoid's derivative squared", "the weights are squared in softmax's backward", {"d_scores": "p**2 * (d_weights - row_sum)"}),
    ("softmax of the weights", "softmax is applied to the weights again, as if they were scores", {"p": "softmax(weights)"}),
    ("mask forgotten in backward", "the weights are computed again without the mask, so hidden keys get gradients", {"p": "softmax(scores)"}),
    ("mask forgotten in d_scores", "d_scores is computed from weights without the mask, so hidden cells get gradients",
     {"row_sum": "(softmax(scores) * d_weights).sum(-1, keepdims=True)", "d_scores": "softmax(scores) * (d_weights - row_sum)"}),
    ("mask forgotten in d_v", "d_v is computed from weights without the mask, so hidden values get gradients", {"mixed": "softmax(scores)"}),
    ("hidden cells get gradients", "d_scores is not 0 where the mask hides", {"d_scores": "np.where(visible, p * (d_weights - row_sum), d_weights - row_sum)"}),
    ("hidden cells get d_weights", "d_scores is not 0 where the mask hides", {"d_scores": "np.where(visible, p * (d_weights - row_sum), d_weights)"}),
    ("mask inverted in backward", "d_scores is 0 where the mask shows, instead of where it hides", {"d_scores": "np.where(visible, 0, p * (d_weights - row_sum))"}),
    ("d_scores divided by B", "d_scores is divided by the batch size", {"d_raw": "d_scores / len(d_scores)"}),
    ("d_scores not transposed", "d_scores is not transposed in d_k", {"d_keys": "scaled_k @ turned_q"}),
    ("d_scores reshaped", "d_scores is reshaped in d_k instead of transposed", {"d_keys": "turned(scaled_k) @ turned_q"}),
    ("d_scores transposed in d_q", "d_scores is transposed in d_q", {"d_turned_q": "T(scaled_q) @ keys"}),
    ("d_q made from q", "d_q is computed from q instead of k", {"d_turned_q": "scaled_q @ turned_q"}),
    ("d_k made from k", "d_k is computed from k instead of q", {"d_keys": "T(scaled_k) @ keys"}),
    ("d_q and d_k swapped", "d_q and d_k are swapped", {"d_turned_q": "T(scaled_k) @ turned_q", "d_keys": "scaled_q @ keys"}),
    ("d_q from the weights", "d_q is computed from the weights instead of d_scores", {"scaled_q": "scale * p"}),
    ("d_k from the weights", "d_k is computed from the weights instead of d_scores", {"scaled_k": "scale * p"}),
    ("d_q from d_weights", "d_q is computed from d_weights instead of d_scores", {"scaled_q": "scale * d_weights"}),
    ("d_k from d_weights", "d_k is computed from d_weights instead of d_scores", {"scaled_k": "scale * d_weights"}),
    ("weights not transposed", "the weights are not transposed in d_v", {"d_values": "mixed @ d_heads"}),
    ("weights reshaped", "the weights are reshaped in d_v instead of transposed", {"d_values": "turned(mixed) @ d_heads"}),
    ("d_v made from d_scores", "d_v is computed from d_scores instead of the weights", {"d_values": "T(p * (d_weights - row_sum)) @ d_heads"}),
    ("d_v made from scaled d_scores", "d_v is computed from d_scores instead of the weights", {"d_values": "T(scale * p * (d_weights - row_sum)) @ d_heads"}),
    ("d_v made from the scores", "d_v is computed from the scores instead of the weights", {"d_values": "T(scores) @ d_heads"}),
    ("d_v made from the output", "d_v is computed from the output instead of its gradient", {"d_values": "T(mixed) @ heads"}),
    ("d_v with the scale", "d_v has the scale as a factor", {"d_values": "scale * T(mixed) @ d_heads"}),
    ("v not transposed", "v is not transposed in d_weights", {"d_dropped": "d_heads @ values"}),
    ("v reshaped", "v is reshaped in d_weights instead of transposed", {"d_dropped": "d_heads @ turned(values)"}),
    ("d_weights made from k", "d_weights is computed from k instead of v", {"d_dropped": "d_heads @ T(keys)"}),
    ("softcap left out of backward", "the derivative of the softcap is left out", {"d_raw": "d_scores"}),
    ("softcap: 1 - tanh", "the derivative of the softcap is 1 - tanh instead of 1 - tanh^2", {"d_raw": "d_scores * (1 - bounded)"}),
    ("softcap: of capped scores", "the softcap's derivative takes tanh of scores that are already capped",
     {"d_raw": "d_scores * (1 - np.tanh(bounded)**2)"}),
    ("softcap: not divided by the cap", "the softcap's derivative squares the capped scores without dividing by the cap",
     {"d_raw": "d_scores * (1 - (cap * bounded)**2)"}),
    ("softcap: divided by the cap", "the softcap's derivative is divided by the cap", {"d_raw": "d_scores * (1 - bounded**2) / cap"}),
    ("softcap: times the cap", "the softcap's derivative has the cap as a factor", {"d_raw": "d_scores * (1 - bounded**2) * cap"}),
    ("dropout ignored in backward", "dropout is left out of backward", {"d_weights": "d_dropped", "mixed": "p"}),
    ("dropout ignored in d_weights", "d_weights is d_dropped: dropout is left out", {"d_weights": "d_dropped"}),
    ("dropout ignored in d_v", "d_v is computed from the weights before dropout", {"mixed": "p"}),
    ("dropout not undone by 1/(1-p)", "the factor 1 / (1 - p) of the kept weights is missing in d_weights", {"d_weights": "d_dropped * (drop != 0)"}),
    ("d_v without 1/(1-p)", "the factor 1 / (1 - p) of the kept weights is missing in d_v", {"mixed": "p * (drop != 0)"}),
    ("keep inverted", "dropped weights get gradients, and kept ones get none", {"d_weights": "d_dropped * (drop == 0)"}),
    ("dropout after softmax's backward", "dropout is applied to d_scores instead of d_weights", {"d_weights": "d_dropped", "d_raw": "d_scores * drop"}),
    ("dropped weights in softmax's backward", "softmax's backward uses the weights after dropout", {"d_scores": "mixed * (d_weights - (mixed * d_weights).sum(-1, keepdims=True))"}),
    ("d_bias with the scale", "d_bias has the scale as a factor", {"d_bias": "sum_to(scale * d_raw, bias.shape)"}),
    ("d_bias from d_weights", "d_bias is d_weights: softmax is skipped", {"d_bias": "sum_to(d_weights, bias.shape)"}),
    ("d_bias not summed", "d_bias has the shape of the scores: the sum over what shares the bias is left out", {"d_bias": "d_scores"}),
    ("d_bias of the first sequence", "d_bias is computed from the first sequence only", {"d_bias": "sum_to(d_scores[:1], bias.shape)"}),
    ("d_bias: mean over the batch", "d_bias is the mean over the batch instead of the sum", {"d_bias": "sum_to(d_scores / B, bias.shape)"}),
    ("sign of d_sink", "d_sink has the wrong sign", {"d_sink": "((1 - p.sum(-1)) * row_sum[..., 0]).sum((0, 2))"}),
    ("everything divided by B", "all gradients are divided by the batch size", {"d_out": "upstream / B"}),
    ("everything divided by B T", "all gradients are divided by the number of tokens", {"d_out": "upstream / (B * T_q)"}),
    ("everything a mean", "all gradients are those of the mean of the output, not of its sum", {"d_out": "upstream / upstream.size"}),
    ("output projection skipped in backward", "d_merged is d_out: the output projection is skipped", {"d_merged": "d_out"}),
    ("heads split without transpose", "d_merged is split into heads by a reshape without the transpose", {"d_heads": "d_merged.reshape(heads.shape)"}),
    ("d_w_o from the output", "d_w_o is computed from the layer's output instead of merged", {"d_w_o": "rows(projected).T @ rows(d_out)"}),
    ("d_w_o from heads not merged", "d_w_o is computed from heads that are merged without the transpose", {"d_w_o": "rows(heads.reshape(merged.shape)).T @ rows(d_out)"}),
    ("w_k and w_v swapped in backward", "d_k goes back through w_v, and d_v through w_k",
     {"share_k": "d_wide_k @ w_v.T", "share_v": "d_wide_v @ w_k.T"}),
    ("w_q for all branches", "d_q, d_k and d_v all go back through w_q", {f"share_{n}": f"d_wide_{n} @ w_q.T" for n in "qkv"}),
    ("d_q for all branches", "only d_q goes back, through all three matrices", {f"share_{n}": f"d_wide_q @ w_{n}.T" for n in "kv"}),
]  # fmt: skip


def _scales() -> Iterator[Mistake]:
    for wrong, name, says in (
        ("d_raw", "scale left out of {}", "the scale is missing in {}"),
        ("scale**2 * d_raw", "scale twice in {}", "the scale is applied twice in {}"),
        ("d_raw / scale", "scale inverted in {}", "{} divided by the scale instead of multiplied"),
        ("scale**0.5 * d_raw", "root of the scale in {}", "only the root of the scale is in {}"),
    ):
        for where, steps in (("d_q and d_k", "qk"), ("d_q", "q"), ("d_k", "k")):
            verb = " are" if len(steps) > 1 else " is"
            told = says.format(where + verb if says[0] == "{" else where)
            yield Mistake(name.format(where), told, {f"scaled_{n}": wrong for n in steps})


def _groups() -> Iterator[Mistake]:
    for wrong, name, says in (
        ("grouped({})[:, :, 0]", "only the first of the group", "only the gradient of the first query head of its group"),
        ("grouped({})[:, :, -1]", "only the last of the group", "only the gradient of the last query head of its group"),
        ("grouped({}).mean(2)", "mean over the group", "the mean over its group instead of the sum"),
        ("{}", "group not summed", "one gradient for each query head: the sum over the group is left out"),
        ("otherwise({}).sum(2)", "gradients summed over the wrong heads", "the gradients of query heads of other groups"),
        ("{}.sum(1, keepdims=True) + 0 * grouped({}).sum(2)", "summed over all heads", "the sum over all query heads instead of its group"),
    ):  # fmt: skip
        parts = {"d_turned_k": "d_keys", "d_turned_v": "d_values"}
        for where, own in (("", parts), *((f" in d_{s[-1]}", {s: d}) for s, d in parts.items())):
            yield Mistake(name + where, f"a shared head gets {says}" + (f", in d_{where[-1]}" if where else ""),
                          {s: wrong.replace("{}", d) for s, d in own.items()})  # fmt: skip


MAPS = {n: (f"from_{n}", f"d_wide_{n}") for n in "qkv"} | {"o": ("merged", "d_out")}


def _of_maps(maps: list[str], steps: Mapping[str, str]) -> Iterator[Mistake]:
    """Yield the mistakes in a linear map's backward: in all of them, or in one."""
    groups = ["".join(maps), "".join(n for n in maps if n != "o"), *maps]
    for own in dict.fromkeys(groups):
        d_x, d_w, d_b = {}, {}, {}
        for n in own:
            x, d = MAPS[n]
            d_x["d_merged" if n == "o" else f"share_{n}"] = (d, f"w_{n}")
            d_w[f"d_w_{n}"] = (x, d)
            if f"d_b_{n}" in steps:
                d_b[f"d_b_{n}"] = d
        name = {"w": " and ".join(d_w) if len(own) < 3 else "each d_w", "b": " and ".join(d_b) if len(own) < 3 else "each d_b"}
        through = " and ".join(f"w_{n}" for n in own) if len(own) < 3 else "each w"
        yield Mistake(f"through {through}, not its transpose", f"the gradient goes back through {through} instead of its transpose",
                      {s: f"{d} @ {w}" for s, (d, w) in d_x.items()})  # fmt: skip
        yield Mistake(f"{through} skipped in backward", f"the gradient does not go back through {through}",
                      {s: d for s, (d, _) in d_x.items()})  # fmt: skip
        for title, says, text in (
            ("transposed", "is transposed", "rows({d}).T @ rows({x})"),
            ("from the first sequence only", "is computed from the first sequence only", "rows({x}[:1]).T @ rows({d}[:1])"),
            ("from the last sequence only", "is computed from the last sequence only", "rows({x}[-1:]).T @ rows({d}[-1:])"),
            ("a mean over the batch", "is the mean over the batch instead of the sum", "rows({x}).T @ rows({d}) / B"),
            ("a mean", "is a mean over batch and tokens", "rows({x}).T @ rows({d}) / len(rows({x}))"),
            ("not summed over the batch", "is not summed over the batch", "T({x}) @ {d}"),
        ):  # fmt: skip
            yield Mistake(f"{name['w']} {title}", f"{name['w']} {says}",
                          {s: text.format(x=x, d=d) for s, (x, d) in d_w.items()})  # fmt: skip
        for title, says, text in (
            ("a mean", "is a mean over batch and tokens", "{d}.mean((0, 1))"),
            ("a mean over the batch", "is the mean over the batch instead of the sum", "{d}.sum(1).mean(0)"),
            ("over the batch only", "is summed over the batch only", "{d}.sum(0)"),
            ("over the tokens only", "is summed over the tokens only", "{d}.sum(1)"),
            ("not summed", "is not summed over batch and tokens", "{d}"),
            ("from the first sequence only", "is computed from the first sequence only", "{d}[0].sum(0)"),
            ("from the last sequence only", "is computed from the last sequence only", "{d}[-1].sum(0)"),
        ):  # fmt: skip
            if d_b:
                yield Mistake(f"{name['b']} {title}", f"{name['b']} {says}", {s: text.format(d=d) for s, d in d_b.items()})
    for n in maps:
        for m in (m for m in maps if m != n):
            (x, d), (other, wrong) = MAPS[n], MAPS[m]
            yield Mistake(f"params of {n} from d_{m}", f"d_w_{n} is computed from the gradient of {m}",
                          {f"d_w_{n}": f"rows({x}).T @ rows({wrong})"})  # fmt: skip
            yield Mistake(f"d_w_{n} from the input of {m}", f"d_w_{n} is computed from the input of {m}",
                          {f"d_w_{n}": f"rows({other}).T @ rows({d})"})  # fmt: skip
            if n != "o" and m != "o":
                yield Mistake(f"d_{n} through w_{m}", f"the gradient of {n} goes back through w_{m}",
                              {f"share_{n}": f"d_wide_{n} @ w_{m}.T"})  # fmt: skip


def _of_sum(name: str, step: str, parts: list[str]) -> Iterator[Mistake]:
    """Yield the mistakes in a sum of what comes back through q, k and v."""
    if len(parts) < 2 or step == "d_packed":
        return
    for part in parts:
        via = {"d_out": "the residual"}.get(part, part[-1])
        left = [p for p in parts if p != part]
        yield Mistake(f"branch of {via} forgotten", f"{name} lacks the share through {via}", {step: " + ".join(left)})
        if len(left) > 1:
            yield Mistake(f"only the branch of {via}", f"{name} has only the share through {via}", {step: part})
    yield Mistake("mean of the branches", f"{name} is the mean of what comes back through q, k and v",
                  {step: f"({' + '.join(parts)}) / {len(parts)}"})  # fmt: skip


def _factors(name: str, step: str, right: str) -> Iterator[Mistake]:
    for text, title, says in (
        ("-({})", "sign of {}", "{} has the wrong sign"),
        ("0 * ({})", "{} zero", "{} is 0: no gradient arrives"),
        ("({}) / B", "{} divided by B", "{} is divided by the batch size"),
    ):
        yield Mistake(title.format(name), says.format(name), {step: text.format(right)})
