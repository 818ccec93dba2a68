"""Arrays in what a function has and returns, and calls in each framework."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from inspect import getattr_static, isclass, isfunction, ismethod, ismodule, isroutine
from typing import Any, TypeGuard

import numpy as np

from mha_numpy.frameworks import to_numpy
from mha_numpy.identifying.calling.asked import register
from mha_numpy.identifying.calling.names import roles_by_name

FRAMEWORKS = ("keras", "torch", "jax", "tensorflow", "mlx", "numpy")
MOST_WRAPPERS = 20
MOST_AXES = 8
OF_PART = re.compile(r"(.+)\.\d+\.(.+)")
OF_HEAD = ("w_q", "w_k", "w_v", "w_qkv")  # roles of params of a head that is an object
COMPILED: dict[tuple[Any, ...], Callable[..., Any]] = {}  # by what JAX traced


def frameworks_of(function: Any) -> list[str]:
    """Return the frameworks whose arrays a function may take, the likeliest first."""
    inner = inner_function(function)
    kinds = [str(base.__module__) for base in type(function).__mro__]
    kinds.append(str(getattr(inner, "__module__", "")))
    read = [_home(value) for value in (globals_of(inner) | (_own(inner) or {})).values()]
    read += getattr(getattr(inner, "__code__", None), "co_names", ())  # imported inside
    around = [_home(value) for value in getattr(inner, "__globals__", {}).values()]
    known = [
        n for homes in (kinds, read) for n in FRAMEWORKS if n in {h.split(".")[0] for h in homes}
    ]
    rest = [name for name in FRAMEWORKS if name in {home.split(".")[0] for home in around}]
    return [*dict.fromkeys([*(known or ["numpy"]), *rest])]


def _home(value: Any) -> str:
    """Return the name of a module, or of the module of something else."""
    with suppress(Exception):  # anybody's property
        return str(getattr(value, "__name__" if ismodule(value) else "__module__", None) or "")
    return ""


def globals_of(function: Any) -> dict[str, Any]:
    """Return the globals that a function and the helpers in its module read."""
    home: dict[str, Any] = getattr(function, "__globals__", {})
    found: dict[str, Any] = {}
    left = [function]
    while left:
        names = _names_in(getattr(left.pop(), "__code__", None))
        new = {name: home[name] for name in names if name in home and name not in found}
        found |= new
        left += [inner_function(value) for value in new.values() if callable(value)]
    return found


def _names_in(code: Any) -> Iterator[str]:
    """Yield the names that code reads, that of its comprehensions and inner functions, too."""
    yield from getattr(code, "co_names", ())
    for constant in getattr(code, "co_consts", ()):
        yield from _names_in(constant)


def inner_function(function: Any) -> Any:
    """Return the function that does the work: behind decorators, or the method of an object."""
    for _ in range(MOST_WRAPPERS):
        if isinstance(function, partial):
            function = function.func
        elif ismethod(function):
            function = function.__func__
        elif has(function, "__wrapped__") and callable(function.__wrapped__):
            function = function.__wrapped__
        elif isroutine(function):
            break
        else:
            first = ("call",) if is_keras(function) else ()
            names = (*first, "forward", "call", "__call__")
            methods = [getattr(type(function), name, None) for name in names]
            function = next((m for m in methods if hasattr(m, "__code__")), function)
    return function


def has(thing: Any, name: str) -> bool:
    """Return whether something has an attribute, without the answers of a ``__getattr__``."""
    return getattr_static(thing, name, None) is not None


def owner_of(function: Any) -> Any:
    """Return the object of a method, or what is no method."""
    return getattr(function, "__self__", function) if isroutine(function) else function


def is_keras(function: Any) -> bool:
    """Return whether a function is a layer of Keras."""
    kinds = [str(kind.__module__) for kind in type(function).__mro__]
    return has(function, "get_weights") and any(kind.startswith("keras.") for kind in kinds)


def is_torch(function: Any) -> bool:
    """Return whether a function is a module of PyTorch, and not a layer of Keras built of these."""
    kinds = [kind.__module__ for kind in type(function).__mro__]
    return "torch.nn.modules.module" in kinds and not is_keras(function)


def is_lazy(param: Any) -> bool:
    """Return whether a param of PyTorch gets its shape in the first call."""
    return type(param).__name__ == "UninitializedParameter"


def call_in(framework: str, function: Any, positional: list[Any], named: dict[str, Any]) -> Any:
    """Call a function; JAX compiles it as a whole if it can, which is much faster."""
    if framework != "jax":
        return function(*positional, **named)
    jax = import_module("jax")
    register()
    leaves, tree = jax.tree.flatten((positional, named))
    arrays = {i: leaf for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)}

    def call(arrays: dict[int, Any]) -> Any:
        passed = [arrays.get(i, leaf) for i, leaf in enumerate(leaves)]
        first, rest = jax.tree.unflatten(tree, passed)
        return function(*first, **rest)

    try:
        traced = jax.jit(call).trace(arrays)
    except TypeError:  # it asks for numbers, or returns other things than arrays
        return function(*positional, **named)
    try:
        lowered = traced.lower()
        key = (lowered.as_text(), lowered.in_tree, lowered.out_tree)
        if key not in COMPILED:
            COMPILED[key] = lowered.compile({"xla_backend_optimization_level": 0})
        return COMPILED[key](arrays)
    except Exception:  # float16 without the operations of JAX alone
        return function(*positional, **named)


def flatten(result: Any, path: str = "", around: tuple[int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the arrays in what a function returned, each with the way to it, as ``[0]``."""
    if result is None or isinstance(result, (str, bytes)) or id(result) in around:
        return
    around = (*around, id(result))
    if isinstance(result, dict):
        for name, each in result.items():
            yield from flatten(each, f"{path}[{name!r}]", around)
    elif hasattr(result, "_asdict"):
        for name, each in result._asdict().items():
            yield from flatten(each, f"{path}.{name}", around)
    elif isinstance(result, list) and _is_stack(result):
        yield path, np.stack([np.asarray(to_numpy(each)) for each in result])
    elif isinstance(result, (tuple, list)) and not _is_matrix(result):
        for number, each in enumerate(result):
            yield from flatten(each, f"{path}[{number}]", around)
    elif hasattr(result, "__dict__") and not hasattr(result, "shape"):
        for name, each in vars(result).items():
            yield from flatten(each, f"{path}.{name}", around)
    else:
        try:
            array = np.asarray(to_numpy(result))
        except (TypeError, ValueError):
            return
        if (array.dtype.kind in "fiub" and array.size > 1) or array.dtype.kind == "f":
            yield path, array


