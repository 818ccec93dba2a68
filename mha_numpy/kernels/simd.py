"""Vector: a whole register of numbers, so that one line of code serves 16 numbers at once.

Code with Vectors looks like code for one number: ``x * y + 1``, `maximum`, `select`. A number
combined with a Vector acts as if it were in every lane. `load` and `store` move lanes between a
Vector and a row of an array.
"""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

from mha_numpy.kernels.host import HOST


class Vector(types.Type):
    """`lanes` numbers (or bools, one per lane) in one register."""

    def __init__(self, dtype: types.Type, lanes: int) -> None:
        super().__init__(f"Vector({dtype} x {lanes})")
        self.dtype, self.lanes = dtype, lanes


def vector_of(dtype: types.Float) -> Vector:
    """Return the Vector that fills a register with floats of this type."""
    return Vector(dtype, lanes_of(dtype))


def lanes_of(dtype: types.Float) -> int:
    """Return how many floats of this type fill a register."""
    return HOST.register_bytes * 8 // dtype.bitwidth


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, fe_type: Vector) -> None:
        is_bool = fe_type.dtype == types.boolean
        lane = ir.IntType(1) if is_bool else manager.lookup(fe_type.dtype).get_value_type()
        super().__init__(manager, fe_type, ir.VectorType(lane, fe_type.lanes))


# --- emitting LLVM instructions -----------------------------------------------------------------


def emit_splat(builder: Any, number: Any, lanes: int) -> Any:
    """Put one number into every lane."""
    undefined = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, number, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
    return builder.shuffle_vector(first, undefined, zeros)


def emit_constant(ty: Any, value: float) -> Any:
    """Return a constant number, or a register with it in every lane."""
    return ir.Constant(ty, [value] * ty.count if isinstance(ty, ir.VectorType) else value)


def emit_vector(context: Any, builder: Any, value: Any, ty: types.Type, vector: Vector) -> Any:
    """Return a Vector as it is, and a number as a Vector."""
    if isinstance(ty, Vector):
        return value
    return emit_splat(builder, context.cast(builder, value, ty, vector.dtype), vector.lanes)


def emit_vectors(context: Any, builder: Any, values: Any, tys: Any, vector: Vector) -> list[Any]:
    """Return all of them as Vectors."""
    pairs = zip(values, tys, strict=True)
    return [emit_vector(context, builder, value, ty, vector) for value, ty in pairs]


def emit_multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Compute a * b + c, rounded once if the processor has an instruction for it."""
    lanes, lane = (
        (f"v{a.type.count}", a.type.element) if isinstance(a.type, ir.VectorType) else ("", a.type)
    )
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(a.type, [a.type] * 3),
        f"llvm.fmuladd.{lanes}f{32 if isinstance(lane, ir.FloatType) else 64}",
    )
    return builder.call(function, [a, b, c])


def emit_pointer(
    context: Any, builder: Any, ty: types.Array, array: Any, *indices: Any, lanes: int = 1
) -> Any:
    """Return the address of an element, the first of `lanes` to be used."""
    array = context.make_array(ty)(context, builder, array)
    if context.enable_boundscheck:
        last = builder.add(indices[-1], indices[-1].type(lanes - 1))
        cgutils.get_item_pointer(
            context, builder, ty, array, (*indices[:-1], last), boundscheck=True
        )
    return cgutils.get_item_pointer(
        context, builder, ty, array, indices, boundscheck=context.enable_boundscheck
    )


# --- operators ----------------------------------------------------------------------------------


def _define(op: Callable[..., Any], emit: Callable[..., Any], *, compares: bool = False) -> None:
    """Teach numba an operator of two Vectors, or of a Vector and a number."""

    @infer_global(op)
    class _Template(AbstractTemplate):
        key = op

        def generic(self, args: Any, kws: Any) -> Any:
            vector = next((a for a in args if isinstance(a, Vector)), None)
            if vector is None or not all(a == vector or isinstance(a, types.Number) for a in args):
                return None
            result = Vector(types.boolean, vector.lanes) if compares else vector
            return signature(result, *args)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = next(ty for ty in sig.args if isinstance(ty, Vector))
        return emit(builder, *emit_vectors(context, builder, args, sig.args, vector))

    for kinds in ((Vector, Vector), (Vector, types.Number), (types.Number, Vector)):
        lower_builtin(op, *kinds)(lower)


_define(operator.add, lambda builder, x, y: builder.fadd(x, y))
_define(operator.sub, lambda builder, x, y: builder.fsub(x, y))
_define(operator.mul, lambda builder, x, y: builder.fmul(x, y))
_define(operator.truediv, lambda builder, x, y: builder.fdiv(x, y))
_define(operator.lt, lambda builder, x, y: builder.fcmp_ordered("<", x, y), compares=True)
_define(operator.eq, lambda builder, x, y: builder.fcmp_ordered("==", x, y), compares=True)
_define(operator.ne, lambda builder, x, y: builder.fcmp_unordered("!=", x, y), compares=True)


# --- functions ----------------------------------------------------------------------------------


@intrinsic
def as_written(typingctx):
    """Make LLVM leave the loops of the calling function as they are, which halves compile times.

    Loops that are worth it use Vectors; `lanes` implies this.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.function.attributes.add("optsize")
        return context.get_dummy_value()

    return types.none(), codegen


