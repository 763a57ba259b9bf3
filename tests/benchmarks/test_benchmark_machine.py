"""What benchmarks read off a machine, and their samples."""

from pathlib import Path

import models
import numpy as np
import pytest
from compare_laddu import options_of
from fresh_process import peak_bytes
from machine import assembly_of_addition, processor_name, vector_bits

from laddu_dask.kernels.target import current_target


@pytest.mark.parametrize(
    ("assembly", "bits"),
    [
        ("vaddpd %zmm1, %zmm0, %zmm0", 512),
        ("vaddpd %ymm2, %ymm0, %ymm0\nvaddpd %ymm3, %ymm1, %ymm1", 256),
        ("addpd %xmm4, %xmm0", 128),
        ("fadd v0.2d, v0.2d, v4.2d", 128),
    ],
)
def test_vector_width_is_read_from_the_registers(assembly: str, bits: int) -> None:
    assert vector_bits(assembly) == bits


def test_this_machine_adds_in_vectors() -> None:
    assert "add" in assembly_of_addition(current_target())


def test_processor_name(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Fast 9000 \nprocessor\t: 1\n")
    assert processor_name(cpuinfo) == "Fast 9000"
    assert processor_name(tmp_path / "none")


def test_peak_memory_is_in_bytes() -> None:
    assert peak_bytes("Name:\tpython\nVmHWM:\t   2048 kB\nVmRSS:\t  1024 kB\n") == 2 * 2**20
    with pytest.raises(SystemExit, match="VmHWM"):
        peak_bytes("Name:\tpython\n")


def test_thread_counts_are_numbers_or_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compare_laddu.available_threads", lambda: 2)
    assert options_of([]).threads == [1, 2]
    assert options_of(["--threads", "2", "all"]).threads == [2]
    for wrong in (["--threads", "0"], ["--threads", "most"], ["--data", "0"]):
        with pytest.raises(SystemExit):
            options_of(wrong)


def test_samples_have_what_the_models_read() -> None:
    for name in models.MODELS:
        data = models.events(name, 100, "data")
        accepted_mc = models.events(name, 100, "accepted_mc")
        assert [*data] == [*models.READS[name], "weight"]
        assert [*accepted_mc] == [*data]
        assert np.all(data["weight"] == 1.0)
        assert np.all((accepted_mc["weight"] >= 0.5) & (accepted_mc["weight"] < 1.5))
        assert np.any(data[models.READS[name][0]] != accepted_mc[models.READS[name][0]])
