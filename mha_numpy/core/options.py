"""The options of attention, each declared once, and the inputs of attention, checked once.

An option is an entry of `AttentionOptions`. Signatures and docstrings of the functions that take
options are filled from there, and each value is checked as its entry says.
"""

import inspect
import math
import textwrap
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple, TypedDict, TypeVar, get_type_hints

import numpy as np

from mha_numpy.backends import COVERED
from mha_numpy.checks import check_broadcast, check_flag, check_number, check_shape
from mha_numpy.core.masks import Window, check_mask, check_offset, check_window, visible_cells
from mha_numpy.dtypes import Array, as_float_array, compute_dtype, result_dtype
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.foreign import refuse


class AttentionAxes(NamedTuple):
    """The names of the axes of every array; a cell is a pair of query and key."""

    q: str
    k: str
    v: str
    heads: str
    cells: str


AXES = {  # by rank
    2: AttentionAxes("T_q d_k", "T_k d_k", "T_k d_v", "T_q d_v", "T_q T_k"),
    3: AttentionAxes("B T_q d_k", "B T_k d_k", "B T_k d_v", "B T_q d_v", "B T_q T_k"),
    4: AttentionAxes(
        "B H T_q d_k", "B H_kv T_k d_k", "B H_kv T_k d_v", "B H T_q d_v", "B H T_q T_k"
    ),
}  # fmt: skip


def _cells_shape(q: Array, k: Array) -> tuple[int, ...]:
    return (*q.shape[:-1], k.shape[-2])


def _check_mask(name: str, mask: Any, q: Array, k: Array) -> Array:
    return check_mask(name, mask, _cells_shape(q, k), AXES[q.ndim].cells)


def _check_cells(name: str, cells: Any, q: Array, k: Array) -> Array:
    """Return a float array that broadcasts to the scores."""
    cells = as_float_array(name, cells)
    check_broadcast(name, cells, _cells_shape(q, k), AXES[q.ndim].cells)
    return cells


def _check_of_heads(name: str, numbers: Any, q: Array, k: Array) -> Array:
    """Return a number for each head, or for each head of each sequence."""
    numbers = as_float_array(name, numbers)
    if q.ndim < 4:
        raise ShapeError(
            f"{name}: expected q of rank 4, (B, H, T_q, d_k); a lower rank has no heads"
        )
    B, H, *_ = q.shape
    check_shape(name, numbers, "H" if numbers.ndim == 1 else "B H", {"B": B, "H": H})
    return numbers


class Option(NamedTuple):
    """The facts about an option, except its name and its type."""

    kind: str  # as a docstring says it
    text: str  # one paragraph
    check: Callable[[str, Any, Array, Array], Any] = lambda name, value, q, k: value
    default: Any = None
    in_kernels: bool = True  # else the equations compute what has it


