"""The processor: the width and number of its registers, and when threads pay off."""

from typing import NamedTuple

from llvmlite import binding
from numba.core import config

LEAST_WORK = 2**18  # products of two numbers; with fewer, other threads wake up too late


class Host(NamedTuple):
    """How the kernels are sized for one kind of processor."""

    name: str  # of its vector registers
    register_bytes: int  # of one
    vectors: int  # how wide the block is whose sums a product keeps in registers
    straddles: bool = False  # reads a register from two lines of the cache as fast as from one


AVX512 = Host("AVX-512", 64, vectors=4)  # 32 registers: 24 sums, 4 of b, 1 of a
ZEN = AVX512._replace(straddles=True)  # AMD's
AVX2 = Host("AVX2", 32, vectors=2)  # 16 registers: 12 sums, 2 of b, 1 of a
NEON = Host("NEON", 16, vectors=4)  # 32 registers
BASELINE = Host("128 bits", 16, vectors=2)  # any other: LLVM makes do


def find_host() -> Host:
    """Return the cut for this processor, or for the one that NUMBA_CPU_NAME claims it to be."""
    if config.CPU_NAME == "generic":
        return BASELINE
    features = binding.get_host_cpu_features()
    if features.get("avx512f") and config.CPU_NAME is None:
        return ZEN if binding.get_host_cpu_name().startswith("znver") else AVX512
    if features.get("avx2"):
        return AVX2
    return NEON if features.get("neon") else BASELINE


HOST = find_host()
