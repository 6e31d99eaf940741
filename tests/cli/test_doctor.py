"""`slipstream doctor`: what it measures, what it concludes, and the commands that it names."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from app.cli import doctor
from app.cli.doctor_advice import (
    PYTHON,
    break_even,
    cuda_index,
    lengths_in_words,
    models_that_fit,
    pairs_that_fit,
    prebuilt,
    problems,
)
from runtime.core.recompiling import reinstall, with_images
from runtime.engine import machine
from runtime.models.registry import Pair

HEALTHY: dict[str, Any] = {
    "gpu_hardware": [],
    "devices": [{"backend": "CPU", "name": "x", "free_bytes": 1, "total_bytes": 1}],
    "backends": ["CPU"],
    "processor_flags": ["avx2"],
    "cpu_features": ["AVX2"],
    "versions": {"llama-cpp-python": "0.3.36"},
    "busy_processes": 0.1,
    "cores": 4,
    "is_exact": True,
    "pair": "x",
    "unquoted_roles": [],
    "exactness": "exact up to width 9",
    "memory_free_bytes": 2**33,
}


def found(**changes: Any) -> str:
    """Problems and remedies in one text."""
    return "\n".join(f"{entry['problem']} {entry['remedy']}" for entry in problems({**HEALTHY, **changes}))


def test_a_draft_pays_from_the_share_at_which_it_is_as_fast_as_plain_decode() -> None:
    share = break_even({1: 1.0, 2: 1.5, 4: 2.0}, 3, 0.1)
    assert share is not None
    assert (1 + share + share**2 + share**3) / (3 * 0.1 + 2.0) == pytest.approx(1.0)


def test_a_free_pass_pays_at_once_and_one_that_costs_a_whole_pass_never() -> None:
    assert break_even({1: 1.0, 2: 1.0}, 1, 0.0) == pytest.approx(0.0, abs=1e-6)
    assert break_even({1: 1.0, 2: 1.9}, 1, 0.2) is None
    assert lengths_in_words({1: 1.0, 2: 1.6, 3: 4.0}, 0.0) == [
        "drafts of 1 pay here if more than 6.0 in 10 are accepted",
        "drafts of 2 cannot pay here",
    ]


def test_a_healthy_machine_has_no_problem() -> None:
    assert found() == ""


def test_a_gpu_that_is_not_used_gets_the_command_that_compiles_for_it() -> None:
    for hardware, option in (
        ("CUDA", "-DGGML_CUDA=on"),
        ("HIP", "-DGGML_HIP=on"),
        ("METAL", "-DGGML_METAL=on"),
        ("VULKAN", "-DGGML_VULKAN=on"),
    ):
        assert option in found(gpu_hardware=[hardware])
    assert "-DGGML_CUDA=on" in found(gpu_hardware=["CUDA", "VULKAN"])


def test_a_gpu_that_is_used_is_no_problem() -> None:
    for hardware, backend in (("CUDA", "CUDA"), ("HIP", "ROCm"), ("METAL", "MTL"), ("VULKAN", "Vulkan")):
        assert found(gpu_hardware=[hardware], devices=[{"backend": backend}]) == ""
    assert found(gpu_hardware=["CUDA", "VULKAN"], devices=[{"backend": "Vulkan"}]) == ""


def test_a_gpu_that_hides_from_a_library_that_was_compiled_for_it_needs_no_compiler() -> None:
    text = found(gpu_hardware=["CUDA"], backends=["CUDA", "CPU"])
    assert "finds no device" in text
    assert "pip install" not in text


def test_drivers_and_backends_are_named_side_by_side() -> None:
    assert doctor.gpus(HEALTHY) == "no driver found; llama.cpp is compiled for the CPU only"
    lavapipe = {"backend": "Vulkan", "name": "llvmpipe", "free_bytes": 1, "total_bytes": 1}
    with_device = {"gpu_hardware": [], "backends": ["Vulkan", "CPU"], "devices": [*HEALTHY["devices"], lavapipe]}
    assert doctor.gpus(with_device) == "a device that llama.cpp finds; llama.cpp is compiled for Vulkan"
    assert (
        doctor.gpus({"gpu_hardware": ["CUDA"], "backends": ["CUDA", "CPU"], "devices": HEALTHY["devices"]})
        == "an NVIDIA driver; llama.cpp is compiled for CUDA"
    )


def test_pairs_fit_by_the_size_that_is_known() -> None:
    pairs = [
        Pair(name, Path("x.gguf"), size=size)
        for name, size in (("small", 10), ("large", 60), ("too-large", 90), ("unknown", 0))
    ]
    assert pairs_that_fit(100, pairs) == ["large", "small"]


def test_other_faults_are_named_with_what_mends_them() -> None:
    assert "compiled without AVX2" in found(cpu_features=[])
    assert "run `slipstream doctor` again" in found(busy_processes=3.0)
    assert "Use `--exact`" in found(is_exact=False)
    assert "changes messages (user, tool)" in found(unquoted_roles=["user", "tool"])
    assert "both exact and free" in found(is_exact=False, devices=[{"backend": "CUDA"}])
    assert "use a small model" in found(memory_free_bytes=2**28)


def test_a_library_for_an_older_arm_is_named_also_if_pip_did_not_install_it() -> None:
    arm = {"processor_flags": ["asimd", "asimddp", "i8mm"], "cpu_features": ["NEON"], "versions": {}}
    assert "compiled without DOTPROD, MATMUL_INT8" in found(**arm)
    assert found(**arm).endswith('"llama-cpp-python"')
    assert found(**arm | {"cpu_features": ["NEON", "DOTPROD", "MATMUL_INT8"]}) == ""


def test_the_command_is_one_that_a_shell_takes_apart_rightly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    words = shlex.split(reinstall("0.3.36", "CUDA", python=PYTHON))
    assert words[:5] == ["CMAKE_ARGS=-DGGML_CUDA=on", sys.executable, "-m", "pip", "install"]
    assert words[-1] == "llama-cpp-python==0.3.36"
    words = shlex.split(with_images("0.3.36", ["CPU", "ROCm", "RPC"]))
    assert words[:3] == ["CMAKE_ARGS=-DGGML_HIP=on -DGGML_RPC=on -DLLAVA_BUILD=on", "pip", "install"]
    monkeypatch.setattr(sys, "platform", "win32")
    assert reinstall("0.3.36", "VULKAN", python=PYTHON).startswith('$env:CMAKE_ARGS = "-DGGML_VULKAN=on"; & "')


def test_more_fits_in_fewer_bits() -> None:
    fits = models_that_fit(10**10)
    assert fits["Q4_K"] > fits["Q8_0"] > 1


def test_this_machine_is_examined(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(machine, "PASS_SECONDS", 0.5)
    monkeypatch.setattr(machine, "BANDWIDTH_BYTES", 2**24)
    doctor.run("demo", as_json=True)
    seen = json.loads(capsys.readouterr().out)
    assert seen["memory_bytes_per_second"] > 0
    assert seen["pass_seconds"]["1"] > 0
    assert seen["draft_seconds"] > 0
    assert seen["unquoted_roles"] == []
    assert seen["versions"]["llama-cpp-python"]
    assert any(device["backend"] == "CPU" for device in seen["devices"])
    assert "CPU" in seen["backends"]
    lines = "\n".join(doctor.report(seen))
    assert "time of a pass" in lines
    assert "For the pair demo, with its draft model" in lines  # whether drafts pay depends on how busy the machine is


def test_a_library_that_cannot_be_loaded_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> list[machine.Device]:
        raise OSError("libggml.so: cannot open shared object file")

    monkeypatch.setattr(machine, "devices", fail)
    monkeypatch.setattr(machine, "BANDWIDTH_BYTES", 2**24)
    with pytest.raises(
        doctor.LibraryError, match=r"cannot be loaded .* Reinstall it: .* pip install --force-reinstall"
    ):
        doctor.examine("demo")


def test_a_wheel_that_needs_no_compiler_is_named_first() -> None:
    texts = found(gpu_hardware=["CUDA"], cuda_version="12.7")
    assert texts.index("/whl/cu125 ") < texts.index("-DGGML_CUDA=on")
    assert "/whl/" not in found(gpu_hardware=["CUDA"], cuda_version="")
    assert "/whl/metal " in found(gpu_hardware=["METAL"])
    assert prebuilt("0.3.36").endswith(
        '--extra-index-url https://abetlen.github.io/llama-cpp-python/whl/cpu "llama-cpp-python==0.3.36"'
    )


@pytest.mark.parametrize(
    ("driver", "index"),
    [
        ("11.4", ""),
        ("11.8", "cu118"),
        ("12.0", "cu118"),
        ("12.4", "cu124"),
        ("13.1", "cu130"),
        ("14.0", "cu132"),
        ("", ""),
    ],
)
def test_the_index_is_the_newest_that_the_driver_runs(driver: str, index: str) -> None:
    assert cuda_index(driver) == index


def test_the_drivers_version_of_cuda_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.cuda_version() == ""
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\necho '| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: 12.4     |'\n"
    )
    program.chmod(0o755)
    assert machine.cuda_version() == "12.4"
