"""Which role each argument may have, and each param that an object has itself."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise, product
from typing import NamedTuple

from mha_numpy.identifying.calling.arrays import owner_of
from mha_numpy.identifying.calling.evidence import ARRAY, FLAT, NUMBER, Evidence, of_comments
from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.signatures import Argument
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.family import AXES

MAIN = ("query", "key", "value", "x", "memory", "packed")  # in their usual order
TOKENS = ("query", "wide_q", "x_q", "x", "packed")  # whose rows have outputs
TOKENS_OF = {"w_q": "query", "w_k": "key", "w_v": "value"}
MAINS = [  # those that occur together; after the first five, something is missing
    frozenset(each.split())
    for each in ("x", "packed", "query key value", "query memory", "x memory", "query key",
                 "x key value", "x key", "query value")
]  # fmt: skip
NUMBERS = ("H", "G", "D", "d", "T", "S", "R", "B")  # lengths that a function may ask for; R: H//G
PARAMS = tuple(role for role in AXES if role.startswith(("w_", "b_", "g_")))
SWITCHES = ("is_causal", "training", "flag")
UNNAMED = (  # what an argument may be whose name says nothing
    "query", "key", "value", "x", "memory", "mask", "w_q", "w_k", "w_v", "w_o", "H",
)  # fmt: skip
ANYTHING = (*UNNAMED, "T", "lengths", "bias", "offset", "other")  # of a name that says it wrongly
NO_ARRAYS = (*NUMBERS, *SWITCHES, "window", "block", "rate", "offset", "eps", "base",
             "params")  # fmt: skip
WHOLE = {"bias_table": 2, "sink": 1}  # what an object has itself that is no map; with its rank
OF_NORMS = re.compile(r"norm|\bln(_|\d|\b)", re.I)
OF_PARAMS = ("params", "data", "param")  # what holds them, or one of them
JOINS = re.compile(r"\b(concat|concatenate|cat|hstack|r_)\b")  # of a query and a key, for one map
MOST_ROLES = 60  # assignments that are tried
MOST_TRIED = 200_000  # that are looked at, so that a function of many arguments takes no minute


class Roles(NamedTuple):
    """A role for each argument, and for the params that the function has itself."""

    arguments: dict[str, str]
    hidden: dict[str, str]

    def all(self) -> set[str]:
        """Return every role that something has."""
        return {*self.passed(), *self.hidden.values()}

    def passed(self) -> set[str]:
        """Return every role that an argument has."""
        return {*self.arguments.values()}


def find_roles(
    subject: Subject, given: Mapping[str, str], doubt: bool = False, is_cached: bool = False
) -> Iterator[Roles]:
    """Yield roles of what has to be passed, the likeliest first; `doubt` forgets one name.

    If `is_cached`, caches are passed that may be left out, if there are any.
    """
    passed = [a for a in subject.arguments if a.is_required or a.name in given]
    caches = [a for a in subject.arguments if a not in passed and _is_cache(a)]
    if is_cached and not caches:
        return
    passed += caches if is_cached else []
    passed += [a for a in subject.arguments if a not in passed and _is_needed(a)]
    choices = [_roles_of(argument, subject, given) for argument in passed]
    if not any({*each} & {*TOKENS} for each in choices):  # what a map has made is tokens, too
        choices = [[*(TOKENS_OF[r] for r in own if r in TOKENS_OF), *own] for own in choices]
    main = [each for each in choices if {*each} & {*MAIN}]
    if len(main) == 1 and "query" in main[0]:  # keys and values default to it
        main[0].insert(0, "x")
    hidden = hidden_roles(subject)
    stored = {*hidden.values()}
    choices = [[role for role in own if role not in stored] or own for own in choices]
    lists = [choices]
    if doubt:
        lists += [
            [*choices[:at], [role for role in ANYTHING if role not in own], *choices[at + 1 :]]
            for at, own in enumerate(choices)
            if passed[at].name not in given
        ]
    complete = {
        each: _oddness(each, own)
        for own in lists
        for each in _assignments(own, subject)
        if _main(each) in MAINS
    }
    names = {argument.name for argument in subject.arguments}
    for each in sorted(complete, key=complete.__getitem__)[:MOST_ROLES]:
        arguments = dict(zip([a.name for a in passed], each, strict=True))
        for own, other in (("key", "value"), ("value", "key")):  # one of them is both
            if _main(each) == {"query", own} and other not in names:
                arguments = {n: "memory" if r == own else r for n, r in arguments.items()}
        yield Roles(arguments, hidden)


def is_telling(name: str) -> bool:
    """Return whether a name says which role an argument has."""
    return bool(roles_by_name(name)) and name not in ("a", "b", "c")


def _is_cache(argument: Argument) -> bool:
    return roles_by_name(argument.word)[:1] in (("cache_k",), ("cache_v",))


def _is_needed(argument: Argument) -> bool:
    """Return whether an argument has to be passed although it has a default."""
    role = next(iter(roles_by_name(argument.word)), "")
    kind = type(argument.default)
    return (
        (role in ("H", "G") and kind is not bool)
        or (role == "rate" and kind is float)
        or (role == "block" and kind is int)
        or (role == "eps" and kind is float)
        or (role in ("cos", "sin") and bool(argument.holder))
    )


def _roles_of(argument: Argument, subject: Subject, given: Mapping[str, str]) -> list[str]:
    """Return the roles that an argument may have, the likeliest first."""
    name, annotation = argument.name, argument.annotation.lower()
    if name in given:
        return [given[name]]
    if argument.holder:
        return _of_part(argument, subject)
    if name == "key" and any(other.name == "k" for other in subject.arguments):
        return ["rng"]  # as JAX calls it
    roles = _by_words(name, subject.evidence[name])
    if "int" in annotation and "array" not in annotation:
        return [r for r in roles if r in (*NUMBERS, "window", "block", "offset")] or ["H"]
    if "bool" in annotation and "array" not in annotation:
        return [r for r in roles if r in SWITCHES] or ["flag"]
    roles = _by_source(name, roles, subject)
    if "x" in roles:
        roles.append("packed")
    if "bias" in roles and sum("bias" in roles_by_name(a.name) for a in subject.arguments) > 1:
        roles.insert(1, "more_bias")
    if given and {*roles} & {*AXES, *MAIN}:  # what is given may leave it another role
        roles += [role for role in MAIN[:3] if role not in (*roles, *given.values())]
    if not roles and name[:1] in "Ww" and len(name) < 4:
        roles += ["w_q", "w_k", "w_v", "w_o", "w_qkv"]
    if "tanh" in subject.source and name[:1] in "VvWwUu":
        roles = [*roles[:2], "w_a", *(["w_k", "w_q"] if name[0] in "Uu" else [])]
        if JOINS.search(subject.source) and name[0] in "Ww":
            roles.insert(0, "w_qk")
    return roles or [*UNNAMED]


def _of_part(argument: Argument, subject: Subject) -> list[str]:
    """Return the roles that something inside an argument may have."""
    roles = [*roles_by_name(argument.word)]
    main = [role for a in subject.arguments for role in roles_by_name(a.word)[:1] if role in MAIN]
    if frozenset(main) not in MAINS or len(main) > len({*main}):
        roles = [role for role in roles if role not in MAIN]  # these are passed otherwise
    order = (*PARAMS, "bias_table", *NUMBERS)
    if {*roles} & {*order} and not {*roles} & {*MAIN}:
        roles.sort(key=lambda role: role not in order)
    return [*dict.fromkeys(roles)] or ["other"]


def _by_words(name: str, known: Evidence) -> list[str]:
    """Return the roles that a name and the docstring suggest."""
    roles = [*roles_by_name(name)] if is_telling(name) else []
    if not roles or len(name) < 3 or roles[0] in ("x", "memory"):  # what any array may be called
        roles = [*dict.fromkeys([*known.roles, *roles])]
    if roles[:1] and roles[0] in MAIN:
        roles = [role for role in roles if role not in PARAMS]
    if len(name) < 3 and name.isupper():  # B, T, C: lengths, as in C
        roles.sort(key=lambda role: role not in NUMBERS)
    return roles


def _by_source(name: str, roles: list[str], subject: Subject) -> list[str]:
    """Return those of the roles that the source leaves, and others that it suggests."""
    known = subject.evidence[name]
    if known.kind == NUMBER:
        roles = [role for role in roles if role not in AXES and role not in MAIN] or [*NUMBERS]
    if known.kind in (ARRAY, FLAT):
        roles = [role for role in roles if role not in NO_ARRAYS]
        roles += ["lengths"] if not roles and re.match("n_|num_|len", name) else []
    if known.rank == 2 < max(each.rank for each in subject.evidence.values()):  # a map of tokens
        roles += [role for role in UNNAMED if role[:2] == "w_" and role not in roles]
        roles.sort(key=lambda role: role == "w_g" and len(name) < 3)  # Wf, Wg, Wh are q, k, v
    return roles


def _assignments(choices: Sequence[Sequence[str]], subject: Subject) -> Iterator[tuple[str, ...]]:
    """Yield a role for each argument; two arrays or two lengths never have the same."""
    is_long = len(choices) > 6
    short = [each[: 2 if is_long and len(each) < len(UNNAMED) else 6] for each in choices]
    for roles in islice(product(*short), MOST_TRIED):
        if subject.left < 0:
            return
        single = [role for role in roles if role in AXES or role in (*MAIN, *NUMBERS)]
        if len(single) == len({*single}):
            yield roles


def _main(roles: Sequence[str]) -> frozenset[str]:
    return frozenset(role for role in roles if role in MAIN)


def _oddness(roles: Sequence[str], choices: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Return how unlikely roles are: by the names first, then by the order of arguments."""
    ranks = [each.index(role) for role, each in zip(roles, choices, strict=True)]
    order = [MAIN.index(role) for role in roles if role in MAIN]
    falls = sum(a > b for a, b in pairwise(order))
    return 2 * (_main(roles) not in MAINS[:5]) + sum(ranks), falls