def parts_of(result: Any, path: str) -> dict[str, Any]:
    """Return what a dict, a tuple or a list has apart from the output, by name or number."""
    result = result._asdict() if hasattr(result, "_asdict") else result
    if isinstance(result, (tuple, list)):
        result = {str(i): each for i, each in enumerate(result)}
    if not isinstance(result, dict):
        return {}
    rest = {str(n): x for n, x in result.items() if path not in (f"[{n}]", f"[{n!r}]", f".{n}")}
    return {name: part for name, part in rest.items() if part is not None}


def _is_stack(values: list[Any]) -> bool:
    """Return whether a list has an array for each token."""
    shapes = {getattr(value, "shape", None) for value in values}
    return len(values) > 1 and len(shapes) == 1 and None not in shapes


def _is_matrix(value: Any) -> bool:
    """Return whether nested lists are one array of numbers."""
    first = value
    for _ in range(MOST_AXES):  # a list may be in itself
        first = first[0] if isinstance(first, (list, tuple)) and first else first
    with suppress(ValueError):  # lists of different lengths
        return isinstance(first, (int, float)) and np.asarray(value).dtype != object
    return False


def holders(thing: Any, depth: int = 2, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the attributes of an object, of its parts, and of theirs, each with the way to them.

    Of a function, it is what its closure has.
    """
    own = _own(thing)
    if own is None or (path and isroutine(thing)):
        return
    yield path, own
    for name, part in [*own.items(), *own.get("_modules", {}).items()] if depth else ():
        yield from holders(part, depth - 1, f"{path}{name}.")
        is_list = isinstance(part, (list, tuple)) and name[:1] != "_"
        for number, each in enumerate(part if is_list else ()):
            yield from holders(each, depth - 1, f"{path}{name}.{number}.")


def _own(thing: Any) -> dict[str, Any] | None:
    if isinstance(thing, dict) or isclass(thing) or ismodule(thing):
        return thing if isinstance(thing, dict) else None
    if isfunction(thing):
        own = {}
        for name, cell in zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True):
            with suppress(ValueError):  # an empty cell
                own[name] = cell.cell_contents
        return own
    try:
        own = object.__getattribute__(thing, "__dict__")
    except Exception:  # it has none, or a property of this name
        return None
    return own if isinstance(own, dict) else None


def hidden_arrays(function: Any) -> dict[str, Any]:
    """Return the params that an object or a closure has, by name."""
    function = owner_of(function)
    if is_keras(function):
        named = {
            id(w): f"{name}.{w.path.rsplit('/', 1)[-1]}"
            for name, part in {**vars(function), **getattr(function, "_modules", {})}.items()
            if is_keras(part)
            for w in part.variables
        } | {id(value): name for name, value in vars(function).items() if hasattr(value, "value")}
        found = {named.get(id(w), w.path): to_numpy(w.value) for w in function.variables}
    elif is_torch(function):
        params = function.named_parameters()
        found = {name: to_numpy(param) for name, param in params if not is_lazy(param)}
    else:
        found = dict(_arrays_of(function))
    found |= dict(_looked_up(function, found))
    of_cells = {name.partition("[")[0] for name in found if name.endswith("]")}
    own = {
        name: array
        for name, array in found.items()
        if array.dtype.kind == "f" and array.size and name not in of_cells
    }
    return _stacked(_apart(own))


def _apart(found: dict[str, Any]) -> dict[str, Any]:
    """Return arrays by name; four maps in one array, and their biases, as ``W.0`` to ``W.3``."""
    maps = [name for name, array in found.items() if _is_four(name, array)]
    shapes = [found[name].shape[:2] for name in maps]
    biases = [name for name, array in found.items() if array.shape in shapes and not _is_map(name)]
    parts: dict[str, Any] = {}
    for name, array in found.items():
        is_apart = len(maps) == 1 and name in (*maps, *biases)
        parts |= {f"{name}.{i}": a for i, a in enumerate(array)} if is_apart else {name: array}
    return parts


def _is_four(name: str, array: Any) -> bool:
    """Return whether an array may be the maps of queries, keys, values and output."""
    is_square = array.ndim == 3 and len(array) == 4 and array.shape[1] == array.shape[2]
    return is_square and array.any() and not any(map(_is_map, re.split("[./]", name)))


def _looked_up(function: Any, found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield a table with a row for each distance, as the cells look it up: ``table[index]``."""
    own = function.named_buffers() if is_torch(function) else _arrays_of(function)
    for at, index in own:
        index = np.asarray(to_numpy(index)) if index.dtype != object else index
        is_square = index.dtype.kind in "iu" and index.ndim == 2 and len({*index.shape}) == 1
        for name, table in found.items() if is_square and index.size else ():
            if table.ndim == 2 and (index.min(), index.max()) == (0, len(table) - 1):
                yield f"{name}[{at}]", table[index]


def _stacked(found: dict[str, Any]) -> dict[str, Any]:
    """Return arrays by name, with those of alike heads in one, as all ``heads.0.key.weight``."""
    groups: dict[str, list[str]] = {}
    for name in found:
        part = OF_PART.fullmatch(name)
        if part and any({*roles_by_name(word)} & {*OF_HEAD} for word in part[2].split(".")):
            groups.setdefault(f"{part[1]}.{part[2]}", []).append(name)
    for whole, names in groups.items():
        if len(names) > 1 and len({found[name].shape for name in names}) == 1:
            found[whole] = np.stack([found.pop(name) for name in names])
    return found


def _arrays_of(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield arrays among the attributes of an object and of its parts."""
    for path, own in holders(function):
        for name, value in own.items():
            with suppress(Exception):  # of anybody's class
                is_stack = isinstance(value, (list, tuple)) and _is_stack([*value])
                if is_stack and len(value) in (3, 4) and not _is_map(name):
                    yield from ((f"{path}{name}.{i}", to_numpy(a)) for i, a in enumerate(value))
                elif is_stack:
                    yield f"{path}{name}", np.stack([np.asarray(to_numpy(a)) for a in value])
                elif hasattr(value, "shape") and str(getattr(value, "dtype", "object")) != "object":
                    yield f"{path}{name}", np.asarray(to_numpy(value))


def _is_map(name: str) -> bool:
    """Return whether a name is that of one param, and not of all."""
    return any(role[:2] in ("w_", "b_") for role in roles_by_name(name))


def numbers_of(function: Any) -> dict[str, float]:
    """Return the numbers that an object has as attributes, or a function in its closure."""
    inner = inner_function(function)
    found = {**(_own(owner_of(function)) or {}), **(_own(inner) or {})}
    around = getattr(inner, "__globals__", {})
    names = getattr(getattr(inner, "__code__", None), "co_names", ())
    found |= {name: around[name] for name in names if name in around}
    return {name: value for name, value in found.items() if is_number(value)}


def parts_in(layer: Any) -> Iterator[Any]:
    """Yield the layers that a layer of PyTorch or Keras has as attributes, and theirs."""
    for _, own in holders(owner_of(layer)):
        for part in own.values():
            yield from (part.values() if isinstance(part, dict) else (part,))


def is_norm(part: Any) -> bool:
    """Return whether a layer normalises, by the name of its class."""
    return bool(re.search("(?<!random)norm", type(part).__name__.lower()))


def eps_of_norms(function: Any) -> float:
    """Return what norms add to the variance: that of a layer, or a small number of a source."""
    for part in parts_in(function):
        if is_norm(part):
            sizes = [x for name, x in vars(part).items() if "eps" in name and is_number(x)]
            if sizes:
                return float(sizes[0])
    inner = inner_function(function)
    codes = [inner, *map(inner_function, globals_of(inner).values())]
    for each in filter(isfunction, codes):
        known = (*(each.__defaults__ or ()), *each.__code__.co_consts)
        small = [n for n in known if is_number(n) and 1e-13 < n < 0.01]
        if small:
            return float(small[0])
    return 1e-5


def buckets_of(inner: Any) -> int:
    """Return a default number of buckets, of a function or its helpers; 0 if there is none."""
    for each in filter(isfunction, [inner, *globals_of(inner).values()]):
        names = each.__code__.co_varnames[: each.__code__.co_argcount]
        defaults = zip(names[::-1], (each.__defaults__ or ())[::-1], strict=False)
        for name, number in (*defaults, *(each.__kwdefaults__ or {}).items()):
            if "bucket" in name and type(number) is int:
                return number
    return 0


def helpers_of(inner: Any) -> list[Callable[..., Any]]:
    """Return the functions of the same file that a function names."""
    named = globals_of(inner).values()
    return [f for f in named if isfunction(f) and f.__module__ == inner.__module__]


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether something is a number that may mean something."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -1e8 < value < 1e8
