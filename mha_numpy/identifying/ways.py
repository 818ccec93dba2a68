"""The ways to call a function: which argument has which role, and in which layout."""

from collections.abc import Iterator
from itertools import islice, product
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.family import AXES, Problem, Sizes
from mha_numpy.identifying.family.problem import draw
from mha_numpy.identifying.layouts import HEADS_GIVEN, HEADS_INSIDE, OF_ROLE, ROWS, arrange
from mha_numpy.identifying.names import roles_by_name
from mha_numpy.identifying.subject import Argument, Subject

MAIN = ("query", "key", "value", "x", "memory", "packed")
NUMBERS = ("H", "G", "D", "d", "T", "R", "B")  # the lengths that a function may ask for; R = H // G
PARAMS = tuple(role for role in AXES if role[:2] in ("w_", "b_") and role != "wide_q")
CHOICES: dict[str, tuple[Any, ...]] = {  # what to pass for a role: the first fits most functions
    "rate": (0.0,), "training": (False,), "flag": (False,), "is_causal": (False,), "eps": (1e-12,),
    "block": (2, 1), "softcap": (1.5,), "window": (3, (2, 1), (2, 0)), "offset": (2, 0), "other": (None,), "rng": (None, 0),
    "scale": (0.4,), "base": (100.0,),
}  # fmt: skip
KINDS = {"mask": ("bool", "int", "float"), "cos": ("",)}
MOST = 60  # assignments of roles
WITHOUT_NAME = ("query", "key", "value", "x", "memory", "mask", "w_q", "w_k", "w_v", "w_o", "H")


class Slot(NamedTuple):
    """What an argument is given: the array of a role in a layout, or a value."""

    role: str
    layout: str = ""
    value: Any = None
    kind: str = ""  # "bool", "int" or "float": the numbers of a mask
    parts: tuple[tuple[str, "Slot"], ...] = ()  # of a dict


class Way(NamedTuple):
    """A way to call a function."""

    slots: dict[str, Slot]  # by argument
    hidden: dict[str, Slot]  # by the name of a param that the function has itself
    sizes: Sizes
    is_inside: bool  # the function splits the width into heads

    def roles(self) -> dict[str, str]:
        """Return the layout by role, of everything that is an array."""
        slots = [*self.slots.values(), *self.hidden.values()]
        slots += [part for slot in slots for _, part in slot.parts]
        return {
            slot.role: slot.layout for slot in slots if slot.layout or slot.role == "lengths"
        }

    def argument(self, role: str) -> str:
        """Return the argument that has a role, "" if none has."""
        return next((name for name, slot in self.slots.items() if slot.role == role), "")

    def problem(self, subject: Subject, seed: int = 0) -> Problem:
        """Draw a problem that the function can be given."""
        rng = np.random.default_rng(seed)
        layouts = self.roles()
        given = {
            role: _cut(role, draw(role, self.sizes, rng), layouts[role]) for role in AXES if role in layouts
        }
        for name, slot in self.hidden.items():
            given[slot.role] = _back(subject.hidden[name], slot, self.sizes)
        given |= {
            slot.role: slot.value
            for slot in self.slots.values()
            if slot.role in ("scale", "softcap", "window", "offset", "base", "is_causal", "block")
            and slot.value is not None
        }
        return Problem(self.sizes, given)

    def given(self, problem: Problem) -> dict[str, Any]:
        """Return what to pass for each argument."""
        return {name: _fill(slot, problem) for name, slot in self.slots.items()}


def _cut(role: str, array: Array, layout: str) -> Array:
    """Leave one index of the axes that a layout leaves out: all of them share it."""
    if role in ("mask", "bias", "dropout_mask", "positions"):
        for at, axis in enumerate(AXES[role].split()):
            if axis not in layout.split():
                array = array.take([0], at)
    return array


def _fill(slot: Slot, problem: Problem) -> Any:
    if slot.role == "result":
        return np.zeros(problem.sizes.shape(slot.layout))
    if slot.role == "lengths" and not slot.layout:
        return int(problem.given["lengths"][0])
    if slot.role == "cos_sin":
        return [_fill(part, problem) for _, part in slot.parts]
    if slot.role == "params":
        return {name: _fill(part, problem) for name, part in slot.parts}
    if slot.role in NUMBERS:
        return number_of(slot.role, problem.sizes)
    if not slot.layout:
        return slot.value
    array = arrange(problem.given[slot.role], AXES[slot.role], slot.layout, problem.sizes)
    return array.astype({"int": np.int64, "float": float}.get(slot.kind, array.dtype))


