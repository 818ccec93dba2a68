"""Arrays of each framework: into a function, and out of what it returns."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

import numpy as np

FRAMEWORKS = ("keras", "torch", "jax", "tensorflow", "mlx", "numpy")


def frameworks_of(function: Any) -> list[str]:
    """Return the frameworks whose arrays a function may take, the likeliest first."""
    inner = inner_function(function)
    kinds = [base.__module__ for base in type(function).__mro__] + [str(inner.__module__)]
    read = [_home(value) for value in _globals_of(inner).values()]
    around = [_home(value) for value in getattr(inner, "__globals__", {}).values()]
    known = [
        n for homes in (kinds, read) for n in FRAMEWORKS if n in {h.split(".")[0] for h in homes}
    ]
    rest = [name for name in FRAMEWORKS if name in {home.split(".")[0] for home in around}]
    return [*dict.fromkeys([*(known or ["numpy"]), *rest])]


def _home(value: Any) -> str:
    """Return the name of a module, or of the module of something else."""
    is_module = type(value).__name__ == "module"
    return str(getattr(value, "__name__" if is_module else "__module__", None) or "")


def _globals_of(function: Any) -> dict[str, Any]:
    """Return the globals that a function and the helpers in its module read."""
    home: dict[str, Any] = getattr(function, "__globals__", {})
    found: dict[str, Any] = {}
    left = [function]
    while left:
        names = getattr(getattr(left.pop(), "__code__", None), "co_names", ())
        new = {name: home[name] for name in names if name in home and name not in found}
        found |= new
        left += [inner_function(value) for value in new.values() if callable(value)]
    return found


def inner_function(function: Any) -> Any:
    """Return the function that does the work: behind decorators, or the method of an object."""
    is_keras = hasattr(function, "get_weights")
    for name in ("call", "forward", "__call__") if is_keras else ("forward", "call", "__call__"):
        method = getattr(type(function), name, None)
        if not hasattr(function, "__code__") and hasattr(method, "__code__"):
            function = method
            break
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return getattr(function, "__func__", function)


@contextmanager
def quick(frameworks: Sequence[str]) -> Iterator[None]:
    """Let frameworks compile and start threads as little as they can: arrays are small."""
    with ExitStack() as stack:
        if "torch" in frameworks:
            torch = import_module("torch")
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)
        if "jax" in frameworks:
            config = import_module("jax").config
            name = "jax_disable_most_optimizations"
            stack.callback(config.update, name, config.values[name])
            config.update(name, True)
        yield


def to_framework(value: Any, framework: str) -> Any:
    """Return an array, or arrays in a dict or list, as a framework has them."""
    if isinstance(value, dict):
        return {name: to_framework(each, framework) for name, each in value.items()}
    if isinstance(value, list):
        return [to_framework(each, framework) for each in value]
    if not isinstance(value, np.ndarray):
        return value
    value = value.copy()
    if framework == "torch":
        return import_module("torch").from_numpy(value)
    if framework == "jax":
        jax = import_module("jax")
        jax.config.update("jax_enable_x64", True)  # or it would narrow float64
        is_long = value.dtype == np.int64  # its own integers are short
        return jax.device_put(value.astype(np.int32) if is_long else value)
    if framework == "keras":
        return import_module("keras").ops.convert_to_tensor(value, dtype=value.dtype.name)
    if framework == "tensorflow":
        return import_module("tensorflow").convert_to_tensor(value)
    if framework == "mlx":
        return import_module("mlx.core").array(value)
    return value


def call_in(framework: str, function: Any, positional: list[Any], named: dict[str, Any]) -> Any:
    """Call a function; JAX compiles it as a whole if it can, which is much faster."""
    if framework != "jax":
        return function(*positional, **named)
    jax = import_module("jax")
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
        return traced.lower().compile({"xla_backend_optimization_level": 0})(arrays)
    except Exception:  # float16 without the operations of JAX alone
        return function(*positional, **named)


def to_numpy(value: Any) -> Any:
    """Return a framework's array as NumPy's; what is no array stays as it is."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        return value.numpy() if str(value.dtype) != "torch.bfloat16" else value.float().numpy()
    if isinstance(value, np.ndarray):
        return value.astype(float) if value.dtype == object else value
    return np.asarray(value) if hasattr(value, "__array__") else value