def hidden_roles(subject: Subject) -> dict[str, str]:
    """Return the roles of the params that a function has itself, by their names."""
    said = of_comments(type(owner_of(subject.function)), [*subject.hidden])
    found = _additive(subject) or {
        name: f"w_{roles[0][0]}"
        for name, roles in said.items()
        if roles[0] in ("query", "key", "value")
    }
    found |= {name: "bias" for name in subject.hidden if name.endswith("]")}
    for name, array in subject.hidden.items() if "w_a" not in found.values() else ():
        if "grad" in name or name in found:
            continue
        parts = [part for part in re.split("[/.]", name) if part and part not in OF_PARAMS]
        *path, last = [part for part in parts if not part.isdigit()] or parts
        is_kind = last in ("weight", "bias", "kernel", "w", "W", "b", "value") and path
        roles = roles_by_name(path[-1] if is_kind else last)
        if OF_NORMS.search(".".join(path)) and not {"g_q", "g_k"} & {*roles}:
            continue
        roles = roles if {*roles} & {*PARAMS} or last != "value" else roles_by_name(last)
        whole = next((r for r, ndim in WHOLE.items() if r in roles and array.ndim == ndim), "")
        if whole and whole not in found.values():
            found[name] = whole
            continue
        prefix = "b_" if last in ("bias", "b") or array.ndim == 1 else "w_"
        fit = [prefix + role[2:] for role in roles if role in PARAMS and role[0] != "g"]
        fit = fit or [role for role in roles if role[:2] == "g_" and last != "bias"]
        if last == "bias" and not fit and not any(role[0] == "g" for role in roles):
            fit = ["b_o"]
        if fit and fit[0] not in found.values():
            found[name] = fit[0]
    for before, name in pairwise(subject.hidden):  # a bias comes after its map
        role, own = found.get(before, ""), subject.hidden[name].shape
        is_bias = "b" in name.lower() and own in [(n,) for n in subject.hidden[before].shape]
        if role[:2] == "w_" and is_bias and f"b_{role[2:]}" not in found.values():
            found.setdefault(name, f"b_{role[2:]}")
    found = found if {"w_q", "w_k", "w_qkv", "w_qk"} & {*found.values()} else _in_order(subject)
    return found | _last_map(subject, found)


