"""The ways to call a function: which argument has which role, and in which layout."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.calling.chance import is_kept
from mha_numpy.identifying.calling.clock import clock
from mha_numpy.identifying.calling.evidence import FLAT
from mha_numpy.identifying.calling.layouts import (
    HEADS_GIVEN,
    HEADS_INSIDE,
    LAYOUTS,
    OF_HEADS,
    OF_LAYERS,
    PACKED,
    PARAM_LAYOUTS,
    RARE_GIVEN,
    RARE_INSIDE,
    ROWS,
    arrange,
    param_layout,
    parts_of_axis,
)
from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.roles import (
    NUMBERS,
    PARAMS,
    TOKENS,
    Roles,
    find_roles,
    roles_of_shapes,
)
from mha_numpy.identifying.calling.shapes import MAIN, fit_shapes
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.family import AXES, Problem, Sizes
from mha_numpy.identifying.family.problem import draw


def softmax(scores: Any, *_: Any, **__: Any) -> Any:
    """Return the softmax over the last axis, of any framework."""
    most = scores.max(-1)
    exps = math.e ** (scores - getattr(most, "values", most)[..., None])
    return exps / exps.sum(-1)[..., None]


ALL_VISIBLE = (  # functions of the indices of cells, the key last, whatever True means
    lambda *at: at[-1] == at[-1],
    lambda *at: at[-1] != at[-1],
)
CHOICES: dict[str, tuple[Any, ...]] = {  # what to pass for a role: the first fits most functions
    "rate": (0.0, 1.0, 0.25), "training": (False,), "flag": (False,), "is_causal": (False,),
    "eps": (1e-12,), "block": (2, 1), "softcap": (1.5,), "window": (3, (2, 1), (2, 0)),
    "offset": (3, 2, 0), "other": (None, 1.0), "rng": ("rng", 0, None), "scale": (0.4,),
    "slopes": (0.4,), "rotary": (4,),
    "base": (100.0,), "function": (lambda *given: given[0],), "softmax": (softmax,),
}  # fmt: skip
SETTING_ROLES = ("scale", "softcap", "window", "offset", "base", "is_causal", "block", "slopes",
                 "rotary")  # fmt: skip
PAGE = 2  # rows of a page, as the first size of blocks
OF_CELLS = ("mask", "more_mask", "bias", "more_bias", "dropout_mask")
SEGMENTS = ("segments", "q_segments")
OF_ROWS = ("positions", "k_positions", *SEGMENTS)
CACHES = ("", "room", "list")
KINDS = {"mask": ("bool", "int", "float"), "cache_k": CACHES, "cache_v": CACHES}
PAIRED = (  # arrays that have one layout
    ("cache_k", "cache_v"), ("cos", "sin"), SEGMENTS, ("k_positions", "positions"),
)  # fmt: skip
MOST_ROLES = 40  # by declared shapes; for each a number of ways, and the seconds to find them
MOST_SHAPED = 6
SECONDS = 0.3
MOST_OPTIONS = 200  # ways to give everything that is neither tokens nor params
SHARED = ("d", "d d", "e e")  # params that are the same for each head
OF_OWN = ("T D|B S D", "T D|S D", "T D|S B D")  # of queries that an object has itself
ROUND = {"T": 16, "S": 16, "d": 32, "e": 32}
HEADS = (1, 2, 4, 3, 6, 8, 12, 16)  # numbers of heads that are tried where nothing says one


class Slot(NamedTuple):
    """What an argument is given: the array of a role in a layout, or a value."""

    role: str
    layout: str = ""
    value: Any = None
    kind: str = ""  # "bool", "int" or "float": the numbers of a mask; "room", "list", "reversed"


class Way(NamedTuple):
    """A way to call a function."""

    slots: dict[str, Slot]  # by argument
    hidden: dict[str, Slot]  # by the name of a param that the function has itself
    sizes: Sizes
    is_inside: bool  # the function splits the width into heads

    def roles(self) -> dict[str, str]:
        """Return the layout by role, of everything that is an array."""
        slots = [*self.slots.values(), *self.hidden.values()]
        return {slot.role: slot.layout for slot in slots if slot.layout or slot.role == "lengths"}

    def argument(self, role: str) -> str:
        """Return the argument that has a role, "" if none has."""
        return next((name for name, slot in self.slots.items() if slot.role == role), "")

    @property
    def is_self(self) -> bool:
        """Whether queries, keys and values come from the same tokens."""
        roles = self.roles().keys()
        return bool({"x", "packed"} & roles) and not {"memory", "x_k"} & roles

    def problem(self, subject: Subject, seed: int = 0) -> Problem:
        """Draw a problem that the function can be given."""
        rng = np.random.default_rng(seed)
        layouts = self.roles()
        given: dict[str, Any] = {
            role: _cut(role, draw(role, self.sizes, rng), layouts[role])
            for role in AXES
            if role in layouts
        }
        for name, slot in self.hidden.items():
            given[slot.role] = _back(subject.hidden[name], slot, self.sizes)
        given |= {
            slot.role: not slot.value if slot.kind == "reversed" else slot.value
            for slot in self.slots.values()
            if slot.role in SETTING_ROLES and slot.value is not None
        }
        return Problem(self.sizes, given | {"norm_eps": subject.norm_eps})

    def given(self, problem: Problem) -> dict[str, Any]:
        """Return what to pass for each argument."""
        return {name: _fill(slot, problem) for name, slot in self.slots.items()}


def _cut(role: str, array: Array, layout: str) -> Array:
    """Keep one index of the axes that a layout leaves out: all of them share it."""
    if role in TOKENS and not {"B", "n"} & {*layout.split()}:
        return array[:1]
    if role in (*OF_CELLS, *OF_ROWS):
        for at, axis in enumerate(AXES[role].split()):
            if axis not in layout.split():
                array = array.take([0], at)
    return array


def _fill(slot: Slot, problem: Problem) -> Any:
    """Return what to pass for a slot."""
    if slot.role in ("result", "d_out"):
        drawn = np.random.default_rng(5).normal(size=problem.sizes.shape(slot.layout))
        drawn = drawn * (slot.role == "d_out")
        return drawn.ravel() if slot.kind == FLAT else drawn
    if slot.role == "lengths" and not slot.layout:
        return int(problem.given["lengths"][0])
    if slot.role == "lengths" and slot.layout == "B T":  # one for each query
        return np.repeat(problem.given["lengths"][:, None], problem.sizes.T, 1)
    if slot.role == "params":  # a call says which
        return {}
    if slot.role == "pages":
        return _pages(problem.sizes) if slot.kind == "rows" else _pages(problem.sizes)[0]
    if slot.role in NUMBERS:
        return number_of(slot.role, problem.sizes)
    if not slot.layout:
        return slot.value
    array = arrange(problem.given[slot.role], AXES[slot.role], slot.layout, problem.sizes)
    if slot.kind == "room":
        room = problem.sizes.S + 1
        return np.pad(array, [(0, room * (axis == "Z")) for axis in slot.layout.split()])
    if slot.kind == "pages":
        return _in_pages(array, slot.layout.split(), problem.sizes)
    if slot.kind == "edges":  # from each key to the queries that see it
        return np.stack(np.nonzero(array.T))
    if slot.kind == FLAT:
        return array.ravel()
    if slot.kind == "list":
        return [*array]
    if slot.kind == "ends":  # where each segment begins, and the end
        return np.searchsorted(array, np.arange(array.min(), array.max() + 2))
    return array.astype({"int": np.int64, "float": float}.get(slot.kind, array.dtype))


def _pages(sizes: Sizes) -> Array:
    """Return which pages have the keys of each sequence, in an order that is not their own."""
    count = sizes.B * max(-(-sizes.S // PAGE), 1)
    return np.arange(count)[::-1].reshape(sizes.B, -1)


def _in_pages(array: Array, layout: list[str], sizes: Sizes) -> Array:
    """Return keys or values in pages of some rows each; sequences share no page."""
    array = array if "B" in layout else array[None]
    at = layout.index("S") + ("B" not in layout)
    table = _pages(sizes)
    room = [(0, (table.shape[1] * PAGE - n) * (axis == at)) for axis, n in enumerate(array.shape)]
    parts = np.split(np.pad(array, room), table.shape[1], axis=at)
    pages = np.stack(parts, 1).reshape(-1, *parts[0].shape[1:])
    return pages[np.argsort(table.ravel())]


def number_of(role: str, sizes: Sizes) -> int:
    """Return a length; R is the number of query heads in a group."""
    return sizes.H // sizes.G if role == "R" else sizes.of(role)


def _back(array: Array, slot: Slot, sizes: Sizes) -> Array:
    """Return a param of the function with the axes of its role."""
    if slot.layout in SHARED and slot.role[:2] != "g_":
        heads = sizes.H if slot.role[2] == "q" else sizes.G
        return np.kron(np.eye(heads), array.T) if array.ndim == 2 else np.tile(array, heads)
    if slot.role == "bias":
        return array.transpose(2, 0, 1)[None].astype(float)
    if slot.role == "x":  # the same queries for all sequences
        return array.reshape(1, sizes.T, -1).astype(float)
    have, wanted = slot.layout.replace(" 1", "").split(), AXES[slot.role].split()
    array = array.reshape(
        [n for n, axis in zip(array.shape, slot.layout.split(), strict=True) if axis != "1"]
    )
    if len(have) == len(wanted) and array.ndim == len(have):
        return array.transpose([have.index(axis) for axis in wanted]).astype(float)
    split = [[axis] if axis in have else parts_of_axis(axis, have) for axis in wanted]
    order = [have.index(part) for parts in split for part in parts]
    return array.transpose(order).reshape(sizes.shape(AXES[slot.role])).astype(float)


def find_ways(
    subject: Subject, given: Mapping[str, str], doubt: bool = False, is_cached: bool = False
) -> Iterator[Way]:
    """Yield ways to call a function, the likeliest first: those that its shapes declare."""
    known: set[str] = set()
    for way in _every_way(subject, given, doubt, is_cached):
        key = repr(way)
        if key not in known and _has_its_tokens(way):
            known.add(key)
            yield way


def _has_its_tokens(way: Way) -> bool:
    """Return whether a number of tokens that is passed belongs to an axis of something."""
    slots = way.slots.values()
    is_counted = any(slot.role == "T" for slot in slots)
    return not is_counted or any("T" in slot.layout.split() for slot in slots)


def _every_way(
    subject: Subject, given: Mapping[str, str], doubt: bool, is_cached: bool
) -> Iterator[Way]:
    """Yield ways, some of them twice."""
    is_of_token = subject.feeding == "d"  # what is said of shapes is said of one token
    if subject.shapes and not doubt and not is_cached and not is_of_token:
        yield from _shaped_ways(subject, given)
    for is_round in (True, False) if doubt else (False,):  # some functions want whole tiles
        for tokens in ((*HEADS_GIVEN, *HEADS_INSIDE), (*RARE_GIVEN, *RARE_INSIDE)):
            for roles in find_roles(subject, given, doubt and not is_round, is_cached):
                yield from _ways_of(subject, roles, ROUND if is_round else {}, tokens)


def _shaped_ways(subject: Subject, given: Mapping[str, str]) -> Iterator[Way]:
    """Yield the ways that fit the declared shapes, some of each assignment of roles."""
    later: list[Way] = []
    for roles, tokens in islice(roles_of_shapes(subject, given), MOST_ROLES):
        fitting: list[tuple[int, Way]] = []
        until = clock() + SECONDS
        for at, way in enumerate(_ways_of(subject, roles, {}, (tokens,))):
            layouts = {name: slot.layout for name, slot in way.slots.items()}
            cost = fit_shapes(subject.shapes, layouts)
            fitting += [] if cost is None else [(cost, way)]
            if at % 32 == 0 and clock() > until:
                break
        least = min((cost for cost, _ in fitting), default=0)
        best = [way for cost, way in fitting if cost == least]
        yield from best[:MOST_SHAPED]
        later += best[MOST_SHAPED : 6 * MOST_SHAPED]
    yield from later


def _ways_of(
    subject: Subject, roles: Roles, changed: Mapping[str, int], layouts: Sequence[str]
) -> Iterator[Way]:
    """Yield the ways that give arguments these roles, with some lengths changed."""
    of_inside = tuple(each for each in layouts if "D" in each)
    of_given = tuple(each for each in layouts if "D" not in each)
    every, given = roles.all(), roles.passed()
    is_split = bool(every & {"x", "packed", "w_q", "w_k", "w_v", "w_qkv", "w_qk", "w_c"})
    is_split |= "H" in given and not given & {"B", "T", "S", "d"}  # with these it is as in C
    has_count = any("H" in roles_by_name(name)[:1] for name in subject.numbers)  # it splits by it
    insides = (True,) if is_split else (True, False) if has_count else (False, True)
    tokens: tuple[str, ...] = of_inside[:1] if "packed" in given else of_inside
    if not given & {"key", "value", "memory", "cache_k"}:  # a single token would see itself alone
        tokens = tuple(layout for layout in tokens if "1" not in layout or "T" in layout)
    if not given & {*TOKENS}:  # an object has its queries itself
        tokens = OF_OWN
    own_params = [role for role in PARAMS if role in every]
    known = PARAM_LAYOUTS if roles.hidden else PARAM_LAYOUTS[: -len(OF_LAYERS)]
    if len(layouts) > len(HEADS_GIVEN):  # all usual ones: maps of a single key head are too rare
        known = tuple(of for of in known if "|" not in of[0])
    rows = {"K": subject.buckets} if subject.buckets and "bias_table" in given else {}
    laid_out: dict[tuple[str, ...], tuple[str, str]] = {}
    for of in known:
        laid_out.setdefault(tuple(param_layout(role, of) for role in own_params), of)
    for is_odd, options in product((False, True), [*_options(roles)]):
        for of_params, inside in product(laid_out.values(), insides):
            for sizes in _sizes(subject, roles, inside, of_params):
                for layout in tokens if inside else of_given:
                    if "H" in given and not (inside or "H" in layout):  # one head needs no number
                        continue
                    of_queries, _, of_keys = layout.partition("|")
                    if is_odd == (of_keys not in ("", of_queries)):  # keys are laid out otherwise
                        own = sizes._replace(**rows, **changed)
                        yield from _way(subject, roles, options, own, layout, of_params, inside)


def _options(roles: Roles) -> Iterator[dict[str, Slot]]:
    """Yield ways to give the arguments that are neither tokens nor params nor lengths."""
    names = [
        n for n, role in roles.arguments.items() if role in (*LAYOUTS, *CHOICES, "padding", "pages")
    ]
    choices = {name: variants(roles.arguments[name], name) for name in names}
    for name in names if {"mask", "bias"} & roles.passed() else ():  # which fit if none came before
        choices[name].sort(key=lambda slot: slot.role == "offset" and slot.value != 0)
    for name in names if "offset" in roles.passed() else ():  # where JAX would clamp it
        choices[name].sort(key=lambda slot: slot.kind == "")
    all_slots = product(*choices.values())
    for slots in islice(filter(_are_alike, all_slots), MOST_OPTIONS):
        yield dict(zip(names, slots, strict=True))


AS_KEYS = str.maketrans("eT", "dS")


def _are_alike(options: Iterable[Slot]) -> bool:
    """Return whether arrays that come in pairs have the same layout."""
    layouts = {slot.role: (slot.layout.translate(AS_KEYS), slot.kind) for slot in options}
    is_shifted = "cache_k" in layouts and any(s.role == "offset" and s.value != 2 for s in options)
    alike = all(layouts[a] == layouts[b] for a, b in PAIRED if {a, b} <= layouts.keys())
    return alike and not is_shifted  # new tokens come after the cache


def variants(role: str, name: str = "") -> list[Slot]:
    """Return the ways to give an option."""
    if role == "rate" and is_kept(name):
        return [Slot(role, value=value) for value in (1.0, 0.25)]
    values = [Slot(role, value=value) for value in CHOICES.get(role, ())]
    if role == "function" and {*roles_by_name(name.rsplit("_", 1)[0])} & {"mask", "padding"}:
        values = [Slot(role, value=value) for value in ALL_VISIBLE]
    layouts = {"padding": ROWS, "scale": OF_HEADS}.get(role) or LAYOUTS.get(role, ())
    role = "mask" if role == "padding" else role
    if role == "pages":
        return [Slot(role, kind=kind) for kind in ("rows", "row")]
    if role == "mask" and name.startswith("edge"):
        return [Slot(role, "T S", kind="edges")]
    kinds = KINDS.get(role, ("ends",) if role in SEGMENTS and name.startswith("cu") else ("",))
    return values + [Slot(role, layout, kind=kind) for kind in kinds for layout in layouts]


def _sizes(
    subject: Subject, roles: Roles, is_inside: bool, of_params: tuple[str, str]
) -> Iterator[Sizes]:
    """Yield sizes that a function may accept."""
    given = roles.passed()
    asks_for_groups = any({"G", "R"} & {*roles_by_name(n)[:1]} for n in subject.numbers)
    G = 2 if given & {"G", "R"} or asks_for_groups else 4
    S = 7 if given & {"memory", "key", "value"} else 5  # T = 5 where queries are keys, too
    own = {roles_by_name(name)[:1]: int(n) for name, n in subject.numbers.items()}
    if not is_inside:
        d = own.get(("d",), 0)
        yield from [Sizes(G=G, d=d, e=d), Sizes(G=G, d=d, e=d, S=5)] if d > 1 else []
        yield from (Sizes(G=G), Sizes(G=G, e=8), Sizes(G=G, e=8, S=5))
    elif roles.hidden:
        T = 5 if given & {*TOKENS} else 1  # of a query that an object has itself
        yield from _hidden_sizes(subject, roles.hidden, T, S, of_params)
    else:
        for H, kv in _heads(subject, "H" in given, G, of_params):
            for keys, D in product(dict.fromkeys((S, 5)), dict.fromkeys((own.get(("D",), 0), 0))):
                yield Sizes(H=H, G=kv, e=8, S=keys, D=D)


def _heads(
    subject: Subject, is_given: bool, G: int, of_params: tuple[str, str]
) -> list[tuple[int, int]]:
    """Return numbers of query heads and of key/value heads."""
    if is_given:
        return [(4, G)] if G == 2 else [(4, 4), (4, 1)]
    if "H" in of_params[0].split():
        return [(4, 1 if "|" in of_params[0] else 4)]
    own = [int(n) for n in subject.constants() if n in HEADS and n > 1]
    named = [int(n) for name, n in subject.numbers.items() if "H" in roles_by_name(name)[:1]]
    return [*dict.fromkeys([(1, 1), (4, G), *((n, n) for n in own), *((n, 1) for n in named)])]


def _hidden_sizes(
    subject: Subject, hidden: Mapping[str, str], T: int, S: int, of_params: tuple[str, str]
) -> Iterator[Sizes]:
    """Yield sizes that fit the params that a function has itself."""
    whole = {n: int(v) for n, v in subject.numbers.items() if v == int(v)}
    named: dict[str, int] = {}
    heads: list[int] = []
    for name, number in whole.items():
        role = next((role for role in roles_by_name(name) if role in NUMBERS), "")
        named.setdefault(role, number)
        heads += [number] if role == "H" and name != "hd" else []  # that may be a width, too
    lengths: dict[str, int] = {}
    for name, role in hidden.items():
        axes, shape = _stored(subject, name, role, of_params).split(), subject.hidden[name].shape
        if len(axes) != len(shape):
            return
        lengths |= dict(zip(axes, shape, strict=True))
    for axis in "DC" if {"L", "Y"} & lengths.keys() else "":
        lengths.setdefault(axis, (lengths.get("L") or lengths["Y"]) // 2)
    D, C, W = lengths.get("D", 0), lengths.get("C", lengths.get("E", 0)), lengths.get("W", 0)
    wide = lengths.get("M") or lengths.get("U", 0)
    if "H" not in named and "d" in named and wide:
        named["H"] = wide // named["d"]
    lengths |= {"H": 1} if "w_a" in hidden.values() else {}
    heads = [lengths["H"]] if "H" in lengths else heads or [named.get("H", 0), *whole.values()]
    fitting = [n for n in heads if n > 0 and (wide or D or C) % n == 0]
    fitting = [*fitting, *([1] if "H" not in {*named, *lengths} else [])] if fitting else [*HEADS]
    for H in dict.fromkeys(n for n in fitting if (wide or D or C) % n == 0):
        if wide and "N" in lengths:
            named["G"] = max(lengths["N"] * H // wide, 1)
        for G in _one_or((H, 1, 2, 4), "G", lengths, named):
            if G > H or H % G:
                continue
            wide = lengths.get("M") or lengths.get("U") or lengths.get("N", 0) * H // G
            if not wide and "P" in lengths:
                wide = lengths["P"] * H // (H + 2 * G)
            d = lengths.get("d") or (wide or D or C) // H
            if d == 0:
                continue
            for keys in dict.fromkeys((S, 5)):
                T, keys = lengths.get("T", T), lengths.get("S", keys)
                yield Sizes(T=T, S=keys, H=H, G=G, d=d, e=d, D=D, C=C, W=W, K=lengths.get("K", 12))


def _stored(subject: Subject, name: str, role: str, of_params: tuple[str, str]) -> str:
    """Return the layout of a param; queries that an object has have no axis of sequences."""
    shape = subject.hidden[name].shape
    if role != "x":
        return param_layout(role, of_params)
    return {1: "D", 2: "D 1" if shape[-1] == 1 else "T D", 3: "1 T D"}[len(shape)]


def _one_or(choices: tuple[int, ...], axis: str, *known: Mapping[str, int]) -> tuple[int, ...]:
    """Return the length of an axis that something says, or all choices."""
    return next(((each[axis],) for each in known if axis in each), choices)


def _way(
    subject: Subject, roles: Roles, options: Mapping[str, Slot], sizes: Sizes, layout: str,
    of_params: tuple[str, str], is_inside: bool,
) -> Iterator[Way]:  # fmt: skip
    """Yield the way of a layout of the tokens; several where q, k and v are one array."""
    of_queries, _, of_keys = layout.partition("|")
    if not all(fits(slot, of_queries, of_keys, is_inside) for slot in options.values()):
        return
    given = roles.passed()
    if of_keys and "S" not in of_keys and "cache_k" not in given:
        return
    sizes = sizes._replace(**_left_out(sizes, of_queries, of_keys, is_inside, given))
    own = {
        name: Slot(role, _stored(subject, name, role, of_params))
        for name, role in roles.hidden.items()
    }
    if any(subject.hidden[name].shape != sizes.shape(slot.layout) for name, slot in own.items()):
        return
    tokens = _inside if is_inside else _given
    has_params = any(role.startswith("w_") for role in roles.all())
    slots = {}
    for name, role in roles.arguments.items():
        if name in options:
            slots[name] = options[name]
        elif role in MAIN and role != "packed":
            slots[name] = tokens(role, of_queries, of_keys, has_params)
            if "pages" in given and role in ("key", "value"):
                slots[name] = slots[name]._replace(kind="pages")
        elif role in ("result", "d_out"):
            slots[name] = Slot(role, of_queries.replace("d", "e").replace("D", "U"))
        else:
            slots[name] = _param(role, of_params)
    for own_slots, B in _with_columns(_with_packed(slots, sizes, roles), of_queries):
        known = {name: subject.evidence[name] for name in own_slots}
        by_head = [slot for name, slot in own_slots.items() if name in subject.by_head]
        if any(slot.layout[:1] not in ("H", "G") for slot in by_head):
            continue
        more = int(subject.feeding == "d")  # the source sees one token
        if all(_has_rank(slot, known[name].rank, more) for name, slot in own_slots.items()):
            flat = {
                name: slot._replace(kind=FLAT)
                for name, slot in own_slots.items()
                if slot.layout
                and slot.role not in ("bias_table", *SEGMENTS)
                and known[name].kind == FLAT
            }
            yield Way(own_slots | flat, own, sizes._replace(B=B), is_inside)


def _with_packed(
    slots: dict[str, Slot], sizes: Sizes, roles: Roles
) -> Iterator[tuple[dict[str, Slot], int]]:
    """Yield slots, with each layout of q, k and v in one array, and the number of sequences."""
    name = next((name for name, role in roles.arguments.items() if role == "packed"), "")
    if not name:
        yield slots, sizes.B
    for packed in PACKED if name else ():
        axes = packed.split()
        if "P" in axes or ("H" in axes) == (sizes.H > 1):  # heads that are given are several
            yield slots | {name: Slot("packed", packed)}, sizes.B if "B" in axes else 1


def _with_columns(
    ways: Iterable[tuple[dict[str, Slot], int]], of_queries: str
) -> Iterator[tuple[dict[str, Slot], int]]:
    """Yield slots; where each token is a column, biases may be columns, too."""
    for slots, B in ways:
        yield slots, B
        biases = {n: slot for n, slot in slots.items() if slot.role.startswith("b_")}
        if biases and of_queries.startswith("D"):
            columns = {n: b._replace(layout=f"{b.layout} 1") for n, b in biases.items()}
            yield slots | columns, B


def _has_rank(slot: Slot, rank: int, more: int) -> bool:
    """Return whether an array has the rank that the source asks for, or more; 0 is any."""
    return not rank or not slot.layout or len(slot.layout.split()) == rank + more


def fits(slot: Slot, of_queries: str, of_keys: str, is_inside: bool) -> bool:
    """Return whether an array of cells has only axes that the tokens have."""
    axes, own = of_queries.split(), slot.layout.split()
    if slot.role == "pages":
        is_one = "B" not in of_keys.split()
        return not is_inside and "S" in of_keys and is_one == (slot.kind == "row")
    if slot.role in ("cache_k", "cache_v"):
        keys = of_keys or of_queries.translate(str.maketrans("HT", "GS"))
        if slot.kind == "list" and own[0] != "Z":
            return False
        if is_inside:
            return ("B" in own) == ("B" in axes)
        return slot.layout.replace("e", "d") in (keys.replace("S", "Z"), "Z " + keys, "B Z G d")
    if "H" in own and slot.role in ("sink", "head_gate", "bias_table", "scale", "slopes"):
        return is_inside or "H" in axes or "r" in axes
    if slot.role in OF_ROWS:
        return "B" not in own or "B" in axes
    if slot.role == "lengths":
        return not own or bool({"B", "n"} & {*axes, *of_keys.split()})
    if slot.role not in OF_CELLS:
        return True
    if slot.layout == "S T" and axes[-1:] != ["T"]:  # where tokens are columns
        return False
    known = {*axes, *of_keys.split(), "S", "1", *("HG" if is_inside else "")}
    return {*own} <= known and (is_inside or len(own) <= len(axes))


def _left_out(
    sizes: Sizes, of_queries: str, of_keys: str, is_inside: bool, given: set[str]
) -> dict[str, int]:
    """Return the lengths that a layout of the tokens leaves no choice for."""
    axes = of_queries.replace("G r", "H").split()
    lengths = {axis: 1 for axis in "BHT" if axis not in axes and (axis != "H" or not is_inside)}
    if "n" in axes or "B" in of_keys.split():
        lengths["B"] = 6 if "n" in axes else sizes.B
    if of_keys and "S" not in of_keys:  # a new one after those in a cache
        lengths["S"] = 1
    elif given & {"cache_k", "cache_v"} and is_inside and (not of_keys or "T" not in axes):
        lengths["S"] = lengths.get("T", sizes.T)
    if not is_inside and "G" not in of_keys and (of_keys or "H" not in axes):
        lengths["G"] = 1
    if "r" in of_queries:
        lengths["G"] = 2
    if given & {"cache_k", "cache_v"}:
        lengths["Z"] = 2
    return lengths


def _param(role: str, of_params: tuple[str, str]) -> Slot:
    return Slot(role, param_layout(role, of_params) if role in AXES else "")


def _given(role: str, of_queries: str, of_keys: str, has_params: bool) -> Slot:
    """Return the slot of tokens that have an axis of heads, or one head."""
    role = {"memory": "key_value", "x": "query"}.get(role, role)
    of_keys = of_keys or of_queries.translate(str.maketrans("HT", "GS"))
    layouts = {"key": of_keys, "key_value": of_keys, "value": of_keys.replace("d", "e")}
    return Slot(role, layouts.get(role, of_queries))


def _inside(role: str, of_queries: str, of_keys: str, has_params: bool) -> Slot:
    """Return the slot of tokens whose width a function splits into heads."""
    of_keys = of_keys or of_queries.replace("T", "S")
    if role == "x":
        return Slot(role, of_queries)
    if role == "memory":
        return Slot(role, of_keys.replace("D", "C"))
    role = f"{'x' if has_params else 'wide'}_{role[0]}"
    layout = of_queries if role.endswith("q") else of_keys
    return Slot(role, layout.replace("D", AXES[role].split()[-1]))