class AttentionOptions(TypedDict, total=False):
    """The keyword arguments of `attention_forward`, for functions that pass them on."""

    mask: Annotated[Array | None, Option(
        "bool array that broadcasts to (B, H, T_q, T_k), optional",
        "True = may attend. A mask of rank 3 is one per head, (H, T_q, T_k). If B = H it "
        "could also be one per sequence: write ``mask[None]`` or ``mask[:, None]``.",
        _check_mask,
    )]  # fmt: skip
    bias: Annotated[Array | None, Option(
        "float array that broadcasts to (B, H, T_q, T_k), optional",
        "Added to the scores; -inf hides a cell as the mask does.",
        _check_cells,
    )]  # fmt: skip
    is_causal: Annotated[bool, Option(
        "bool",
        "Let query i see key j only if ``j <= i + q_offset``.",
        lambda name, value, q, k: check_flag(name, value),
        default=False,
    )]  # fmt: skip
    q_offset: Annotated[int | Array, Option(
        "int or (B,) int array",
        "Position of the first query among the keys; read by `is_causal` and `window`.",
        lambda name, value, q, k: check_offset(value, q.shape[:1] if q.ndim > 2 else ()),
        default=0,
    )]  # fmt: skip
    window: Annotated[Window | None, Option(
        "(left, right), optional",
        "How far a query sees, inclusive, from key ``i + q_offset``; None = unbounded.",
        lambda name, value, q, k: check_window(value),
    )]  # fmt: skip
    softcap: Annotated[float | None, Option(
        "float, optional",
        "c > 0 bounds the scores smoothly: ``c * tanh(scores / c)``.",
        lambda name, value, q, k: check_number(name, value, positive=True),
    )]  # fmt: skip
    scale: Annotated[float | None, Option(
        "float, optional",
        "Default ``1 / sqrt(d_k)``.",
        lambda name, value, q, k: check_number(name, value),
    )]  # fmt: skip
    dropout_mask: Annotated[Array | None, Option(
        "float array that broadcasts to (B, H, T_q, T_k), optional",
        "0 or ``1 / (1 - p)`` for each weight.",
        _check_cells,
    )]  # fmt: skip
    sink: Annotated[Array | None, Option(
        "(H,) or (B, H) float array, optional",
        "One more score in each row of a head's softmax, with a value of zeros: it takes weight "
        "and adds nothing. The returned weights leave it out, so a row sums to less than 1; lse "
        "includes it.",
        _check_of_heads,
    )]  # fmt: skip
    head_gate: Annotated[Array | None, Option(
        "(H,) or (B, H) float array, optional",
        "A multiplier for each head.",
        _check_of_heads,
    )]  # fmt: skip
    backend: Annotated[str | None, Option(
        '{"numpy", "loops", "numba"}, optional',
        "What computes steps 1 to 6: the equations, or a kernel, which needs numba: plain loops to "
        "read, or tiles. Default: that of the block, ``with mha_numpy.backend(...)``, else "
        '"numpy".',
    )]  # fmt: skip


OPTIONS: dict[str, Option] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(AttentionOptions, include_extras=True).items()
}
DEFAULTS = {name: option.default for name, option in OPTIONS.items() if name != "backend"}
DEFAULTS["q_offset"] = np.array(0, np.int64)  # shared by all calls without one
DEFAULTS["q_offset"].flags.writeable = False

F = TypeVar("F", bound=Callable[..., Any])


