"""What is said of a processor, from what Linux says of it."""

import sys

import pytest

from mha_numpy.bench import machine

XEON = """\
processor\t: 0
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Processor
stepping\t: 8
flags\t\t: fpu avx avx2 avx512f amx_tile

processor\t: 1
"""
ARM = "processor : 0\nFeatures  : fp asimd\n"


@pytest.fixture
def described(tmp_path, monkeypatch):
    def describe(text):
        monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
        machine.CPUINFO.write_text(text)
        return machine.describe_machine()

    return describe


def test_a_name_that_a_hypervisor_has_shortened(described):
    assert described(XEON)["processor"] == (
        "Intel(R) Xeon(R) Processor, family 6, model 143, stepping 8, AVX-512, AVX2, AMX"
    )


def test_a_processor_without_a_name(described, monkeypatch):
    monkeypatch.setattr(machine.platform, "processor", lambda: "")
    monkeypatch.setattr(machine.platform, "machine", lambda: "aarch64")
    found = described(ARM)
    assert found["processor"] == "aarch64, NEON"
    assert found["family"].startswith("aarch64, ")


@pytest.mark.parametrize(
    ("name", "brand"),
    [
        ("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "Intel Xeon"),
        ("AMD EPYC-Milan Processor", "AMD EPYC"),
        ("AMD Ryzen 9 7950X 16-Core Processor", "AMD Ryzen"),
        ("11th Gen Intel(R) Core(TM) i7-1165G7 @ 2.80GHz", "Intel Core"),
        ("aarch64", "aarch64"),
    ],
)
def test_family_begins_with_the_brand(described, name, brand):
    assert described(f"model name : {name}\n")["family"].startswith(f"{brand}, ")


def test_kernels_cut_for_a_lesser_processor(described, monkeypatch):
    host = pytest.importorskip("mha_numpy.kernels.host")
    monkeypatch.setattr(host, "HOST", host.AVX2)
    for name, reason in (("", ""), ("haswell", " by NUMBA_CPU_NAME=haswell")):
        monkeypatch.setenv("NUMBA_CPU_NAME", name)
        found = described(XEON)
        assert found["family"] == "Intel Xeon, AVX2"
        assert found["kernels"] == f"cut for AVX2{reason}"


def test_without_numba(described, monkeypatch):
    monkeypatch.setitem(sys.modules, "mha_numpy.kernels.host", None)
    assert described(XEON)["family"] == "Intel Xeon, no kernels"
