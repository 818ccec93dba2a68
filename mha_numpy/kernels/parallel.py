"""Run a compiled function in several threads, by its address.

numba compiles whatever a parallel loop calls into the loop, several times over. Behind an address
the function is compiled once.
"""

import os
from collections.abc import Callable
from contextlib import nullcontext
from threading import Lock
from typing import Any

from numba import config, get_num_threads, prange, types
from numba.extending import intrinsic

from mha_numpy.errors import BackendError
from mha_numpy.kernels.compile import jit
from mha_numpy.kernels.host import LEAST_WORK

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

    The result takes the number of threads and the arguments, and calls it in each thread.
    """
    size = types.intp
    function.compile(types.none(size, size, arguments))
    compiled = function.overloads[size, size, arguments]
    address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    call_in_each = run.compile(types.none(size, size, arguments))

    def in_each(threads: int, given: tuple[Any, ...]) -> None:
        with one_at_a_time if threads > 1 else nullcontext():
            call_in_each(address, threads, given)

    return in_each


@jit(parallel=True)
def run(address, threads, arguments):
    """Call ``function(thread, threads, arguments)`` in each of the threads."""
    failures = 0
    if threads == 1:
        failures += call(address, 0, threads, arguments)
    else:
        for thread in prange(threads):
            failures += call(address, thread, threads, arguments)
    if failures > 0:  # raised here: what is raised in another thread gets lost
        raise RuntimeError(
            "a kernel failed: a pool of scratch is too small, or an index is out of bounds"
        )


@intrinsic
def call(typingctx, address, thread, threads, arguments):
    """Call the compiled function at this address; return 1 if it raised an error, else 0."""
    signature = types.intp(types.intp, types.intp, types.intp, arguments)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        taken = sig.args[1:]
        function_type = context.call_conv.get_function_type(types.none, taken)
        function = builder.inttoptr(args[0], function_type.as_pointer())
        status, _ = context.call_conv.call_function(builder, function, types.none, taken, args[1:])
        return builder.zext(status.is_error, context.get_value_type(types.intp))

    return signature, codegen


def count_threads(work: int) -> int:
    """Return how many threads are worth waking up for this many products of two numbers."""
    return 1 if work < LEAST_WORK or _is_forked else get_num_threads()


_is_forked = False


def _note_fork() -> None:
    """OpenMP does not survive a fork: the child process works with one thread."""
    global _is_forked
    _is_forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)
