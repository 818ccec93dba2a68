"""The kernels on other machines: processors, threads, and where nothing can be kept on disk."""

import os
import pickle
import re
import shutil
from pathlib import Path

import pytest
from llvmlite import binding

import mha_numpy
from mha_numpy.kernels.compile import CodeFiles
from tests.processes import run_python
from tests.sweeps import sweep

HAS_AVX2 = binding.get_host_cpu_features().get("avx2", False)
NOTICE = "mha_numpy: compiling its kernels"


# some of test_tiled.py, in float32 alone: each dtype takes 10 s to compile
SOME_PROBLEMS = (
    "from tests.kernels.test_tiled import *",
    "for seed in range(12):",
    "    assert_as_the_reference(*tiled_problem(seed), [np.float32], anywhere(seed))",
    "tiled.chunk_size = lambda *_: 64",
    "options = array_options(2, 4, 70, 200) | {'softcap': 2.0}",
    "assert_as_the_reference(random_inputs(2, 4, 2, 70, 200, 17, 33), options, [np.float32])",
    "assert_as_the_reference(random_inputs(2, 4, 2, 1, 200, 16, 80), {}, [np.float32])",
    "options = array_options(2, 4, 3, 70) | {'softcap': 2.0}",
    "assert_as_the_reference(random_inputs(2, 4, 2, 3, 70, 17, 33), options, [np.float32])",
    "assert_as_the_reference(random_inputs(2, 4, 4, 1, 5, 16, 33), {}, [np.float32])",
    "from tests.kernels.test_matmul import assert_product",
    "r = np.random.default_rng(0)",
    "a, b = (r.normal(size=size).astype(np.float32) for size in [(130, 600), (600, 70)])",
    "for operands in [(a, b), (np.asfortranarray(a), np.asfortranarray(b)), (a[:5], b)]:",
    "    assert_product(*operands)",
    "from tests.variants.test_linear_attention import assert_by_kernel",
    "for seed in range(12):",
    "    assert_by_kernel(seed, np.float32)",
)
# what is compiled for each is kept in pytest's own cache
COMPILED_ANEW = {
    "a processor with AVX2": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma"},
    "any processor": {"NUMBA_CPU_NAME": "generic"},
    "bounds checked": {"NUMBA_BOUNDSCHECK": "1"},
}
THREADS = {
    "more threads than cores": {"NUMBA_NUM_THREADS": "5"},
    "one thread": {"NUMBA_NUM_THREADS": "1"},
    "workqueue": {"NUMBA_THREADING_LAYER": "workqueue"},
}

by_layer = pytest.mark.parametrize("layer", sweep(["workqueue", "default"], 0))


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED_ANEW)
def test_on_another_machine(request, tmp_path, name):
    environment = COMPILED_ANEW[name]
    cache = getattr(request.config, "cache", None)
    folder = cache.mkdir(f"kernels for {name}") if cache else tmp_path
    if environment.get("NUMBA_CPU_NAME") == "haswell" and not HAS_AVX2:
        pytest.skip("this processor cannot run it")
    found, _ = run_python(
        *SOME_PROBLEMS,
        "from mha_numpy.kernels.host import HOST",
        "print(HOST.register_bytes)",
        NUMBA_CACHE_DIR=folder, **environment,
    )  # fmt: skip
    if "NUMBA_CPU_NAME" in environment:
        assert found == ["32" if environment["NUMBA_CPU_NAME"] == "haswell" else "16"]
    assert list(folder.rglob("*.nbc"))


@pytest.mark.slow
@pytest.mark.parametrize("name", sweep(THREADS, 1))
def test_with_other_threads(name):
    run_python("from mha_numpy.kernels import parallel", "parallel.LEAST_WORK = 0", *SOME_PROBLEMS,
        **THREADS[name])  # fmt: skip