def takes_attention_options(function: F) -> F:
    """Name the options in the signature, and in the docstring's ``{options}`` or ``{names}``."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    options = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=OPTIONS[name].default, annotation=kind
        )
        for name, kind in get_type_hints(AttentionOptions).items()
    ]
    documented: Any = function
    documented.__signature__ = signature.replace(parameters=[*own, *options])
    *first, last = OPTIONS
    names = textwrap.fill(
        f"{', '.join(first)} and {last}", 92, subsequent_indent=" " * 8, break_on_hyphens=False
    )
    paragraphs = "\n".join(
        f"    {name} : {option.kind}\n{textwrap.indent(textwrap.fill(option.text, 92), ' ' * 8)}"
        for name, option in OPTIONS.items()
    )
    documented.__doc__ = (
        (function.__doc__ or "").replace("    {options}", paragraphs).replace("{names}", names)
    )
    return function


class AttentionInputs(SimpleNamespace):
    """Checked inputs, defaults filled in; each option but `backend` is an attribute.

    Arrays are in the dtype of the computation. `window` includes `is_causal`, and is None if it is
    unbounded on both sides. Defaults are attributes of the class, so `vars` lists only the others.
    """

    q: Array  # (B, H, T_q, d_k)
    k: Array  # (B, H_kv, T_k, d_k)
    v: Array  # (B, H_kv, T_k, d_v)
    dtype: np.dtype[Any]  # of the output and of all gradients
    in_kernels = True  # whether the kernels cover all options that were given

    @property
    def axes(self) -> AttentionAxes:
        """The names of the axes at this rank."""
        return AXES[self.q.ndim]

    @property
    def cells_shape(self) -> tuple[int, ...]:
        """The shape of the scores: (B, H, T_q, T_k)."""
        return _cells_shape(self.q, self.k)

    @property
    def visible(self) -> Array | None:
        """Which keys each query sees: bool, broadcasts to the scores; None if nothing is hidden.

        Computed again at each access, because only the reference needs it in one piece.
        """
        return visible_cells(
            self.cells_shape,
            mask=self.mask, bias=self.bias, window=self.window, q_offset=self.q_offset,
        )  # fmt: skip


for _name, _default in DEFAULTS.items():
    setattr(AttentionInputs, _name, _default)


def check_attention_inputs(q: Any, k: Any, v: Any, options: Mapping[str, Any]) -> AttentionInputs:
    """Check all arguments of attention but the backend; raise the first error found."""
    if options and not options.keys() <= OPTIONS.keys():
        refuse((name for name in options if name not in OPTIONS), OPTIONS)
    q, k, v = as_float_array("q", q), as_float_array("k", k), as_float_array("v", v)
    _check_qkv(q, k, v)
    inputs = AttentionInputs(q=q, k=k, v=v)
    given, floats, dtype = vars(inputs), ["q", "k", "v"], q.dtype
    is_one_dtype = k.dtype is v.dtype is dtype and dtype in COVERED
    for name, value in options.items():
        option = OPTIONS[name]
        if value is not option.default:
            given[name] = value = option.check(name, value, q, k)
            if not option.in_kernels:
                inputs.in_kernels = False
            if isinstance(value, np.ndarray) and value.dtype.kind in "fcV":  # V: bfloat16
                floats.append(name)
                is_one_dtype = is_one_dtype and value.dtype is dtype
    if not is_one_dtype:
        dtype = result_dtype(*[given[name] for name in floats])
        for name in floats:
            given[name] = given[name].astype(compute_dtype(dtype), copy=False)
    inputs.dtype = dtype

    if inputs.scale is None:  # without features every score is 0 with any scale
        inputs.scale = 1 / math.sqrt(q.shape[-1] or 1)
    if inputs.is_causal:
        left, _ = inputs.window or (None, None)
        inputs.window = (left, 0)
    elif inputs.window == (None, None):
        inputs.window = None
    if inputs.softcap is not None:
        limits = np.finfo(inputs.q.dtype)
        least, largest = float(limits.smallest_subnormal), float(limits.max)
        if not least <= inputs.softcap <= largest:
            raise ConfigError(
                f"softcap: expected {least:.1e} to {largest:.1e}, as {dtype}; got {inputs.softcap}"
            )
    return inputs


def _fit(q: Array, k: Array, v: Array) -> bool:
    """Return whether three arrays of rank 4 fit each other."""
    if not q.ndim == k.ndim == v.ndim == 4:
        return False
    (B, H, _, d_k), (B_k, H_kv, T_k, width) = q.shape, k.shape
    fits = v.shape[:3] == (B, H_kv, T_k) and B_k == B and d_k == width
    return fits and H_kv > 0 and H % H_kv == 0


def _check_qkv(q: Array, k: Array, v: Array) -> None:
    if _fit(q, k, v):
        return
    # of another rank, or wrong: by the names of the axes
    if q.ndim not in AXES:
        raise ShapeError(
            f"q: expected (B, H, T_q, d_k), (B, T_q, d_k) or (T_q, d_k); got {q.shape}"
        )
    axes = AXES[q.ndim]
    sizes: dict[str, int] = {}
    check_shape("q", q, axes.q, sizes)
    check_shape("k", k, axes.k, sizes, to_match=f"q {q.shape}")
    if q.ndim == 4 and (sizes["H_kv"] == 0 or sizes["H"] % sizes["H_kv"]):
        advice = ""
        if k.shape[2] and q.shape[2] % k.shape[2] == 0:  # as the heads of JAX's and Keras' layout
            advice = "; if these are (B, T, H, d), write q.swapaxes(1, 2), and so for k and v"
        raise ShapeError(
            f"k: expected (B, H_kv, T_k, d_k) with H_kv dividing H={sizes['H']} to match "
            f"q {q.shape}; got {k.shape}{advice}"
        )
    check_shape("v", v, axes.v, sizes, to_match=f"q {q.shape} and k {k.shape}")
