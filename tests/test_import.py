import ast
import inspect
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import mha_numpy

PACKAGE = Path(mha_numpy.__file__).parent
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}
HEAVY = ("numba", "matplotlib", "rich", "torch", "jax", "keras", "tensorflow", "scipy", "IPython")


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )


def test_import_loads_nothing_heavy():
    result = run(f"import mha_numpy, sys; print([m for m in {HEAVY} if m in sys.modules])")
    assert result.stdout.strip() == "[]", result.stderr


def test_identify_is_imported_once_it_is_asked_for():
    loaded = "print('mha_numpy.identifying' in sys.modules, end=' ')\n"
    result = run(f"import sys, mha_numpy\n{loaded}mha_numpy.identify\n{loaded}")
    assert result.stdout.split() == ["False", "True"], result.stderr


def test_everything_works_where_numba_is_not_installed():
    result = run(
        "import sys\n"
        "sys.modules['numba'] = None  # import numba now raises ImportError\n"
        "import numpy as np, mha_numpy\n"
        "x = np.ones((1, 3, 4))\n"
        "layer = mha_numpy.layers.MultiHeadAttention(4, 2)\n"
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


@cache
def imported_by(path):
    """Return the modules of the package that a module names, in functions and for types too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:  # of the same folder
                folder = ".".join(path.relative_to(PACKAGE.parent).parts[: -node.level])
                source = f"{folder}.{source}".removesuffix(".")
            wholes = {f"{source}.{name.name}" for name in node.names}
            found |= {whole if whole in MODULES else source for whole in wholes}
    return found


def test_no_modules_import_each_other_in_a_circle():
    graph = {module: imported_by(path) for module, path in MODULES.items()}
    assert "mha_numpy.dtypes" in graph["mha_numpy.core.attention"]
    TopologicalSorter(graph).prepare()  # raises a CycleError


def test_signatures_are_short():
    signature = str(inspect.signature(mha_numpy.attention_forward))
    assert signature.startswith("(q: Array, k: Array, v: Array, *, mask: Array | None = None, ")
    functions = [getattr(mha_numpy, name) for name in mha_numpy.__all__]
    functions = [function for function in functions if inspect.isfunction(function)]
    assert not [f for f in functions if "numpy.ndarray" in str(inspect.signature(f))]


def test_public_names_exist_and_are_documented():
    for name in mha_numpy.__all__:
        assert getattr(mha_numpy, name).__doc__, name


# from the ground up; each room imports those before it
ROOMS = (
    "checking",
    "kernels",
    "core",
    "variants",
    "layers",
    "models",
    "show",
    "bench",
    "conformance",
    "teach",
    "identifying",
    "cli",
)


def test_no_import_runs_upward():
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert {*ROOMS} == rooms
    upward = []
    for module, path in MODULES.items():
        _, room, *_ = [*module.split("."), ""]
        if room in {"", "__main__"}:  # the public names
            continue
        above = ROOMS[ROOMS.index(room) + 1 :] if room in ROOMS else ROOMS  # of the ground: all
        upward += [
            f"{module} imports {name}"
            for name in imported_by(path)
            if name.startswith("mha_numpy.") and name.split(".")[1] in above
        ]
    assert not upward
