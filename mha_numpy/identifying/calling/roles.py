"""Which role each argument may have, and each param that an object has itself."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice, pairwise, product
from typing import NamedTuple

from mha_numpy.identifying.calling.arrays import owner_of
from mha_numpy.identifying.calling.evidence import (
    ARRAY,
    DIVISOR,
    FLAT,
    FUNCTION,
    MAP,
    MAPPED,
    NUMBER,
    REPEATS,
    Evidence,
    of_comments,
)
from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.shapes import MAIN, roles_by_shape
from mha_numpy.identifying.calling.signatures import Argument
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.family import AXES

TOKENS = ("query", "wide_q", "x_q", "x", "packed")  # whose rows have outputs
TOKENS_OF = {"w_q": "query", "w_k": "key", "w_v": "value"}
MAP_OF = {tokens: role for role, tokens in TOKENS_OF.items()}
COUNTED = {  # the role of a use, unless a name says one of these
    DIVISOR: ("H", "G", "R", "d", "block", "window"), REPEATS: ("R", "H", "T", "S", "B"),
}  # fmt: skip
MAINS = [  # those that occur together; after the first five, something is missing
    frozenset(each.split())
    for each in ("x", "packed", "query key value", "query memory", "x memory", "query key",
                 "x key value", "x key", "query value", "x value")
]  # fmt: skip
EXCHANGED = {"w_q": "w_k", "w_k": "w_q", "b_q": "b_k", "b_k": "b_q"}
NUMBERS = ("H", "G", "D", "d", "T", "S", "R", "B")  # lengths that a function may ask for; R: H//G
PARAMS = tuple(role for role in AXES if role.startswith(("w_", "b_", "g_")))
SWITCHES = ("is_causal", "training", "flag")
UNNAMED = (  # what an argument may be whose name says nothing
    "query", "key", "value", "x", "memory", "mask", "w_q", "w_k", "w_v", "w_o", "H",
)  # fmt: skip
MAPS = ("w_q", "w_k", "w_v", "w_o", "w_qkv", "w_kv")  # what a map may be
TWO_MAPS = ("w_q", "w_kv", "w_qkv", "w_o", "w_k", "w_v")
ANYTHING = (*UNNAMED, "T", "lengths", "bias", "offset", "other")  # of a name that says it wrongly
ARRAYS = frozenset((*MAIN, *AXES, "padding"))
NO_ARRAYS = (*NUMBERS, *SWITCHES, "window", "block", "rate", "offset", "eps", "base",
             "params")  # fmt: skip
WHOLE = {"bias_table": 2, "sink": 1}  # what an object has itself that is no map; with its rank
OWN_QUERIES = re.compile(  # arrays that an object has itself
    r"(\w*_)?(quer(y|ies)|latents?|seeds?|inducing|probes?|slots|context_vec(tor)?)"
    r"(_(tokens?|vec(tor)?s?|points?))?"
)
OF_KEYS = re.compile(r"k(ey)?s?$|enc|mem|src|ctx|^U|ann", re.I)
OF_BIASES = re.compile(r"bias|(^|[._])b(_?\w)?$", re.I)
OF_NORMS = re.compile(r"norm|\bln(_|\d|\b)", re.I)
NORMALISERS = re.compile(r"soft|norm|prob|act|kernel|weigh", re.I)  # functions of scores
OF_MAPS = ("w", "W", "b")  # a map and its bias, where nothing says of what
OF_PARAMS = ("params", "data", "param")  # what holds them, or one of them
JOINS = re.compile(r"\b(concat|concatenate|cat|hstack|r_)\b")  # of a query and a key, for one map
MOST_OWN = 6  # assignments for each array that may be queries
MOST_ROLES = 60  # assignments that are tried
MOST_SHAPED = 60  # assignments by shapes
MOST_OTHERS = 24  # assignments of arguments without a shape, for one of those with a shape
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
    if "w_a" in hidden.values() and all({*MAIN[:3], "memory"}.isdisjoint(each) for each in main):
        for roles in main if len(main) == 2 else ():  # either may have the keys
            roles += ["query", "memory"]
    yield from _of_own_queries(passed, choices, subject, hidden, is_named=True)
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
        if _main(each) == {"x", "value"}:  # which are queries and keys
            each = tuple("query" if role == "x" else role for role in each)
            arguments = dict(zip(arguments, each, strict=True))
        for own, other in (("key", "value"), ("value", "key")):  # one of them is both
            if _main(each) == {"query", own} and other not in names:
                arguments = {n: "memory" if r == own else r for n, r in arguments.items()}
        yield from (Roles(arguments, each) for each in _either_way(hidden))
    yield from _of_own_queries(passed, choices, subject, hidden, is_named=False)


def _of_own_queries(
    passed: Sequence[Argument], choices: Sequence[list[str]], subject: Subject,
    hidden: Mapping[str, str], *, is_named: bool,
) -> Iterator[Roles]:  # fmt: skip
    """Yield roles where an object has its queries itself, by name or shape: what it takes is keys.

    An additive score needs none at all.
    """
    is_additive = "w_a" in hidden.values() and "w_q" not in hidden.values()
    stored = [dict(hidden)] if is_additive and is_named else []
    for name, array in subject.hidden.items():
        if not 0 < array.ndim < 4 or (OF_BIASES.search(name) and not is_named):
            continue
        is_single = array.ndim == 1 or len(array) == 1 or (array.ndim == 2 and array.shape[1] == 1)
        if bool(OWN_QUERIES.fullmatch(name)) == is_named and (is_single or is_named):
            stored.append({**hidden, name: "x"})
    of_keys = [
        ["memory", *(role for role in ("key", "value") if role in own)] if {*own} & {*MAIN} else own
        for own in choices
    ]
    for own in stored:
        for each in islice(_assignments(of_keys, subject), MOST_OWN):
            if _main([*each, "x"]) in MAINS:
                yield Roles({a.name: role for a, role in zip(passed, each, strict=True)}, own)


def roles_of_shapes(subject: Subject, given: Mapping[str, str]) -> Iterator[tuple[Roles, str]]:
    """Yield roles of what has to be passed that fit the declared shapes, and a layout of tokens."""
    passed = [a for a in subject.arguments if a.is_required or a.name in given or _is_needed(a)]
    choices = {a.name: _roles_of(a, subject, given) for a in passed}
    shapes = {n: subject.shapes[n] for n in choices if n in subject.shapes and n not in given}
    named = {n: [role for role in choices[n] if role in ARRAYS] for n in shapes}
    named = {n: own for n, own in named.items() if not _is_unnamed(choices[n])}
    rest = {name: own for name, own in choices.items() if name not in shapes}
    hidden = hidden_roles(subject)
    first = [own[0] for own in rest.values() if not _is_unnamed(own)]
    every = roles_by_shape(shapes, named) if shapes and not subject.has_pages else ()
    if len(first) == len(rest):
        every = (each for each in every if _main([*each[0].values(), *first]) in MAINS)
    fit = [*islice(every, MOST_SHAPED)]
    if named.keys() < shapes.keys():  # names say which occur together
        fit.sort(key=lambda each: _main([*each[0].values(), *first]) not in MAINS[:5])
    for roles, tokens in fit:
        taken = {*roles.values(), *hidden.values()}
        taken |= {*MAIN} if _main([*roles.values()]) in MAINS[:5] else set()
        others = product(*([role for role in own if role not in taken] for own in rest.values()))
        for each in islice(filter(_is_single, others), MOST_OTHERS):
            whole = {**roles, **dict(zip(rest, each, strict=True))}
            is_inside = "D" in tokens or not any(role[:2] == "w_" for role in whole.values())
            if is_inside and _main([*whole.values()]) in MAINS:
                arguments = {name: whole[name] for name in choices}
                yield from ((Roles(arguments, each), tokens) for each in _either_way(hidden))


def _either_way(hidden: dict[str, str]) -> Iterator[dict[str, str]]:
    """Yield roles of params; of two maps of additive scores, either may be that of the keys."""
    yield hidden
    if "w_a" in hidden.values():
        yield {name: EXCHANGED.get(role, role) for name, role in hidden.items()}


def _is_unnamed(roles: Sequence[str]) -> bool:
    """Return whether roles are those of an argument whose name says nothing."""
    return [*roles[:5]] == [*UNNAMED[:5]]


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
    if subject.evidence[name].kind == FUNCTION:
        return ["softmax" if NORMALISERS.search(name) else "function"]
    roles = _by_words(name, subject.evidence[name])
    if roles[:1] in (["cache_k"], ["cache_v"]) and subject.has_pages:
        return ["key" if roles[0] == "cache_k" else "value"]
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
        roles += MAPS
    if "tanh" in subject.source and (name[:1] in "VvWwUu" or name.endswith("_v")):
        roles = [*roles[:2], "w_a", *(["w_k", "w_q"] if name[0] in "Uu" else [])]
        if JOINS.search(subject.source) and name[0] in "Ww":
            roles.insert(0, "w_qk")
    unnamed = [role for role in UNNAMED if subject.evidence[name].kind != ARRAY or role != "H"]
    return roles or unnamed


def _of_part(argument: Argument, subject: Subject) -> list[str]:
    """Return the roles that something inside an argument may have."""
    roles = [*roles_by_name(argument.word)]
    if roles_by_name(argument.holder)[:1] == ("params",):
        roles = [MAP_OF.get(role, role) for role in roles]
    main = [role for a in subject.arguments for role in roles_by_name(a.word)[:1] if role in MAIN]
    if frozenset(main) not in MAINS or len(main) > len({*main}):
        roles = [role for role in roles if role not in MAIN]  # these are passed otherwise
    if str(argument.path[-1]) in OF_MAPS and not {*roles} & {*PARAMS}:
        roles = [f"{str(argument.path[-1])[0].lower()}_{of}" for of in ("qkv", "q", "o", "k", "v")]
    order = (*PARAMS, "bias_table", *NUMBERS)
    if {*roles} & {*order} and not {*roles} & {*MAIN}:
        roles.sort(key=lambda role: role not in order)
    return [*dict.fromkeys(roles)] or ["other"]


def _by_words(name: str, known: Evidence) -> list[str]:
    """Return the roles that a name and the docstring suggest."""
    is_letter = name in ("A", "B", "C") and known.kind == ARRAY  # no batch, no channels
    roles = [*roles_by_name(name)] if is_telling(name) and not is_letter else []
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
    if known.use in COUNTED and {*roles[:1]}.isdisjoint(COUNTED[known.use]):
        roles = [*dict.fromkeys([COUNTED[known.use][0], *roles])]
    if known.kind in (ARRAY, FLAT):
        roles = [role for role in roles if role not in NO_ARRAYS]
        roles += ["lengths"] if not roles and re.match("n_|num_|len", name) else []
    uses = [each.use for each in subject.evidence.values()]
    if known.use == MAPPED and not roles and uses.count(MAP) >= uses.count(MAPPED):
        roles = ["x", "memory", *MAIN[:3]]
    if known.use == MAP and uses.count(MAP) > 1:
        roles = [role for role in roles if role in (*PARAMS, *MAIN)]
        maps = [MAP_OF[role] for role in roles if role in MAP_OF]
        is_packed = uses.count(MAP) == 2 and "split(" in subject.source
        roles = [*dict.fromkeys([*roles, *maps])] or [*(TWO_MAPS if is_packed else MAPS)]
    if roles[:1] == ["mask"] and _is_added(name, subject):
        roles.insert(0, "bias")
    if known.rank == 2 < max(each.rank for each in subject.evidence.values()):  # a map of tokens
        roles += [role for role in UNNAMED if role[:2] == "w_" and role not in roles]
        roles.sort(key=lambda role: role == "w_g" and len(name) < 3)  # Wf, Wg, Wh are q, k, v
    return roles


def _is_added(name: str, subject: Subject) -> bool:
    """Return whether a mask is added to scores as it is, and nothing says that it is 0 and 1."""
    used = re.search(
        rf"~{name}|where\([^()]*\b{name}|- ?{name}|{name} ?[=!<>]=|_fill", subject.source
    )
    said = re.search(rf"\b{name}\b.*\b(bool|true|false|[01])\b", subject.said, re.I)
    added = re.search(rf"\+=? ?{name}(\[[^]]*\])?\)* *(#.*)?$", subject.source, re.M)
    return bool(added) and not used and not said


def _assignments(choices: Sequence[Sequence[str]], subject: Subject) -> Iterator[tuple[str, ...]]:
    """Yield a role for each argument; two arrays or two lengths never have the same."""
    is_long = len(choices) > 6
    short = [each[: 2 if is_long and len(each) < len(UNNAMED) else 6] for each in choices]
    for roles in islice(product(*short), MOST_TRIED):
        if subject.left < 0:
            return
        if _is_single(roles):
            yield roles


def _is_single(roles: Sequence[str]) -> bool:
    """Return whether no two arrays and no two lengths have the same role."""
    single = [role for role in roles if role in AXES or role in (*MAIN, *NUMBERS)]
    return len(single) == len({*single})


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
    } | _after_both(subject)
    found |= {name: "bias" for name in subject.hidden if name.endswith("]")}
    heads = {n for name, n in subject.numbers.items() if "H" in roles_by_name(name)[:1]}
    for name, array in subject.hidden.items() if "w_a" not in found.values() else ():
        is_room = array.ndim > 2 and not array.any()  # for keys and values of later calls
        if "grad" in name or name in found or is_room:
            continue
        parts = [part for part in re.split("[/.]", name) if part and part not in OF_PARAMS]
        *path, last = [part for part in parts if not part.isdigit()] or parts
        is_kind = last in ("weight", "bias", "kernel", "w", "W", "b", "value") and path
        if {*array.shape} <= heads and (array.ndim == 2 or last == "bias"):  # mixes heads
            continue
        roles = roles_by_name(path[-1] if is_kind else last)
        if OF_NORMS.search(".".join(path)) and not {"g_q", "g_k"} & {*roles}:
            continue
        roles = roles if {*roles} & {*PARAMS} or last != "value" else roles_by_name(last)
        whole = next((r for r, ndim in WHOLE.items() if r in roles and array.ndim == ndim), "")
        whole = whole if not heads or array.shape[-1] in heads else ""
        if whole and whole not in found.values():
            found[name] = whole
            continue
        is_bias = last in ("bias", "b") or array.ndim == 1 or "".join(roles[:1])[:2] == "b_"
        prefix = "b_" if is_bias else "w_"
        fit = [prefix + role[2:] for role in roles if role in PARAMS and role[0] != "g"]
        fit = fit or [role for role in roles if role[:2] == "g_" and last != "bias"]
        if last == "bias" and not fit and not any(role[0] == "g" for role in roles):
            fit = ["b_o"]
        if fit and fit[0] not in found.values():
            found[name] = fit[0]
    if {"w_q", "w_k", "w_qkv", "w_qk"}.isdisjoint(found.values()):
        found |= _stack(subject, found)
    for before, name in pairwise(subject.hidden):  # a bias comes after its map
        role, own = found.get(before, ""), subject.hidden[name].shape
        of_map = combinations(subject.hidden[before].shape, max(subject.hidden[before].ndim - 1, 1))
        is_bias = "b" in name.lower() and own in of_map
        if role[:2] == "w_" and is_bias and f"b_{role[2:]}" not in found.values():
            found.setdefault(name, f"b_{role[2:]}")
    if {"w_q", "w_k", "w_qkv", "w_qk"}.isdisjoint(found.values()):
        known = {name: role for name, role in found.items() if role[:2] == "b_" or role == "w_c"}
        found = known | _in_order(subject, known)
    return found | _last_map(subject, found)


def _last_map(subject: Subject, found: Mapping[str, str]) -> dict[str, str]:
    """Return the only map that is left after those of queries, keys and values, and its bias."""
    if not ({"w_q", "w_k", "w_v"} <= {*found.values()} or "w_qkv" in found.values()):
        return {}
    left = [name for name, x in subject.hidden.items() if name not in found and x.ndim > 1]
    if "w_o" in found.values() or len(left) != 1:
        return {}
    name = re.escape(re.sub(r"\.(weight|kernel)$", "", left[0]).rpartition(".")[2])
    is_used = rf"\b{name}\b.*\bif\b|\bif\b.*\b{name}\b"
    if re.search(is_used, subject.source):  # it belongs to an option
        return {}
    bias = re.sub("(weight|kernel)$", "bias", left[0])
    is_bias = bias != left[0] and bias in subject.hidden
    return {left[0]: "w_o"} | ({bias: "b_o"} if is_bias else {})


def _additive(subject: Subject) -> dict[str, str]:
    """Return the roles of two maps and a vector: ``v @ tanh(w_q @ q + w_k @ k)``."""
    hidden = {name: array for name, array in subject.hidden.items() if array.size > 1}
    maps = [name for name, array in hidden.items() if array.ndim == 2 and 1 not in array.shape]
    others = [name for name in hidden if name not in maps and not OF_BIASES.search(name)]
    is_joined = len(maps) == 1 and bool(JOINS.search(subject.source))
    if "tanh" not in subject.source or len(maps) not in (1, 2) or len(others) != 1:
        return {}
    subject.hidden[others[0]] = hidden[others[0]].ravel()
    if is_joined:
        bias = f"{maps[0].rpartition('.')[0]}.bias"
        return {maps[0]: "w_qk", others[0]: "w_a"} | ({bias: "b_q"} if bias in hidden else {})
    maps.sort(key=lambda name: bool(OF_KEYS.search(name.removesuffix(".weight"))))
    found = {others[0]: "w_a", maps[-1]: "w_k"} | ({maps[0]: "w_q"} if maps[1:] else {})
    biases = ((f"{name.rpartition('.')[0]}.bias", f"b_{found[name][2:]}") for name in maps)
    return found | {name: role for name, role in biases if name in hidden}


def _after_both(subject: Subject) -> dict[str, str]:
    """Return the role of the only map of an output and a query, and that of its bias."""
    maps = []
    for name, array in subject.hidden.items() if JOINS.search(subject.source) else ():
        roles = roles_by_name(re.sub("[./](weight|kernel)$", "", name))
        is_wide = array.ndim == 2 and max(array.shape) == 2 * min(array.shape)
        maps += [name] * (is_wide and {"w_q", "w_k", "w_v", "w_kv"}.isdisjoint(roles))
    if len(maps) != 1:
        return {}
    bias = re.sub("(weight|kernel)$", "bias", maps[0])
    return {maps[0]: "w_c"} | ({bias: "b_o"} if bias != maps[0] and bias in subject.hidden else {})


def _stack(subject: Subject, found: Mapping[str, str]) -> dict[str, str]:
    """Return the role of the only array that is three maps of one width."""
    arrays = subject.hidden.items()
    stacks = [name for name, x in arrays if x.ndim == 3 and len(x) == 3 and name not in found]
    is_one = len(stacks) == 1 and len({*subject.hidden[stacks[0]].shape[1:]}) == 1
    return {stacks[0]: "w_qkv"} if is_one else {}


def _in_order(subject: Subject, known: Mapping[str, str]) -> dict[str, str]:
    """Return the roles of params whose names say nothing, as in a list of maps."""
    maps = [name for name, x in subject.hidden.items() if x.ndim == 2 and name not in known]
    if len(maps) not in (1, 3, 4):
        return {}
    found = {}
    is_packed = len(maps) == 1 and max(subject.hidden[maps[0]].shape) == 3 * min(
        subject.hidden[maps[0]].shape
    )
    for name, letter in zip(maps, ["qkv"] if is_packed else "qkvo", strict=False):
        found[name] = f"w_{letter}"
        bias = name.removesuffix("weight").removesuffix("kernel") + "bias"
        biases = [bias] if bias in subject.hidden else _biases_beside(subject, name)
        found |= dict.fromkeys(biases[:1], f"b_{letter}")
    return found


def _biases_beside(subject: Subject, name: str) -> list[str]:
    """Return the names of biases that have the number of a map: ``b.0`` is that of ``W.0``."""
    stem, _, number = name.rpartition(".")
    return [
        other
        for other, array in subject.hidden.items()
        if stem and number.isdigit() and other.rpartition(".")[::2] != (stem, number)
        and other.rpartition(".")[2] == number and array.ndim == 1
        and OF_BIASES.search(other.rpartition(".")[0])
    ]  # fmt: skip
