"""The machine that the figures depend on."""

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
NUMBERS = ("cpu family", "model", "stepping")
FLAGS = {"avx512f": "AVX-512", "avx2": "AVX2", "asimd": "NEON", "amx_tile": "AMX"}
PACKAGES = ("mha-numpy", "numpy", "numba", "llvmlite", "torch", "jax", "onnxruntime")


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe_machine() -> dict[str, str]:
    """Return family, processor, kernels, cores, load, system, Python, and versions of packages.

    Examples
    --------
    >>> list(describe_machine())[:4]
    ['family', 'processor', 'kernels', 'cores']
    """
    described = {
        **_processor(),
        "cores": str(cores()),
        "load": _load(),
        "system": _system(),
        "Python": platform.python_version(),
    }
    for package in PACKAGES:
        try:
            described[package] = version(package)
        except PackageNotFoundError:
            continue
    return described


def _processor() -> dict[str, str]:
    """Return family and full name of the processor, and the registers that kernels are cut for."""
    text = CPUINFO.read_text(encoding="utf-8", errors="replace") if CPUINFO.exists() else ""
    known = dict(re.findall(r"^(.+?)\s*: (.*)$", text, re.MULTILINE))
    name = known.get("model name") or platform.processor() or platform.machine()
    # hypervisors shorten names, but not numbers
    numbers = [f"{key.split()[-1]} {known[key]}" for key in NUMBERS if key in known]
    flags = (known.get("flags") or known.get("Features") or "").split()
    offered = [what for flag, what in FLAGS.items() if flag in flags]
    brand = re.findall(r"\w+", re.sub(r"\((R|TM)\)|^\d+th Gen", "", name))[:2]
    registers, kernels = _kernels()
    return {
        "family": f"{' '.join(brand)}, {registers}",
        "processor": ", ".join([name, *numbers, *offered]),
        "kernels": kernels,
    }


def _kernels() -> tuple[str, str]:
    """Return the registers that the kernels are cut for, and the same in words with the reason."""
    try:
        from mha_numpy.kernels.host import HOST
    except ImportError:
        return "no kernels", "none, because numba is not installed"
    claimed = os.environ.get("NUMBA_CPU_NAME")
    return HOST.name, f"cut for {HOST.name}" + f" by NUMBA_CPU_NAME={claimed}" * bool(claimed)


def _load() -> str:
    """Return how many processes were running in the last minute; any of them disturbs."""
    if not hasattr(os, "getloadavg"):
        return "unknown"
    load = os.getloadavg()[0]
    return f"{load:.1f}" + " (busy: expect odd figures)" * (load > 0.5)


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return f"{platform.system()} {platform.release()}"
