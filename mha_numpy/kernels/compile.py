"""Compiling with numba, and keeping the machine code on disk if there is a place for it."""

import hashlib
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import numba
from llvmlite.binding import Linkage
from numba.core import event
from numba.core.caching import IndexDataCacheFile
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

INNER = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
DIGEST = hashlib.sha256().digest_size  # bytes
REGROUP = {"reassoc", "contract"}  # sums in the processor's order; NaN and inf still count

_PACKAGE = Path(__file__).parent
# machine code holds parts of several files: a change in any of them makes all of it stale
_SOURCES = hashlib.sha256(b"".join(f.read_bytes() for f in sorted(_PACKAGE.glob("*.py"))))
_VERSION = _SOURCES.hexdigest()[:12]


def jit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function at its first call: ``@jit`` or ``@jit(parallel=True)``.

    The machine code is kept in ``NUMBA_CACHE_DIR``, next to the source, or in the user's cache
    folder: the first that can be written to. If none can, every process compiles again.
    """
    if function is None:
        return lambda function: jit(function, **options)
    if numba.config.DISABLE_JIT:
        return function
    options.setdefault("error_model", "numpy")  # x / 0 is inf or NaN, as in NumPy
    options["pipeline_class"] = _WholeCompiler
    try:
        dispatcher = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder can be written to
        NOTICE.often = "at each start, as no cache folder can be written to; set NUMBA_CACHE_DIR"
        return numba.njit(**options)(function)
    with suppress(AttributeError):  # where numba keeps this differently, its own name has to do
        kept = dispatcher._cache
        name = f"{kept._impl.filename_base}.{_VERSION}"
        kept._cache_file = CodeFiles(kept.cache_path, name, _VERSION)
        # what cannot be kept is compiled again
        kept._guard_against_spurious_io_errors = partial(suppress, OSError)
    return dispatcher


class CodeFiles(IndexDataCacheFile):
    """Files of machine code, each named after its source, signature and processor.

    numba numbers them in an index: two processes that compile at the same time take the same
    number, and each may then run the other's code. A file begins with a digest of the rest, so a
    damaged one is compiled again.
    """

    def save(self, key: Any, data: Any) -> None:
        """Keep the code compiled for this signature on this processor."""
        self._save_data(self._name(key), data)

    def load(self, key: Any) -> Any:
        """Return the kept code, or None."""
        with suppress(OSError):
            content = Path(self._data_path(self._name(key))).read_bytes()
            digest, data = content[:DIGEST], content[DIGEST:]
            if hashlib.sha256(data).digest() == digest:
                return pickle.loads(data)
        return None

    def _dump(self, code: Any) -> bytes:
        data: bytes = super()._dump(code)
        return hashlib.sha256(data).digest() + data

    def _name(self, key: Any) -> str:
        digest = hashlib.sha256(repr((numba.__version__, key)).encode()).hexdigest()
        name: str = self._data_name(int(digest[:16], 16))
        return name


def kernel(function: Callable[..., Any] | None = None, *, regroup: bool = False) -> Any:
    """Compile a function for `parallel` to run: ``@kernel``, or with sums in the processor's order.

    Nothing in it is allocated or kept, so references are not counted; Python cannot call it.
    """
    if function is None:
        return lambda function: kernel(function, regroup=regroup)
    return jit(function, **INNER, fastmath=REGROUP if regroup else False)


def inner(function: Callable[..., Any] | None = None, *, in_place: bool = False) -> Any:
    """Compile a part of kernels that nothing else calls, as `kernel` does: ``@inner``.

    ``@inner(in_place=True)`` puts its code where it is called, which avoids copying a large tuple
    of arguments.
    """
    if function is None:
        return lambda function: inner(function, in_place=in_place)
    if numba.config.DISABLE_JIT:
        return function
    return numba.njit(
        function, **INNER, error_model="numpy", forceinline=in_place, pipeline_class=_PartCompiler
    )


class _Part(JITCodeLibrary):
    """Code that goes into the kernels: they optimise it, and make machine code of it, once.

    numba would do both for each part, and again for each that calls it.
    """

    def add_llvm_module(self, ll_module: Any) -> None:
        """Take in the function's own code."""
        self._final_module.link_in(ll_module)

    def finalize(self) -> None:
        """Link only the parts that this one calls."""
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return that there is no machine code."""
        return 0

    @property
    def codegen(self) -> Any:
        """The object that sets the environment, which only Python's functions have."""
        return self

    def set_env(self, env_name: str, env: Any) -> None:
        """Set nothing."""


class _Whole(JITCodeLibrary):
    """A kernel with its own copy of its parts.

    numba tells parts with the same name and type apart by a number that starts again in every
    process, so a kernel from disk and a newly compiled one could call each other's parts. Unique
    names prevent that. Marking them "internal" is not enough, because the loader knows internal
    names too.
    """

    def _optimize_final_module(self) -> None:
        mark = uuid4().hex
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.linkonce_odr:
                function.name = f"{function.name}.{mark}"
                function.linkage = Linkage.internal
        super()._optimize_final_module()


class _PartCompiler(Compiler):
    """numba's compiler, with our own library."""

    kind: type[JITCodeLibrary] = _Part

    def __init__(self, typingctx: Any, targetctx: Any, library: Any, *rest: Any) -> None:
        library = self.kind(targetctx.codegen(), self.kind.__name__)
        library.enable_object_caching()
        super().__init__(typingctx, targetctx, library, *rest)


class _WholeCompiler(_PartCompiler):
    kind = _Whole


class _Notice(event.Listener):
    """Says that the first use takes longer, and which kernels it compiles."""

    said = False
    often = "once (`mha-numpy compile` does it ahead)"
    depth = 0  # parts are compiled while what they are parts of is

    def stop(self) -> None:
        """Stop printing notices."""
        event.unregister("numba:compile", self)

    def on_start(self, begun: event.Event) -> None:
        """Print a notice when numba starts to compile a kernel."""
        function = begun.data["dispatcher"].py_func
        self.depth += 1
        if self.depth > 1 or not str(function.__module__).startswith(f"{__package__}."):
            return
        if not self.said:
            self.said = True
            notice = "mha_numpy: compiling its kernels for this machine, a few seconds each"
            print(f"{notice}, {self.often}", file=sys.stderr)
        print(f"mha_numpy: {function.__name__} ...", file=sys.stderr, flush=True)

    def on_end(self, done: event.Event) -> None:
        """Note that a compilation is done."""
        self.depth -= 1


NOTICE = _Notice()
event.register("numba:compile", NOTICE)