def number_of(role: str, sizes: Sizes) -> int:
    """Return a length; R is the number of query heads in a group."""
    return sizes.H // sizes.G if role == "R" else sizes.of(role)


def _back(array: Array, slot: Slot, sizes: Sizes) -> Array:
    """Return a param of the function with the axes of its role."""
    have, wanted = slot.layout.split(), AXES[slot.role].split()
    if len(have) == len(wanted) and array.ndim == len(have):
        return array.transpose([have.index(axis) for axis in wanted]).astype(float)
    parts = {"M": "H d", "N": "G d", "O": "G e", "U": "H e"}
    order = [part for axis in wanted for part in (parts[axis].split() if axis not in have else [axis])]
    return array.transpose([have.index(a) for a in order]).reshape(sizes.shape(AXES[slot.role])).astype(float)


def find_ways(subject: Subject, given: dict[str, str]) -> Iterator[Way]:
    """Yield ways to call a function, the likeliest first."""
    needed = [a for a in subject.arguments if a.is_required or a.name in given]
    needed += [a for a in subject.arguments if a not in needed and _is_needed(a)]
    choices = [_choices(a, subject, given) for a in needed]
    main = [each for each in choices if {*each} & {*MAIN}]
    if len(main) == 1 and "query" in main[0]:  # keys and values default to it
        main[0].insert(0, "x")
    hidden = _hidden_roles(subject)
    names = [dict(zip([a.name for a in needed], each, strict=True)) for each in _assignments(choices)]
    complete = [each for each in names if _is_complete(each, hidden)]
    complete.sort(key=lambda each: _cost(tuple(each.values()), choices))
    for each in complete[:MOST]:
        yield from _in_layouts(subject, each, hidden)


def _is_needed(argument: Argument) -> bool:
    """Return whether an argument has to be passed although it has a default."""
    roles = roles_by_name(argument.name)
    return bool(roles) and (
        (roles[0] in ("H", "G") and not isinstance(argument.default, bool))
        or (roles[0] == "rate" and type(argument.default) is float)
        or (roles[0] == "block" and type(argument.default) is int)
        or roles[0] == "cos_sin"
    )


def _choices(argument: Argument, subject: Subject, given: dict[str, str]) -> list[str]:
    """Return the roles that an argument may have, the likeliest first."""
    if argument.name in given:
        return [given[argument.name]]
    roles = [*roles_by_name(argument.name)]
    if len(argument.name) == 1 and argument.name.isupper():  # B, T, C: lengths, as in C
        roles.sort(key=lambda role: role not in NUMBERS)
    if subject.keys.get(argument.name):
        return ["params"]
    if subject.unpacks(argument.name):
        subject.keys.setdefault(argument.name, ["w", "b"])
        return ["params"]
    if "params" in roles:
        subject.keys.setdefault(argument.name, [])
    text = argument.annotation.lower()
    if "int" in text and "array" not in text:
        return [r for r in roles if r in NUMBERS or r in ("window", "block", "offset")] or ["H"]
    if "bool" in text and "array" not in text:
        return [r for r in roles if r in ("is_causal", "training", "flag")] or ["flag"]
    if "x" in roles:
        roles.append("packed")
    if not roles and argument.name[:1] in "Ww":
        return ["w_q", "w_k", "w_v", "w_o"]
    return roles or [*WITHOUT_NAME]


def _assignments(choices: list[list[str]]) -> Iterator[tuple[str, ...]]:
    """Yield roles for all arguments; those of two arguments differ, unless they are numbers."""
    short = [each[:6] for each in choices]
    if len(choices) > 6:
        short = [each[:2] if len(each) < len(WITHOUT_NAME) else each[:6] for each in choices]
    for roles in islice(product(*short), 200_000):
        arrays = [role for role in roles if role in AXES or role in MAIN]
        if len(arrays) == len({*arrays}):
            yield roles


