"""Run a compiled function in several threads, by its address.

numba compiles any function that a parallel loop calls into the loop, several times over. Called by
its address, the function is compiled only once.
"""

import os
from collections.abc import Callable
from threading import Lock
from typing import Any

from llvmlite import ir
from numba import config, get_num_threads, prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from mha_numpy.errors import BackendError
from mha_numpy.kernels.compile import jit
from mha_numpy.kernels.host import LEAST_WORK
from mha_numpy.kernels.scratch import keep_freed_memory

if config.DISABLE_JIT:
    raise BackendError(
        "backend: 'numba' exists only compiled, and NUMBA_DISABLE_JIT is set: unset it, or write "
        "backend='loops'"
    )

# Python threads that call at once take turns: where numba has its own pool of threads,
# "workqueue", it ends the process if two meet there
one_at_a_time = Lock()


def parallel(function: Any, arguments: Any) -> Callable[[int, tuple[Any, ...]], None]:
    """Compile ``function(thread, threads, arguments)`` for a tuple of these types.

    The result takes the number of threads and the arguments, and calls the function in each thread.
    """
    keep_freed_memory()
    size = types.intp
    function.compile(types.none(size, size, arguments))
    compiled = function.overloads[size, size, arguments]
    address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    # starts numba's pool, which a parallel loop loaded from disk inside of another function needs
    get_num_threads()
    run_with = run_in_threads.compile(types.none(size, size, arguments))

    def in_each(threads: int, given: tuple[Any, ...]) -> None:
        if threads == 1:
            run_with(address, threads, given)
            return
        with one_at_a_time:
            run_with(address, threads, given)

    return in_each


@jit(_nrt=False)
def run_in_threads(address, threads, arguments):
    """Call ``function(thread, threads, arguments)`` in each of the threads."""
    if call_in_each(threads, *packed(address, arguments)) > 0:
        # raised here: what is raised in another thread gets lost
        raise RuntimeError(
            "a kernel failed: there is no memory for its scratch, or an index is out of bounds"
        )


@jit(parallel=True, _nrt=True)
def call_in_each(threads, caller, packet):
    """Call ``caller(thread, threads, packet)`` in each of the threads; return how many failed."""
    failures = 0
    if threads == 1:
        failures += call(caller, 0, threads, packet)
    else:
        for thread in prange(threads):
            failures += call(caller, thread, threads, packet)
    return failures


CALLER = ir.FunctionType(ir.IntType(64), [ir.IntType(64)] * 3)


@intrinsic
def packed(typingctx, address, arguments):
    """Return the address of a function of (thread, threads, packet), and of such a packet.

    Every type of arguments has its own type of packet, which contains them and the address of their
    function. The two returned numbers always have the same type, so the parallel loop is compiled
    only once.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        packet_type = ir.LiteralStructType([arg.type for arg in args])
        packet = cgutils.alloca_once_value(builder, cgutils.pack_struct(builder, args))
        caller = ir.Function(builder.module, CALLER, builder.module.get_unique_name("caller"))
        caller.linkage = "internal"
        inside = ir.IRBuilder(caller.append_basic_block())
        thread, threads, given = caller.args
        given = inside.load(inside.inttoptr(given, packet_type.as_pointer()))
        address, arguments = cgutils.unpack_tuple(inside, given, 2)
        taken = (types.intp, types.intp, sig.args[1])
        function_type = context.call_conv.get_function_type(types.none, taken)
        status, _ = context.call_conv.call_function(
            inside, inside.inttoptr(address, function_type.as_pointer()), types.none, taken,
            (thread, threads, arguments),
        )  # fmt: skip
        inside.ret(inside.zext(status.is_error, CALLER.return_type))
        found = [builder.ptrtoint(x, ir.IntType(64)) for x in (caller, packet)]
        return context.make_tuple(builder, sig.return_type, found)

    return types.UniTuple(types.intp, 2)(types.intp, arguments), codegen


@intrinsic
def call(typingctx, caller, thread, threads, packet):
    """Call the function at this address; return 1 if it raised an error, else 0."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.call(builder.inttoptr(args[0], CALLER.as_pointer()), args[1:])

    return types.intp(types.intp, types.intp, types.intp, types.intp), codegen


def count_threads(work: int) -> int:
    """Return how many threads are worth waking for this many products of two numbers."""
    return 1 if work < LEAST_WORK or _is_forked else get_num_threads()


_is_forked = False


def _note_fork() -> None:
    """OpenMP does not survive a fork: the child process works with one thread."""
    global _is_forked
    _is_forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)
