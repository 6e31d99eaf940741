"""Builds llama-cpp-python's own sources for a device into a folder for `LLAMA_CPP_LIB_PATH`.

`python -m bench.build vulkan FOLDER` downloads the sources of the installed release with pip, and builds the libraries
with the backend. The installed package is not changed:

    LLAMA_CPP_LIB_PATH=FOLDER/build/bin GGML_VK_VISIBLE_DEVICES=0 slipstream doctor

Vulkan on Debian 12 requires the packages `mesa-vulkan-drivers glslc libvulkan-dev spirv-headers` (and `vulkan-tools`
for inspection). Mesa's lavapipe is then a device on the processor, which llama.cpp ignores unless
`GGML_VK_VISIBLE_DEVICES` names it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

PACKAGE = "llama-cpp-python"
BACKENDS = ("vulkan", "cuda", "metal", "rpc", "cpu")
LEFT_OUT = ("SERVER", "TESTS", "EXAMPLES", "APP")
# Debian 12's headers lack types used in these lines, which serve validation only
VALIDATION = re.compile(r" *VkBool32 enable_best_practice = .*?vk::LayerSettingsCreateInfoEXT [^;]*;\n", re.DOTALL)


class BuildError(Exception):
    """The reason why the build failed, in a sentence."""


def run(*command: str | Path) -> None:
    """Run a command. Raises BuildError with the end of its output."""
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"{command[0]} cannot be run ({error.strerror}). Install cmake and ninja.") from error
    if done.returncode:
        raise BuildError(f"{' '.join(map(str, command[:3]))} failed: {(done.stdout + done.stderr)[-2000:]}")


def sources(folder: Path) -> Path:
    """Return the sources of the installed release's llama.cpp. Raises BuildError if they cannot be fetched."""
    name = f"llama_cpp_python-{version(PACKAGE)}"
    vendored = folder / name / "vendor" / "llama.cpp"
    if not vendored.is_dir():
        archive = folder / f"{name}.tar.gz"
        if not archive.is_file():
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", PACKAGE]
            run(*pip, "--dest", folder, f"{PACKAGE}=={version(PACKAGE)}")
        with tarfile.open(archive) as file:
            file.extractall(folder, [member for member in file if "/vendor/" in member.name], filter="data")
    return vendored


def without_validation(source: Path) -> None:
    """Remove Vulkan's validation settings from the file, as old headers lack their types."""
    text = source.read_text()
    changed = VALIDATION.sub("", text).replace(", layers, extensions, &layer_setting_info)", ", layers, extensions)")
    if changed != text:  # an unchanged file is not written, as its dependents would be compiled again
        source.write_text(changed)


def built(backend: str, folder: Path, jobs: int) -> Path:
    """Build the libraries and return their folder. Raises BuildError."""
    folder.mkdir(parents=True, exist_ok=True)
    source = sources(folder)
    if backend == "vulkan":
        without_validation(source / "ggml" / "src" / "ggml-vulkan" / "ggml-vulkan.cpp")
    build = folder / "build"
    options = [f"-DGGML_{backend.upper()}=ON", "-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF"]
    options += [f"-DLLAMA_BUILD_{part}=OFF" for part in LEFT_OUT]
    options += [f"-DLLAMA_BUILD_TOOLS={'ON' if backend == 'rpc' else 'OFF'}"]
    run("cmake", "-G", "Ninja", "-S", source, "-B", build, *options)
    targets = ["llama", *["ggml-rpc-server"] * (backend == "rpc")]
    run("cmake", "--build", build, "-j", str(jobs), "--target", *targets)
    return build / "bin"


def main() -> None:
    """Build, and print the folder of the libraries."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend", choices=BACKENDS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    try:
        print(built(options.backend, options.folder.resolve(), options.jobs))
    except BuildError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