def _cost(roles: tuple[str, ...], choices: list[list[str]]) -> tuple[int, int]:
    odd = frozenset(role for role in roles if role in MAIN) not in MAINS[:5]
    ranks = [each.index(role) for role, each in zip(roles, choices, strict=True)]
    order = [MAIN.index(role) for role in roles if role in MAIN]
    return 2 * odd + sum(ranks), sum(a > b for a, b in zip(order, order[1:], strict=False))


def _is_complete(names: dict[str, str], hidden: dict[str, str]) -> bool:
    """Return whether roles are those of some attention."""
    main = frozenset(role for role in names.values() if role in MAIN)
    return main in MAINS


MAINS = [
    frozenset(each.split())
    for each in ("x", "packed", "query key value", "query memory", "x memory", "query key",
                 "x key value", "x key", "query value")
]  # fmt: skip


def _hidden_roles(subject: Subject) -> dict[str, str]:
    """Return the roles of the params that a function has itself, by their names."""
    found: dict[str, str] = {}
    for name, array in subject.hidden.items():
        parts = [part for part in name.replace("/", ".").split(".") if part]
        is_bias = parts[-1] in ("bias", "b") or array.ndim == 1
        is_only_bias = parts[-1] == "bias"
        if parts[-1] in ("weight", "bias", "kernel", "w", "W", "b", "value") and len(parts) > 1:
            parts.pop()
        roles = [role for role in roles_by_name(parts[-1]) if role in PARAMS]
        if "bias_table" in roles_by_name(parts[-1]) and array.ndim == 2 and "bias_table" not in found.values():
            found[name] = "bias_table"
            continue
        prefix = "b_" if is_bias else "w_"
        fit = [f"{prefix}{role[2:]}" for role in roles]
        if is_only_bias and not fit:
            fit = ["b_o"]
        if fit and fit[0] not in found.values():
            found[name] = fit[0]
    return found


PARAM_LAYOUTS = (  # of w_q, and of w_o; those of the others follow
    ("D M", "U W"), ("M D", "W U"), ("D M", "W U"), ("M D", "U W"), ("H D d", "U W"),
    ("H D d", "H e W"), ("D H d", "H e W"), ("D H d", "U W"), ("H d D", "W U"), ("H d D", "U W"),
)  # fmt: skip
AS_K = str.maketrans("DMHT", "CNGS")
AS_V = str.maketrans("DMHdT", "EOGeS")
PACKED = ("B T P", "T P", "B T 3 H d", "3 B H T d", "3 B T H d", "B 3 T H d", "T B P", "T 3 H d")


def param_layout(role: str, layouts: tuple[str, str]) -> str:
    """Return the layout of a param, given those of w_q and w_o."""
    usual, last = layouts
    if role == "bias_table":
        return "K H"
    if role.startswith("b_"):
        split = "H" in usual.split() and role[2:] in "qkv"
        wide = {"b_q": "H d", "b_k": "G d", "b_v": "G e"}.get(role, AXES[role])
        return wide if split else AXES[role]
    if role == "w_o":
        return last
    if role in ("w_qkv", "w_kv"):
        axes = AXES[role].split()
        return " ".join(axes if usual.split()[0] == "D" else axes[::-1])
    return {"w_q": usual, "w_k": usual.translate(AS_K), "w_v": usual.translate(AS_V)}[role]


def _in_layouts(subject: Subject, names: dict[str, str], hidden: dict[str, str]) -> Iterator[Way]:
    """Yield the ways that give arguments these roles."""
    keys = {n: subject.keys.get(n, []) for n, role in names.items() if role == "params"}
    inner = {(name, key): _param_role(key, name) for name, each in keys.items() for key in each}
    params = {r for r in (*names.values(), *hidden.values(), *inner.values()) if r in PARAMS}
    kinds = [True] if params & {"w_q", "w_k", "w_v", "w_qkv"} or "H" in names.values() else [False, True]
    if "x" in names.values() or "packed" in names.values():
        kinds = [True]
    optional = [name for name, role in names.items() if role in (*OF_ROLE, *CHOICES, "padding")]
    for options in islice(product(*(variants(names[name]) for name in optional)), 200):
        given = dict(zip(optional, options, strict=True))
        for layouts in PARAM_LAYOUTS if params else PARAM_LAYOUTS[:1]:
            for is_inside in kinds:
                for sizes in _sizes(subject, names, hidden, is_inside, layouts):
                    for layout in HEADS_INSIDE if is_inside else HEADS_GIVEN:
                        yield from _way(
                            subject, names, hidden, inner, given, sizes, layout, layouts, is_inside
                        )


