"""The machine: what figures depend on."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
PACKAGES = ("mha-numpy", "numpy", "numba", "llvmlite", "torch", "jax", "onnxruntime")


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe_machine() -> dict[str, str]:
    """Return processor, cores, load, system, Python, and the versions of packages that are here.

    Examples
    --------
    >>> list(describe_machine())[:4]
    ['processor', 'cores', 'load', 'system']
    """
    described = {
        "processor": _processor(),
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


def _processor() -> str:
    """Return the model of the processor, or at least its architecture."""
    if CPUINFO.exists():
        for line in CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _load() -> str:
    """Return how many processes were running in the last minute: more than none disturb."""
    if not hasattr(os, "getloadavg"):
        return "unknown"
    load = os.getloadavg()[0]
    return f"{load:.1f}" + " (busy: expect odd figures)" * (load > 0.5)


def _system() -> str:
    """Return the operating system with its version."""
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return f"{platform.system()} {platform.release()}"