# the bytes of out and of all gradients, by several threads
BOTH_PASSES = (
    "import numpy as np",
    "from mha_numpy import attention_backward, attention_forward",
    "from mha_numpy.kernels import parallel",
    "parallel.LEAST_WORK = 0",
    "rng = np.random.default_rng(0)",
    "q, k, v = (rng.normal(size=(2, 4, 150, 20)).astype(np.float32) for _ in range(3))",
    "def both(*_):",
    "    out, cache = attention_forward(q, k, v, is_causal=True, backend='numba')",
    "    return b''.join(x.tobytes() for x in (out, *attention_backward(out, cache)[:3]))",
)


@by_layer
def test_python_threads_may_call_at_once(layer):
    printed, _ = run_python(
        *BOTH_PASSES,
        "from concurrent.futures import ThreadPoolExecutor",
        "with ThreadPoolExecutor(4) as threads:",
        "    print(len(set(threads.map(both, range(60)))))",
        NUMBA_NUM_THREADS=2, NUMBA_THREADING_LAYER=layer,
    )  # fmt: skip
    assert printed == ["1"]


def test_without_compilation_the_reason_is_given():
    message, _ = run_python(
        "import numpy as np, mha_numpy",
        "x = np.ones((2, 3))",
        "try: mha_numpy.attention_forward(x, x, x, backend='numba')",
        "except mha_numpy.BackendError as error: print(error)",
        NUMBA_DISABLE_JIT=1,
    )
    assert "NUMBA_DISABLE_JIT" in message[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@by_layer
def test_a_forked_process_computes(layer):
    printed, _ = run_python(
        *BOTH_PASSES,
        "import os, signal",
        "before = both()",
        "assert parallel.count_threads(1) == 2",
        "child = os.fork()",
        "if child == 0:",
        "    signal.alarm(60)",  # rather than hang
        "    same = both() == before",
        "    grandchild = os.fork()",
        "    if grandchild == 0: os._exit(0 if both() == before else 3)",
        "    status = os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1])",
        "    os._exit(status if same else 4)",
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))",
        "print(both() == before, parallel.count_threads(1))",
        NUMBA_NUM_THREADS=2, NUMBA_THREADING_LAYER=layer,
    )  # fmt: skip
    assert printed == ["0", "True 2"]