def variants(role: str) -> list[Slot]:
    """Return the ways to give an option."""
    if role in CHOICES:
        return [Slot(role, value=value) for value in CHOICES[role]]
    layouts = ROWS if role == "padding" else OF_ROLE[role]
    if role == "cos_sin":
        pairs = [(("0", Slot("cos", layout)), ("1", Slot("sin", layout))) for layout in layouts]
        return [Slot(role, parts=parts) for parts in pairs]
    role = "mask" if role == "padding" else role
    return [
        Slot(role, layout, kind=kind)
        for kind in (KINDS["mask"] if role == "mask" else ("",))
        for layout in layouts
    ]


def _param_role(key: str, argument: str) -> str:
    """Return the role of what a dict of params has under a key."""
    if key in ("w", "b", "weight", "bias", "kernel"):  # of one map, which the argument names
        own = next((role[2:] for role in roles_by_name(argument) if role in PARAMS), "")
        return f"{key[0].replace('k', 'w')}_{own}" if own and key != "bias" else f"b_{own}"
    return next((role for role in roles_by_name(key) if role in PARAMS or role in NUMBERS), "other")


def _layout_of_part(role: str, layouts: tuple[str, str]) -> str:
    return param_layout(role, layouts) if role in PARAMS else ""


def _sizes(
    subject: Subject, names: dict[str, str], hidden: dict[str, str], is_inside: bool,
    layouts: tuple[str, str],
) -> Iterator[Sizes]:  # fmt: skip
    """Yield sizes that a function may accept."""
    roles = {*names.values()}
    is_self = not roles & {"memory", "key", "value"}
    G = 2 if roles & {"G", "R"} or _asks_for_groups(subject) else 4
    if not is_inside:
        yield Sizes(G=G)
        yield Sizes(G=G, e=8)
        yield Sizes(G=G, e=8, S=5)
        return
    S = 5 if is_self else 7
    if hidden:
        yield from _hidden_sizes(subject, hidden, S, layouts)
        return
    if roles & {"H"}:
        heads = [(4, G), (4, 4)] if G == 4 else [(4, 2)]
    else:
        own = [int(n) for n in subject.constants() if n in (2, 3, 4, 6, 8, 12, 16)]
        heads = [(1, 1), (4, G), *((n, n) for n in own)]
        if "H" in layouts[0].split():
            heads = [(4, 4)]
    for H, kv in dict.fromkeys(heads):
        for S_now in dict.fromkeys((S, 5)):
            yield Sizes(H=H, G=kv, e=8, S=S_now)


def _asks_for_groups(subject: Subject) -> bool:
    return any({"G", "R"} & {*roles_by_name(name)[:1]} for name in subject.numbers)


