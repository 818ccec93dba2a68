"""Apply each mutation to a copy of the package and run its folder's tests until one fails.

``python -m tests.mutation.runner`` prints a line for each, with ``--third`` for every third. A
forked child starts with NumPy and pytest loaded, so one mutation costs a few seconds. With
``--bank`` it is not the core's own tests that have to catch the core's mutations, but the probes of
the exercises, whose right answers owe the core nothing.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np  # noqa: F401
import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.teach.diagnosis.mutants import apply_edits
from tests.mutation.mutations import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]
NAMES = (
    "softmax", "linear", "shapes", "masks", "attention", "multihead", "positions", "kv_cache",
    "wrong_input", "backends", "gradients", "extra_keys", "options", "around", "merge",
    "rope_scaling", "relative_bias", "forward_mode",
)  # fmt: skip
# the tests to try first, where they are not called as the file is
NEAREST = {
    "options": "attention", "grouped": "attention", "dtypes": "attention", "rope": "positions",
    "attention_jvp": "forward_mode", "attention_second_order": "forward_mode",
    "kernel_calls": "backends", "qk_norm": "around", "output_gate": "around",
}  # fmt: skip
MACHINE_CODE = shutil.ignore_patterns("*.nbc")  # of no use to those who run no kernel
BANK = ["tests/teach/exercises/test_core_by_the_bank.py"]
OTHERS = {  # folders with few tests: all of them
    "layers": (
        "values", "cross_entropy", "every_pair", "transformer_blocks", "pair_layers",
        "attention_layer", "gated_delta", "experts",
    ),
    "core/caches": ("every_kind", "rolling", "paged", "int8", "tree"),
    "variants": (
        "linear_attention", "causal_conv", "latent", "differential", "block_selection",
    ),
}  # fmt: skip
UNCHANGED = Mutation("nothing at all", "softmax.py", {})


def suite_for(mutation: Mutation) -> list[str]:
    """Return all test files of the mutated file's folder, the nearest to the file first."""
    if mutation.folder in OTHERS:
        return [f"tests/{mutation.folder}/test_{name}.py" for name in OTHERS[mutation.folder]]
    stem = mutation.file.removesuffix(".py")
    nearest = NEAREST.get(stem, stem)
    return [f"tests/core/test_{name}.py" for name in sorted(NAMES, key=lambda n: n != nearest)]


def start(mutation: Mutation, suite: list[str], folder: str) -> int:
    """Fork a child that runs the suite on a mutated copy; return its process id."""
    for part in ("mha_numpy", "tests"):
        shutil.copytree(ROOT / part, Path(folder, part), ignore=MACHINE_CODE)
    shutil.copy(ROOT / "pyproject.toml", folder)
    source = Path(folder, "mha_numpy", mutation.path)
    source.write_text(apply_edits(source.read_text(), mutation.edits))
    child = os.fork()
    if child == 0:
        os._exit(_run_pytest(folder, suite))
    return child


def _run_pytest(folder: str, suite: list[str]) -> int:
    """Run the suite quietly, in a child process, on the package in `folder`."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.chdir(folder)
    for name in [m for m in sys.modules if m.split(".")[0] in ("tests", "mha_numpy")]:
        del sys.modules[name]
    sys.path[:] = [folder] + [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # a mistake shows in README's tests, and in the core without kernels, which compile for long
    quick = "not kernel and not slow and not release"
    options = ["-x", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "-m", quick]
    # file by file: most mistakes fall to a quick one, and the others are not even collected
    codes = (int(pytest.main([*options, file])) for file in suite)
    return next((code for code in codes if code != 0), 0)


def outcomes(jobs: list[tuple[Mutation, list[str]]]) -> Iterator[tuple[Mutation, int]]:
    """Yield each mutation with pytest's exit code, 0 all passed, 1 some failed, as they end."""
    waiting, running = list(reversed(jobs)), {}
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            mutation, suite = waiting.pop()
            folder = tempfile.TemporaryDirectory()
            running[start(mutation, suite, folder.name)] = (mutation, folder)
        child, status = os.wait()
        mutation, folder = running.pop(child)
        folder.cleanup()
        yield mutation, os.waitstatus_to_exitcode(status)


def main(arguments: list[str]) -> int:
    """Print one line for each mutation; return how many were not caught."""
    missed, by_bank = 0, "--bank" in arguments
    applicable = []
    for mutation in MUTATIONS[:: 3 if "--third" in arguments else 1]:
        if by_bank and mutation.folder != "core":
            continue
        try:
            apply_edits((ROOT / "mha_numpy" / mutation.path).read_text(), mutation.edits)
            applicable.append(mutation)
        except ConfigError as error:
            print(f"MISSED  {mutation.mistake}: {error}")
            missed += 1
    # an unchanged copy passes all but the long test_gradients
    jobs = [(UNCHANGED, BANK if by_bank else suite_for(UNCHANGED)[:-1])]
    for folder in () if by_bank else OTHERS:
        unchanged = UNCHANGED._replace(file="__init__.py", folder=folder)
        jobs.append((unchanged, suite_for(unchanged)))
    jobs += [(mutation, BANK if by_bank else suite_for(mutation)) for mutation in applicable]
    for mutation, code in outcomes(jobs):
        expected = 1 if mutation.edits else 0
        verdict = "MISSED" if code != expected else "passes" if expected == 0 else "caught"
        print(
            f"{verdict}  {mutation.mistake}  ({mutation.file}, pytest exit code {code})", flush=True
        )
        missed += code != expected
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
