#!/usr/bin/env bash
# Runs this checkout on Arm in emulation: `tests/arm/run.sh` its tests.txt, `tests/arm/run.sh COMMAND` another command.
# The list has the bundled pair by every door, kernels, laws, early exit, heads, losses, stops, headers and the doctor;
# a small `prove` follows.
#
# The machine is an arm64 Debian in ~/.cache/slipstream/arm, made on the first call (7 minutes of computing): llama.cpp is
# cross-compiled, Python's packages are wheels for aarch64. ARM_ARCH names the instructions for which it is compiled,
# each in a folder of its own: armv8-a is a Raspberry Pi 4. QEMU_CPU names qemu's processor, and QEMU_PAGESIZE the bytes
# of a page that it shows. What runs is the last commit. qemu shows what is right, not what is fast: it is 20 to 30 times
# slower.
set -euo pipefail
here=$(realpath "$(dirname "$0")/../..")
place=${ARM_PLACE:-$HOME/.cache/slipstream/arm}
arch=${ARM_ARCH:-armv8.2-a+dotprod+i8mm+fp16}
machine=$place/machine libraries=/opt/llama/$arch pip=("$here/.venv/bin/python" -m pip)

skip() { echo "Arm is not tried: $1."; exit 0; }
[[ $(uname -sm) == "Linux x86_64" ]] || skip "it is emulated on Linux on x86-64 alone; on Arm itself use \`make test\`"
[[ -e /etc/debian_version && $EUID == 0 ]] || skip "that needs Debian and root, for a machine in a folder of its own"

tools() {
    if ! type qemu-aarch64-static debootstrap aarch64-linux-gnu-g++ cmake ninja >/dev/null 2>&1; then
        apt-get install --yes --quiet qemu-user-static debootstrap g++-aarch64-linux-gnu cmake ninja-build
    fi
    [[ -e /proc/sys/fs/binfmt_misc/register ]] || mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
    # The kernel starts programs with this head, an ELF file for aarch64, by qemu. F: which it opens now, so that the
    # machine's folder needs no copy
    local head='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
    local mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
    [[ -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ]] ||
        echo ":qemu-aarch64:M::$head:$mask:/usr/bin/qemu-aarch64-static:F" >/proc/sys/fs/binfmt_misc/register
}

system() {
    [[ ! -e $machine/made ]] || return 0
    rm -rf "$machine"
    local release mirror
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    mirror=$({ cat /etc/apt/sources.list{.d/debian*,} 2>/dev/null || true; } | awk '/^URIs:|^deb /{print $2; exit}')
    debootstrap --arch=arm64 --variant=minbase --include=python3,libgomp1,tmux "$release" "$machine" "$mirror"
    touch "$machine/made"
}

compiled() {
    [[ ! -e $machine$libraries/libllama.so ]] || return 0
    local sources build=$place/build # one for all: only the processor's kernels are compiled again for another ARM_ARCH
    sources=$(cd "$here" && .venv/bin/python -c 'import sys; from bench.build import sources; from pathlib import Path
print(sources(Path(sys.argv[1])))' "$place")
    cmake -G Ninja -S "$sources" -B "$build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON \
        -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
        -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
        -DGGML_NATIVE=OFF -DGGML_CPU_ARM_ARCH="$arch" -DGGML_OPENMP=OFF -DLLAMA_CURL=OFF -DLLAMA_BUILD_COMMON=OFF \
        -DLLAMA_BUILD_{TESTS,TOOLS,EXAMPLES,SERVER}=OFF >/dev/null
    ninja -C "$build" llama >/dev/null
    mkdir -p "$machine$libraries"
    cp -P "$build"/bin/*.so* "$machine$libraries"
}

packages() {
    [[ ! -e $machine/opt/packages ]] || return 0
    local tags=(--platform manylinux2014_aarch64) each known=$place/packages.txt version
    for each in {17..36}; do tags+=(--platform "manylinux_2_${each}_aarch64"); done
    version=$(chroot "$machine" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    "${pip[@]}" list --format=freeze --disable-pip-version-check | grep -viE '^(slipstream|llama|pip|setuptools|torch|nvidia|xllamacpp|mypy|ruff)' >"$known"
    "${pip[@]}" install --quiet --target "$machine/opt/incoming" "${tags[@]}" --python-version "$version" \
        --only-binary=:all: --no-deps --requirement "$known"
    local site=$("$here/.venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
    cp -r "$site"/llama_cpp "$site"/{slipstream,llama_cpp_python}-*.dist-info "$machine/opt/incoming"
    rm -f "$machine"/opt/incoming/llama_cpp/lib/* # for this machine's processor
    mv "$machine/opt/incoming" "$machine/opt/packages"
}

inside() {
    local checkout
    checkout=$(mktemp -d "$machine/opt/checkout.XXXX")
    trap "rm -rf '$checkout'" EXIT
    git -C "$here" archive HEAD | tar --extract --directory "$checkout"
    local folder=/opt/${checkout##*/}
    # In a mount namespace of its own, /proc and /dev are there no longer than the command. Of this machine's environment
    # it has only what is qemu's: certificates, say, are named that are not there
    unshare --mount bash -c 'mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; exec chroot "$0" "$@"' "$machine" \
        /usr/bin/env --ignore-environment --chdir "$folder" ${QEMU_CPU:+QEMU_CPU="$QEMU_CPU"} \
        ${QEMU_PAGESIZE:+QEMU_PAGESIZE="$QEMU_PAGESIZE"} PATH=/usr/bin:/bin PYTHONPATH="$folder:/opt/packages" LLAMA_CPP_LIB_PATH="$libraries" \
        LD_LIBRARY_PATH="$libraries" HOME=/root LANG=C.UTF-8 TERM=dumb SLIPSTREAM_NO_SEARCH=1 TESTS_PATIENCE=1200 "$@"
}

main() {
    mkdir -p "$place"
    tools
    system
    compiled
    packages
    [[ $# -gt 0 ]] || set -- sh -c 'python3 -m pytest -q -m "" -p no:cacheprovider -o timeout=3600 --durations=15 @tests/arm/tests.txt &&
        python3 -m bench.prove --draws 100 --prompts 1 --ways 2 --jobs 1'
    inside "$@"
}

main "$@"; exit # bash reads no further, so that this file may change meanwhile