def _hidden_sizes(
    subject: Subject, hidden: dict[str, str], S: int, layouts: tuple[str, str]
) -> Iterator[Sizes]:
    """Yield sizes that fit the params that a function has itself."""
    named: dict[str, int] = {}
    for name, number in subject.numbers.items():
        for role in roles_by_name(name)[:1]:
            if role in NUMBERS and number == int(number):
                named.setdefault(role, int(number))
    lengths: dict[str, int] = {}
    for name, role in hidden.items():
        layout, shape = param_layout(role, layouts).split(), subject.hidden[name].shape
        if len(layout) != len(shape):
            return
        lengths |= dict(zip(layout, shape, strict=True))
    D, C, W = lengths.get("D", 0), lengths.get("C", lengths.get("E", 0)), lengths.get("W", 0)
    wide = lengths.get("M") or lengths.get("U", 0)
    if "H" not in named and "d" in named and wide:
        named["H"] = wide // named["d"]
    heads = [lengths["H"]] if "H" in lengths else [named["H"]] if "H" in named else HEADS
    for H in heads:
        if wide and "N" in lengths:
            named["G"] = max(lengths["N"] * H // wide, 1)
        groups = [lengths["G"]] if "G" in lengths else [named["G"]] if "G" in named else [H, 1, 2, 4]
        for G in groups:
            wide = lengths.get("M") or lengths.get("U") or lengths.get("N", 0) * H // G
            if not wide and "P" in lengths:
                wide = lengths["P"] * H // (H + 2 * G)
            d = lengths.get("d") or (wide or D or C) // H
            if G <= H and H % G == 0:
                for S_now in dict.fromkeys((S, 5)):
                    yield Sizes(S=S_now, H=H, G=G, d=d, e=d, D=D, C=C, W=W, K=lengths.get("K", 12))


HEADS = [1, 2, 4, 3, 6, 8, 12]


def _way(
    subject: Subject, names: dict[str, str], hidden: dict[str, str], inner: dict[tuple[str, str], str],
    options: dict[str, Slot], sizes: Sizes, layout: str, layouts: tuple[str, str], is_inside: bool,
) -> Iterator[Way]:  # fmt: skip
    of_queries, _, of_keys = layout.partition("|")
    axes = of_queries.split()
    letters = {*of_queries.split(), *of_keys.split(), "S", "1", *("HG" if is_inside else "")}
    letters |= {"B"} if "B" in axes else set()
    for slot in options.values():
        if slot.role in ("mask", "bias", "dropout_mask") and (
            not {*slot.layout.split()} <= letters or (not is_inside and len(slot.layout.split()) > len(axes))
        ):  # fmt: skip
            return
    left_out = {axis: 1 for axis in "BHT" if axis not in axes and (axis != "H" or not is_inside)}
    if not is_inside and "G" not in of_keys and (of_keys or "H" not in axes):
        left_out["G"] = 1
    if {"cache_k", "cache_v"} & {*names.values()}:
        left_out |= {"Z": 2}
        if not of_keys or "T" not in axes:
            left_out |= {"S": sizes.S if not is_inside else left_out.get("T", sizes.T)}
    sizes = sizes._replace(**left_out)
    has_params = any(r.startswith("w_") for r in (*names.values(), *hidden.values(), *inner.values()))
    slots = {
        name: options.get(name)
        or _slot(role, subject, name, (of_queries, of_keys), layouts, inner, is_inside, has_params)
        for name, role in names.items()
    }
    own = {name: Slot(role, param_layout(role, layouts)) for name, role in hidden.items()}
    for name, slot in own.items():
        if subject.hidden[name].shape != sizes.shape(slot.layout):
            return
    if any(slot.role == "packed" for slot in slots.values()) and layout == HEADS_INSIDE[0]:
        for packed in PACKED:
            changed = {n: s._replace(layout=packed) if s.role == "packed" else s for n, s in slots.items()}
            yield Way(changed, own, sizes, is_inside)
        return
    yield Way(slots, own, sizes, is_inside)


def _slot(
    role: str, subject: Subject, name: str, layout: tuple[str, str], layouts: tuple[str, str],
    inner: dict[tuple[str, str], str], is_inside: bool, has_params: bool,
) -> Slot:  # fmt: skip
    """Return what an argument is given."""
    of_queries, of_keys = layout
    if role in PARAMS:
        return Slot(role, param_layout(role, layouts))
    if role == "params":
        parts = tuple(
            (key, Slot(inner[name, key], _layout_of_part(inner[name, key], layouts)))
            for key in subject.keys[name]
        )
        return Slot("params", parts=parts)
    if role == "packed":
        return Slot(role, "B T P")
    if role == "result":
        return Slot(role, of_queries.replace("d", "e").replace("D", "U"))
    if role in MAIN:
        if not is_inside:
            of_keys = of_keys or of_queries.translate(AS_GIVEN_K)
            kind = {"memory": "key", "x": "query"}.get(role, role)
            return Slot(kind, {"key": of_keys, "value": of_keys.replace("d", "e")}.get(kind, of_queries))
        of_keys = of_keys or of_queries.replace("T", "S")
        if role == "x":
            return Slot(role, of_queries)
        if role == "memory":
            return Slot(role, of_keys.replace("D", "C"))
        kind = {"query": "q", "key": "k", "value": "v"}[role]
        width = {"q": "D", "k": "C", "v": "E"} if has_params else {"q": "M", "k": "N", "v": "O"}
        return Slot(
            f"{'x' if has_params else 'wide'}_{kind}",
            (of_queries if kind == "q" else of_keys).replace("D", width[kind]),
        )
    return Slot(role)


AS_GIVEN_K = str.maketrans("HT", "GS")