def _last_map(subject: Subject, found: Mapping[str, str]) -> dict[str, str]:
    """Return the only map that is left after those of queries, keys and values, and its bias."""
    if not ({"w_q", "w_k", "w_v"} <= {*found.values()} or "w_qkv" in found.values()):
        return {}
    left = [name for name, x in subject.hidden.items() if name not in found and x.ndim > 1]
    if "w_o" in found.values() or len(left) != 1:
        return {}
    bias = re.sub("(weight|kernel)$", "bias", left[0])
    is_bias = bias != left[0] and bias in subject.hidden
    return {left[0]: "w_o"} | ({bias: "b_o"} if is_bias else {})


def _additive(subject: Subject) -> dict[str, str]:
    """Return the roles of two maps and a vector: ``v @ tanh(w_q @ q + w_k @ k)``."""
    hidden = {name: array for name, array in subject.hidden.items() if array.size > 1}
    maps = [name for name, array in hidden.items() if array.ndim == 2 and 1 not in array.shape]
    others = [name for name in hidden if name not in maps and "bias" not in name]
    is_joined = len(maps) == 1 and bool(JOINS.search(subject.source))
    if "tanh" not in subject.source or len(maps) != 2 - is_joined or len(others) != 1:
        return {}
    subject.hidden[others[0]] = hidden[others[0]].ravel()
    if is_joined:
        bias = f"{maps[0].rpartition('.')[0]}.bias"
        return {maps[0]: "w_qk", others[0]: "w_a"} | ({bias: "b_q"} if bias in hidden else {})
    maps.sort(key=lambda name: "w_k" in roles_by_name(name.removesuffix(".weight")))
    found = {maps[0]: "w_q", maps[1]: "w_k", others[0]: "w_a"}
    biases = ((f"{name.rpartition('.')[0]}.bias", f"b_{found[name][2:]}") for name in maps)
    return found | {name: role for name, role in biases if name in hidden}


def _in_order(subject: Subject) -> dict[str, str]:
    """Return the roles of params whose names say nothing, as in a list of maps."""
    maps = [name for name, array in subject.hidden.items() if array.ndim == 2]
    if len(maps) not in (1, 3, 4):
        return {}
    found = {}
    is_packed = len(maps) == 1 and max(subject.hidden[maps[0]].shape) == 3 * min(
        subject.hidden[maps[0]].shape
    )
    for name, letter in zip(maps, ["qkv"] if is_packed else "qkvo", strict=False):
        found[name] = f"w_{letter}"
        bias = name.removesuffix("weight").removesuffix("kernel") + "bias"
        if bias in subject.hidden:
            found[bias] = f"b_{letter}"
    return found
