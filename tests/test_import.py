import subprocess
import sys

HEAVY = ("numba", "matplotlib", "rich", "torch", "jax", "keras", "tensorflow", "scipy", "IPython")


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )


def test_import_loads_nothing_heavy():
    result = run(f"import mha_numpy, sys; print([m for m in {HEAVY} if m in sys.modules])")
    assert result.stdout.strip() == "[]", result.stderr


def test_everything_works_where_numba_is_not_installed():
    result = run(
        "import sys\n"
        "sys.modules['numba'] = None  # import numba now raises ImportError\n"
        "import numpy as np, mha_numpy\n"
        "x = np.ones((1, 3, 4))\n"
        "layer = mha_numpy.nn.MultiHeadAttention(4, 2)\n"
        "print(layer.backward(layer(x))[0].shape)\n"
    )
    assert result.stdout.strip() == "(1, 3, 4)", result.stderr


def test_import_of_the_kernels_allocates_nothing_large():
    result = run(
        "import numpy as np\n"
        "sizes, empty = [], np.empty\n"
        "np.empty = lambda *a, **kw: sizes.append(np.prod(a[0])) or empty(*a, **kw)\n"
        "import mha_numpy.kernels.tiled, mha_numpy.kernels.matmul, mha_numpy.kernels.loops\n"
        "print(max(sizes) < 1000)\n"
    )
    assert result.stdout.strip() == "True", result.stderr


def test_public_names_exist_and_are_documented():
    import mha_numpy

    for name in mha_numpy.__all__:
        assert getattr(mha_numpy, name).__doc__, name