@intrinsic
def apart(typingctx):
    """Promise LLVM that no two arrays of the calling function share memory.

    Then it can make loops over single numbers work on whole registers.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        for argument in builder.function.args:
            if isinstance(argument.type, ir.PointerType):
                argument.add_attribute("noalias")
        return context.get_dummy_value()

    return types.none(), codegen


@intrinsic
def lanes(typingctx, array):
    """Return how many of the array's numbers one Vector holds."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.function.attributes.add("optsize")
        return context.get_constant(types.intp, lanes_of(array.dtype))

    return types.intp(array), codegen


@intrinsic
def load(typingctx, array, row, column):
    """Return array[row, column : column + lanes]; the row must be contiguous."""
    vector = vector_of(array.dtype)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = emit_pointer(context, builder, sig.args[0], *args, lanes=vector.lanes)
        pointer = builder.bitcast(pointer, context.get_value_type(vector).as_pointer())
        return builder.load(pointer, align=1)  # wherever the row begins

    return vector(array, types.intp, types.intp), codegen


@intrinsic
def store(typingctx, array, row, column, vector):
    """Do array[row, column : column + lanes] = vector; the row must be contiguous."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = emit_pointer(context, builder, sig.args[0], *args[:3], lanes=vector.lanes)
        pointer = builder.bitcast(pointer, args[3].type.as_pointer())
        builder.store(args[3], pointer, align=1)
        return context.get_dummy_value()

    return types.none(array, types.intp, types.intp, vector), codegen


@intrinsic
def fetch(typingctx, array, row, column):
    """Ask for the line of the cache with a number that is read soon; it need not exist."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        array = context.make_array(sig.args[0])(context, builder, args[0])
        emit_fetch(
            builder,
            cgutils.get_item_pointer(context, builder, sig.args[0], array, args[1:]),
            writes=False,
        )
        return context.get_dummy_value()

    return types.none(array, types.intp, types.intp), codegen


def emit_fetch(builder: Any, pointer: Any, *, writes: bool) -> None:
    """Ask for the line of the first-level cache at this address."""
    flag = ir.IntType(32)
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, flag, flag, flag]),
        "llvm.prefetch.p0i8",
    )
    keep, data = flag(3), flag(1)
    builder.call(
        function, [builder.bitcast(pointer, cgutils.voidptr_t), flag(int(writes)), keep, data]
    )


@intrinsic
def full(typingctx, array, number):
    """Return a Vector of one number, as wide as those of the array."""
    vector = vector_of(array.dtype)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return emit_vector(context, builder, args[1], sig.args[1], vector)

    return vector(array, number), codegen


@intrinsic
def maximum(typingctx, a, b):
    """Return the larger, lane by lane; b where either is NaN."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return a(a, b), codegen


@intrinsic
def select(typingctx, condition, a, b):
    """Return a where the condition holds, else b, lane by lane."""
    vector = a if isinstance(a, Vector) else b

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        of_each = emit_vectors(context, builder, args[1:], sig.args[1:], vector)
        return builder.select(args[0], *of_each)

    return vector(condition, a, b), codegen


@intrinsic
def multiply_add(typingctx, a, b, c):
    """Return a * b + c, rounded once where the processor can."""
    vector = next(ty for ty in (a, b, c) if isinstance(ty, Vector))

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return emit_multiply_add(builder, *emit_vectors(context, builder, args, sig.args, vector))

    return vector(a, b, c), codegen


@intrinsic
def sum_of_lanes(typingctx, vector):
    """Return the sum of a Vector's numbers: its halves are added up, then theirs, and so on."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _emit_folded(builder, args[0], builder.fadd)

    return vector.dtype(vector), codegen