@pytest.fixture
def copy(tmp_path):
    """A copy of the package in a folder of its own, without compiled code."""
    package = tmp_path / "copy" / "mha_numpy"
    shutil.copytree(
        Path(mha_numpy.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    return package


@pytest.fixture
def unwritable(tmp_path):
    """A path below a file: a folder that not even root can make."""
    (tmp_path / "file").touch()
    return tmp_path / "file" / "folder"


# two small kernels
COMPILE_TWO = (
    "import numpy as np",
    "from mha_numpy.kernels import one_pass",
    "for kernel in (one_pass.add_rows, one_pass.relu_rows):",
    "    one_pass.compiled(kernel, np.dtype(np.float32))",
    "    stats = kernel.stats",
    "    print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))",
)


class TestDisk:
    def test_processes_that_compile_at_once_keep_apart(self, tmp_path):
        kinds = ["float32", "float64"]
        for kind in kinds:  # each begins with an empty folder; both write into one
            (tmp_path / kind).mkdir()
            CodeFiles(tmp_path / kind, "kernel", "1").save((kind,), f"code for {kind}")
            shutil.copytree(tmp_path / kind, tmp_path, dirs_exist_ok=True)
        kept = CodeFiles(tmp_path, "kernel", "1")
        assert [kept.load((kind,)) for kind in kinds] == [f"code for {kind}" for kind in kinds]
        assert kept.load(("int8",)) is None

    @pytest.mark.parametrize("damaged", [
        lambda content: content[:-1], lambda content: content[:40], lambda content: b"",
        lambda content: content[:-1] + b"?", lambda content: pickle.dumps("code"),
    ])  # fmt: skip
    def test_a_damaged_file_is_no_code(self, tmp_path, damaged):
        kept = CodeFiles(tmp_path, "kernel", "1")
        kept.save((1,), "code")
        (path,) = tmp_path.iterdir()
        path.write_bytes(damaged(path.read_bytes()))
        assert kept.load((1,)) is None
        kept.save((1,), "code")
        assert kept.load((1,)) == "code"

    @pytest.mark.slow
    def test_a_full_disk(self, copy, tmp_path):
        full = (
            "import os",
            "def replace(*paths): raise OSError(28, 'No space left on device')",
            "os.replace = replace",
        )
        for _ in range(2):
            printed, _ = run_python(
                *full, *COMPILE_TWO, folder=copy.parent, NUMBA_CACHE_DIR=tmp_path / "kept"
            )
            assert printed == ["0 1", "0 1"]

    @pytest.mark.slow
    def test_compiled_once_until_any_source_changes(self, copy, tmp_path):
        def run_once():
            return run_python(*COMPILE_TWO, folder=copy.parent, NUMBA_CACHE_DIR=tmp_path / "kept")

        path = copy / "kernels" / "host.py"  # another than those of the two functions
        for changes in (False, True):
            if changes:
                before = path.stat()
                path.write_text(path.read_text() + "\n# changed\n")
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # the text counts
            printed, notice = run_once()
            assert printed == ["0 1", "0 1"]
            assert notice.count(NOTICE) == 1
            told = ["add_rows", "run_in_threads", "relu_rows"]
            assert re.findall(r"^mha_numpy: (\w+) \.\.\.$", notice, re.MULTILINE) == told
            printed, notice = run_once()
            assert printed == ["1 0", "1 0"]
            assert notice == ""

    @pytest.mark.slow
    def test_a_kernel_from_disk_and_one_just_compiled_keep_apart(self, tmp_path):
        lines = (
            "import numpy as np",
            "from mha_numpy import attention_backward, attention_forward",
            "rng = np.random.default_rng(0)",
            "q, d_out = rng.normal(size=(2, 1, 4, 5, 8)).astype(np.float32)",
            "k, v = rng.normal(size=(2, 1, 2, 7, 8)).astype(np.float32)",
            "out, cache = attention_forward(q, k, v)",
        )
        backward = (
            "found = attention_backward(d_out, cache, backend='numba')",
            "wanted = attention_backward(d_out, cache)",
            "print(all(np.allclose(*both, atol=1e-5) for both in zip(found[:3], wanted[:3])))",
        )
        forward = (
            "print(np.allclose(attention_forward(q, k, v, backend='numba')[0], out, atol=1e-5))",
        )
        for calls in (forward, (*forward, *backward)):
            printed, _ = run_python(*lines, *calls, NUMBA_CACHE_DIR=tmp_path)
            assert set(printed) == {"True"}

    @pytest.mark.slow
    def test_beside_the_source(self, copy):
        environment = {"NUMBA_CACHE_DIR": ""}
        run_python(*COMPILE_TWO, folder=copy.parent, **environment)
        assert list((copy / "kernels" / "__pycache__").glob("one_pass.add_rows*.nbc"))

    @pytest.mark.slow
    def test_in_the_user_s_folder_where_the_package_cannot_be_written_to(self, copy, tmp_path):
        (copy / "kernels" / "__pycache__").touch()
        environment = {"NUMBA_CACHE_DIR": "", "HOME": tmp_path, "XDG_CACHE_HOME": tmp_path / "user"}
        for expected in (["0 1", "0 1"], ["1 0", "1 0"]):
            printed, _ = run_python(*COMPILE_TWO, folder=copy.parent, **environment)
            assert printed == expected
        assert list(tmp_path.rglob("one_pass.add_rows*.nbc"))

    @pytest.mark.slow
    def test_nowhere(self, copy, unwritable):
        (copy / "kernels" / "__pycache__").touch()
        printed, notice = run_python(
            "import numpy as np, mha_numpy",
            "from mha_numpy.kernels import tiled",
            "print(mha_numpy.__file__)",
            "x = np.eye(3, dtype=np.float32)",
            "out, _ = mha_numpy.attention_forward(x, x, 3 * x, scale=100.0, backend='numba')",
            "print((out == 3 * x).all())",
            "print(tiled.forward_tiles.stats.cache_path)",
            folder=copy.parent, NUMBA_CACHE_DIR=unwritable, HOME=unwritable,
            XDG_CACHE_HOME=unwritable,
        )  # fmt: skip
        assert printed == [str(copy / "__init__.py"), "True", "None"]
        assert notice.count(NOTICE) == 1