def flatten(result: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the arrays in what a function returned, each with the way to it, as ``[0]``."""
    if result is None or isinstance(result, (str, bytes)):
        return
    if isinstance(result, dict):
        for name, each in result.items():
            yield from flatten(each, f"{path}[{name!r}]")
    elif hasattr(result, "_asdict"):
        for name, each in result._asdict().items():
            yield from flatten(each, f"{path}.{name}")
    elif isinstance(result, list) and _is_stack(result):
        yield path, np.stack([np.asarray(to_numpy(each)) for each in result])
    elif isinstance(result, (tuple, list)) and not _is_matrix(result):
        for number, each in enumerate(result):
            yield from flatten(each, f"{path}[{number}]")
    elif hasattr(result, "__dict__") and not hasattr(result, "shape"):
        for name, each in vars(result).items():
            yield from flatten(each, f"{path}.{name}")
    else:
        try:
            array = np.asarray(to_numpy(result))
        except (TypeError, ValueError):
            return
        if (array.dtype.kind in "fiub" and array.size > 1) or array.dtype.kind == "f":
            yield path, array


def _is_stack(values: list[Any]) -> bool:
    """Return whether a list has an array for each token."""
    shapes = {getattr(value, "shape", None) for value in values}
    return len(values) > 1 and len(shapes) == 1 and None not in shapes


def _is_matrix(value: Any) -> bool:
    """Return whether nested lists are one array of numbers."""
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return isinstance(value, (int, float))


def hidden_arrays(function: Any) -> dict[str, Any]:
    """Return the params that an object or a closure has, by name."""
    function = getattr(function, "__self__", function)
    if hasattr(function, "get_weights"):
        named = {
            id(w): f"{name}.{w.path.rsplit('/', 1)[-1]}"
            for name, part in {**vars(function), **getattr(function, "_modules", {})}.items()
            if hasattr(part, "get_weights")
            for w in part.variables
        }
        found = {named.get(id(w), w.path): to_numpy(w.value) for w in function.variables}
    elif hasattr(function, "named_parameters"):
        found = {name: to_numpy(p) for name, p in function.named_parameters()}
    else:
        found = dict(_attributes(function))
    return {name: array for name, array in found.items() if array.dtype.kind == "f" and array.size}


def _attributes(holder: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield arrays among the attributes of an object and of its parts."""
    values = dict(getattr(holder, "__dict__", {}) or {}) if not isinstance(holder, dict) else holder
    code, cells = getattr(holder, "__code__", None), getattr(holder, "__closure__", None)
    if code is not None and cells:
        values |= {n: c.cell_contents for n, c in zip(code.co_freevars, cells, strict=True)}
    for name, value in values.items():
        if isinstance(value, (list, tuple)) and _is_stack([*value]):
            yield f"{path}{name}", np.stack([np.asarray(to_numpy(a)) for a in value])
        elif hasattr(value, "shape") and str(getattr(value, "dtype", "object")) != "object":
            yield f"{path}{name}", np.asarray(to_numpy(value))
        elif depth < 2 and (isinstance(value, dict) or hasattr(value, "__dict__")) and (
            not isinstance(value, type(sys)) and not callable(value)
        ):  # fmt: skip
            yield from _attributes(value, f"{path}{name}.", depth + 1)


def numbers_of(function: Any) -> dict[str, float]:
    """Return the numbers that an object has as attributes, or a function in its closure."""
    holder = getattr(function, "__self__", function)
    found = dict(vars(holder)) if hasattr(holder, "__dict__") else {}
    inner = inner_function(function)
    code, cells = getattr(inner, "__code__", None), getattr(inner, "__closure__", None)
    if code is not None and cells:
        found |= {n: c.cell_contents for n, c in zip(code.co_freevars, cells, strict=True)}
    for name in getattr(code, "co_names", ()):
        value = getattr(inner, "__globals__", {}).get(name)
        if isinstance(value, (int, float)):
            found[name] = value
    return {
        n: v for n, v in found.items() if isinstance(v, (int, float)) and not isinstance(v, bool)
    }
