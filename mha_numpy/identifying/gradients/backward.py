"""The backward pass of attention, in steps that can be edited.

A step is an expression of forward's arrays and of earlier steps. A mistake writes other expressions
for one or more steps, so two mistakes are both edits.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property, partial
from types import CodeType, SimpleNamespace
from typing import Any

import numpy as np

from mha_numpy.checking.derivatives import central_difference
from mha_numpy.dtypes import Array
from mha_numpy.identifying.family import STAGES, USUAL, Problem, Settings, evaluate
from mha_numpy.identifying.family.stages import softmax

NAN_IF_BLIND = ("weights", "dropped", "heads", "merged")  # NaN in rows that see nothing


class Backward:
    """The backward pass of attention with some settings, from the gradient of one of its arrays.

    Parameters
    ----------
    problem, settings
        As for `evaluate`: deviations of the forward pass stay in the formulas.
    what : str
        The array whose gradient is given: ``"out"``, ``"merged"`` or ``"projected"``.
    d_out : Array
        Its gradient.
    """

    def __init__(self, problem: Problem, settings: Settings, what: str, d_out: Array) -> None:
        self.problem, self.settings, self.what = problem, {**USUAL, **settings}, what
        self.values = dict(evaluate(problem, settings) or {})
        for name in NAN_IF_BLIND:
            self.values[name] = np.nan_to_num(self.values[name], nan=0.0)
        self.names: dict[str, Any] = {
            **problem.given, **self.values, "np": np, "T": lambda a: a.swapaxes(-1, -2),
            "rows": lambda a: a.reshape(-1, a.shape[-1]), "softmax": partial(softmax, axis=-1),
            "reshaped": lambda a: a.reshape(*a.shape[:-2], a.shape[-1], a.shape[-2]),
            "upstream": d_out, "sum_to": sum_to, "B": problem.sizes.B, "T_q": problem.sizes.T,
            "share": problem.sizes.H // problem.sizes.G,
        }  # fmt: skip
        self.steps: dict[str, str] = {}
        for part in (self._finish, self._mix, self._match, self._turn_back, self._project):
            self.steps.update(part())
        self.right = self._run({}, self.names)
        self.roles = [role for role in problem.given if f"d_{role}" in self.steps]

    def run(self, edits: Mapping[str, str]) -> dict[str, Array] | None:
        """Return the gradients by role, with some steps edited; None if they cannot be computed."""
        own = self.arrays(edits)
        return {role: own[f"d_{role}"] for role in self.roles} if own else None

    def arrays(self, edits: Mapping[str, str]) -> dict[str, Array]:
        """Return what each step has, with some steps edited; nothing if it cannot be computed."""
        try:
            with np.errstate(all="ignore"):
                own = self._run(edits, self.right)
        except (ValueError, IndexError, NameError, AttributeError):
            return {}
        return {step: own[step] for step in self.steps}

    def leading_to(self, steps: Iterable[str]) -> set[str]:
        """Return the steps that some steps need."""
        found = {*steps}
        for step in reversed(self.steps):
            found |= {*_compiled(self.steps[step]).co_names} if step in found else set()
        return found & self.steps.keys() - {*steps}

    def _run(self, edits: Mapping[str, str], known: Mapping[str, Any]) -> dict[str, Any]:
        """Compute the steps that are edited, or not known yet, and those that use them."""
        own, changed = dict(known), set(edits)
        for step, expression in self.steps.items():
            code = _compiled(edits.get(step, expression))
            if step not in own or step in edits or changed & {*code.co_names}:
                own[step] = eval(code, {}, own)
                changed.add(step)
        return own

    def _pull(self, stage: str, source: str, target: str) -> str:
        """Return the name of a function that takes a gradient back through a part of a stage."""
        name = f"{source}_from_{target}"
        self.names[name] = Pull(partial(self._push, stage, source, target), self.values[source])
        return name

    def _push(self, stage: str, source: str, target: str, array: Array) -> Array:
        _, compute, names = STAGES[stage]
        chosen = SimpleNamespace(**{name: self.settings[name] for name in names})
        problem = self.problem.but(packed=array) if source == "packed" else self.problem
        new = compute(SimpleNamespace(**{**self.values, source: array}), chosen, problem)
        return np.asarray(new[target])

    def _finish(self) -> Iterator[tuple[str, str]]:
        """From the gradient of the output to that of the heads."""
        yield "d_out", "upstream"
        if self.what == "out":
            yield "d_heads", "d_out"
            return
        is_projected = self.what == "projected" and self.problem.get("w_o") is not None
        if self.what == "projected" and self.problem.get("b_o") is not None:
            yield "d_b_o", "d_out.sum((0, 1))"
        if is_projected:
            yield "d_w_o", "rows(merged).T @ rows(d_out)"
        yield "d_merged", "d_out @ w_o.T" if is_projected else "d_out"
        yield "d_heads", f"{self._pull('finish', 'heads', 'merged')}(d_merged)"

    def _mix(self) -> Iterator[tuple[str, str]]:
        """From the gradient of the heads to those of the values and the scores."""
        s, drop = self.settings, self.problem.get("dropout_mask")
        times = ""
        if drop is not None:
            self.names["drop"] = drop == 0 if s["dropout_mask"] == "1 = dropped" else drop
            times = " * drop"
        yield "p", "weights"
        yield "mixed", "p" + times
        yield "d_values", "T(mixed) @ d_heads"
        yield "own_v", "values"
        yield "d_dropped", "d_heads @ T(own_v)"
        yield "d_weights", "d_dropped" + times
        yield "row_sum", "(p * d_weights).sum(-1, keepdims=True)"
        is_plain = s["hide"] == "-inf" or not self.values["has_rule"]
        is_plain &= bool(self.values["visible"].any(-1).all())
        is_softmax = s["normaliser"] in ("softmax", "one more in the sum")
        if is_plain and is_softmax and s["softmax_axis"] == "keys":
            yield "d_scores", "p * (d_weights - row_sum)"
        else:
            yield "d_scores", f"{self._pull('normalise', 'scores', 'weights')}(d_weights)"
        if self.problem.get("sink") is not None:
            yield "d_sink", "-((1 - p.sum(-1)) * row_sum[..., 0]).sum((0, 2))"

    def _match(self) -> Iterator[tuple[str, str]]:
        """From the gradient of the scores to those of turned queries and keys."""
        s, values = self.settings, self.values
        cap = self.problem.get("softcap") or s["softcap"]
        is_before = s["softcap_at"] == "before the bias"
        uncapped = self.problem.but(softcap=None)
        bare = {**s, "softcap": None, "alibi": "", "bias": USUAL["bias"]}
        plain = (evaluate(uncapped.but(bias=None, slopes=None), bare) or values)["scores"]
        products = values["turned_q"] @ values["keys"].swapaxes(-1, -2)
        self.names["scale"] = plain.ravel() @ products.ravel() / (products**2).sum()
        yield "d_raw", "d_scores * (1 - bounded**2)" if cap else "d_scores"
        if cap:
            whole = (evaluate(uncapped, {**s, "softcap": None}) or values)["scores"]
            self.names |= {"cap": cap, "bounded": np.tanh((plain if is_before else whole) / cap)}
        if self.problem.get("bias") is not None:
            after = "d_scores" if is_before else "d_raw"
            own = {"added after the scale": after, "added before the scale": "scale * d_raw",
                   "subtracted": f"-{after}", "ignored": "0 * d_scores"}[s["bias"]]  # fmt: skip
            yield "d_bias", f"sum_to({own}, bias.shape)"
        yield "scaled_q", "scale * d_raw"
        yield "scaled_k", "scale * d_raw"
        yield "own_k", "keys"
        yield "d_turned_q", "scaled_q @ own_k"
        yield "d_keys", "T(scaled_k) @ turned_q"

    def _turn_back(self) -> Iterator[tuple[str, str]]:
        """From the gradients of keys and values of each query head to those before rotation."""
        values, G = self.values, self.values["turned_k"].shape[1]
        is_tiled = self.settings["grouping"] == "tile"
        self.names["grouped"] = partial(_grouped, G=G, is_tiled=is_tiled)
        self.names["otherwise"] = partial(_grouped, G=G, is_tiled=not is_tiled)
        shared = "grouped({}).sum(2)" if values["turned_q"].shape[1] != G else "{}"
        yield "d_turned_k", shared.format("d_keys")
        yield "d_turned_v", shared.format("d_values")
        for n in "qkv":
            for stage, to, at in (("rotate", n, f"turned_{n}"), ("split", f"wide_{n}", n)):
                is_same = values[to] is values[at]
                yield f"d_{to}", f"d_{at}" if is_same else f"{self._pull(stage, to, at)}(d_{at})"

    def _project(self) -> Iterator[tuple[str, str]]:
        """From the gradients of queries, keys and values to those of inputs and params."""
        given, values = self.problem.given, self.values
        shares: dict[str, list[str]] = {}  # by role: what comes back through q, k and v
        for n in "qkv":
            if f"w_{n}" in given:
                yield f"d_w_{n}", f"rows(from_{n}).T @ rows(d_wide_{n})"
            if f"b_{n}" in given:
                yield f"d_b_{n}", f"d_wide_{n}.sum((0, 1))"
            yield f"share_{n}", f"d_wide_{n} @ w_{n}.T" if f"w_{n}" in given else f"d_wide_{n}"
            role = next((r for r in given if given[r] is values[f"from_{n}"]), "")
            shares.setdefault(role, []).append(f"share_{n}")
        if "packed" in shares or "w_qkv" in given:
            values.setdefault("packed", np.zeros(self.problem.sizes.shape("B T P")))
            pulls = [f"{self._pull('project', 'packed', f'wide_{n}')}(d_wide_{n})" for n in "qkv"]
            yield "d_packed", " + ".join(pulls)
        if "w_qkv" in given:
            yield "d_w_qkv", "rows(from_q).T @ rows(d_packed)"
            yield "d_b_qkv", "d_packed.sum((0, 1))"
            shares = {role: ["d_packed @ w_qkv.T"] for role in shares}
        for role, own in shares.items():
            if role and role != "packed" and not role.startswith("wide_"):
                is_added = self.settings["after"] == "+ x" and given[role] is values["from_q"]
                yield f"d_{role}", " + ".join([*own, *(["d_out"] if is_added else [])])


class Pull:
    """The transposed Jacobian of a function, by central differences: it takes gradients back."""

    def __init__(self, function: Callable[[Array], Array], at: Array) -> None:
        self.function, self.at = function, at

    @cached_property
    def jacobian(self) -> Array:
        """The derivative of each output (rows) by each input (columns)."""
        units = np.eye(self.at.size).reshape(-1, *self.at.shape)

        def moved(unit: Array, by: float) -> Array:
            return self.function(self.at + by * unit)

        columns = [central_difference(partial(moved, unit), 1e-5).ravel() for unit in units]
        return np.nan_to_num(columns).T

    def __call__(self, d: Array) -> Array:
        """Return the gradient of the input."""
        return np.asarray(d.ravel() @ self.jacobian).reshape(self.at.shape)

    def forward(self, d: Array) -> Array:
        """Return what a mistake makes of it: the gradient taken forward once more."""
        return np.asarray(self.jacobian @ d.ravel()).reshape(self.at.shape)


@cache
def _compiled(expression: str) -> CodeType:
    return compile(expression, "<step>", "eval")


def sum_to(array: Array, shape: tuple[int, ...]) -> Array:
    """Sum over the axes that broadcasting has made longer."""
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and array.shape[i] != 1)
    return np.asarray(array.sum(axes, keepdims=True))


def _grouped(array: Array, G: int, is_tiled: bool) -> Array:
    """Return the axis of heads as two: (G, heads of a group)."""
    B, H, *rest = array.shape
    if is_tiled:
        return array.reshape(B, H // G, G, *rest).swapaxes(1, 2)
    return array.reshape(B, G, H // G, *rest)


def same(a: Array, b: Array, few: float = 1e-6) -> bool:
    """Return whether two gradients agree, relative to the largest number."""
    if a.shape != b.shape:
        return False
    return bool(abs(a - b).max(initial=0) <= few * max(abs(b).max(initial=0), 1e-2))