@intrinsic
def maximum_of_lanes(typingctx, vector):
    """Return the largest of a Vector's numbers, none of which is NaN."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        def larger(a: Any, b: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", a, b), a, b)

        return _emit_folded(builder, args[0], larger)

    return vector.dtype(vector), codegen


def _emit_folded(builder: Any, vector: Any, emit: Callable[[Any, Any], Any]) -> Any:
    """Combine the halves of a register, then theirs, and so on, to one number."""
    count = vector.type.count
    while count > 1:
        count //= 2
        halves = [
            emit_shuffle(builder, vector, vector, [*range(first, first + count)])
            for first in (0, count)
        ]
        vector = emit(*halves)
    return builder.extract_element(vector, ir.IntType(32)(0))


def emit_shuffle(builder: Any, a: Any, b: Any, picked: list[int]) -> Any:
    """Pick lanes of a, and from len(a) on of b."""
    return builder.shuffle_vector(
        a, b, ir.Constant(ir.VectorType(ir.IntType(32), len(picked)), picked)
    )


@intrinsic
def load_some(typingctx, array, row, column, count):
    """Return array[row, column : column + count], and 0 in the other lanes."""
    vector = vector_of(array.dtype)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = emit_pointer(context, builder, sig.args[0], *args[:3])
        return emit_load_some(builder, pointer, args[3], context.get_value_type(vector))

    return vector(array, types.intp, types.intp, types.intp), codegen


@intrinsic
def store_some(typingctx, array, row, column, vector, count):
    """Do array[row, column : column + count] = vector[:count]."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = emit_pointer(context, builder, sig.args[0], *args[:3])
        register = args[3].type
        pointer = builder.bitcast(pointer, register.as_pointer())
        mask = _emit_first_lanes(builder, args[4], register.count)
        function = _masked(builder, "store", ir.VoidType(), register, pointer.type, mask.type)
        builder.call(function, [args[3], pointer, ir.IntType(32)(1), mask])
        return context.get_dummy_value()

    return types.none(array, types.intp, types.intp, vector, types.intp), codegen


def emit_load_some(builder: Any, pointer: Any, count: Any, register: Any) -> Any:
    """Load the first lanes of a register, and 0 into the others, whose memory is not touched."""
    pointer = builder.bitcast(pointer, register.as_pointer())
    mask = _emit_first_lanes(builder, count, register.count)
    function = _masked(builder, "load", register, pointer.type, mask.type)
    zeros = emit_constant(register, 0.0)
    return builder.call(function, [pointer, ir.IntType(32)(1), mask, zeros])


def _emit_first_lanes(builder: Any, count: Any, lanes: int) -> Any:
    """Return a mask of the first lanes."""
    numbers = ir.Constant(ir.VectorType(count.type, lanes), [*range(lanes)])
    return builder.icmp_signed("<", numbers, emit_splat(builder, count, lanes))


def _masked(builder: Any, kind: str, result: Any, *parts: Any) -> Any:
    """Return LLVM's function that loads or stores some lanes at any address."""
    register = next(part for part in (result, *parts) if isinstance(part, ir.VectorType))
    width = 32 if isinstance(register.element, ir.FloatType) else 64
    name = f"llvm.masked.{kind}.v{register.count}f{width}.p0"
    align = ir.IntType(32)
    if kind == "load":
        kinds = [parts[0], align, parts[1], register]
    else:
        kinds = [parts[0], parts[1], align, parts[2]]
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, kinds), name)


@intrinsic
def bits_from_lanes(typingctx, condition):
    """Return a word whose lowest bits say in which lanes the condition holds."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word = builder.bitcast(args[0], ir.IntType(condition.lanes))
        return builder.zext(word, ir.IntType(64))

    return types.uint64(condition), codegen


@intrinsic
def lanes_from_bits(typingctx, array, word, first):
    """Return bits first, first + 1, ... of a 64-bit word, one per lane."""
    vector = Vector(types.boolean, lanes_of(array.dtype))

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = builder.lshr(args[1], builder.bitcast(args[2], args[1].type))
        bits = builder.trunc(bits, ir.IntType(vector.lanes))
        return builder.bitcast(bits, context.get_value_type(vector))

    return vector(array, types.uint64, types.intp), codegen
