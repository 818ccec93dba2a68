"""The first cell of a notebook that runs without all that Python in a browser does not have."""

import concurrent.futures
import multiprocessing.process
import os
import signal
import subprocess
import sys
import threading

import matplotlib.font_manager  # noqa: F401 - may start a thread to look for fonts

PACKAGES = (
    "_multiprocessing", "concurrent.futures.process", "huggingface_hub", "jax", "llvmlite",
    "ml_dtypes", "numba", "onnx", "resource", "safetensors", "tokenizers", "torch",
)  # fmt: skip


def no_child(*_, **__):
    raise OSError("emscripten does not support processes.")


def no_thread(thread, start=threading.Thread.start):
    if not type(thread).__module__.startswith("zmq."):  # the kernel's own
        raise RuntimeError("can't start new thread")
    start(thread)


if __name__ == "__main__":  # a notebook's cell, and not who imports this file
    sys.modules |= dict.fromkeys(PACKAGES)
    vars(concurrent.futures).pop("ProcessPoolExecutor", None)  # which the kernel has used
    os.fork = subprocess.Popen.__init__ = multiprocessing.process.BaseProcess.start = no_child
    threading.Thread.start = no_thread
    for room, name in ((os, "memfd_create"), (os, "sched_getaffinity"), (signal, "setitimer")):
        delattr(room, name)
    sys.platform = "emscripten"
