#!/bin/sh
# Makes .venv ready: the pinned packages, liveasr itself (editable), and a ggml that was built with its fast kernels.
#
#   tools/setup.sh         everything; under a second when nothing has changed
#   tools/setup.sh nano    after that: llama.cpp, for the language model of Fun-ASR-Nano
#   tools/setup.sh uv      only the virtual environment and uv, for `make requirements`
#   PYTHON=python3.12 ...  which interpreter to use, instead of the first suitable one
#
# POSIX sh, because macOS has an old bash and Debian's sh is dash.
set -eu
cd "$(dirname "$0")/.."

uv_version=0.13.9
min_minor=11 # of Python 3; requires-python in pyproject.toml says the same
venv=.venv
stamp=$venv/setup-stamp
nano_stamp=$venv/nano-stamp

say() { printf 'setup: %s\n' "$*"; }

# lacks WHAT DEBIAN_PACKAGES MACOS_COMMAND: notes one thing that is missing, and what brings it.
lacking='' debian_packages='' macos_commands=''
lacks() {
    lacking="$lacking${lacking:+, }$1"
    debian_packages="$debian_packages $2"
    case "$macos_commands" in *"$3"*) ;; *) macos_commands="$macos_commands${macos_commands:+ && }$3" ;; esac
}

# One line for all that is missing, so that one command is enough.
stop_if_lacking() {
    if [ -z "$lacking" ]; then return; fi
    if command -v apt-get >/dev/null 2>&1; then
        way="run, as root: apt-get install$debian_packages"
    elif [ "$(uname -s)" = Darwin ]; then
        way="run: $macos_commands"
    else
        way="install it with the system's package manager (in Debian's names:$debian_packages)"
    fi
    printf 'setup: missing: %s; %s\n' "$lacking" "$way" >&2
    exit 1
}

need_compilers() {
    # /usr/bin/c++, make and git of a bare macOS are stand-ins that open a dialog: ask what is behind them instead.
    if [ "$(uname -s)" = Darwin ] && ! xcode-select -p >/dev/null 2>&1; then
        lacks "the command line tools (C++ compiler, make, git)" "" "xcode-select --install"
        return
    fi
    # CC and CXX may carry arguments, as in CXX="ccache g++": only their first word is a command.
    for compiler in "${CXX:-c++}" "${CC:-cc}"; do
        if ! command -v "${compiler%% *}" >/dev/null 2>&1; then
            lacks "a C++ compiler to build ggml (no ${compiler%% *})" g++ "xcode-select --install"
            break
        fi
    done
    for tool in make git; do
        command -v $tool >/dev/null 2>&1 || lacks $tool $tool "xcode-select --install"
    done
}

# Running the interpreter is the only sure test: a version manager's shim is on PATH even when nothing is behind it.
is_recent() { "$1" -c "import sys; sys.exit(sys.version_info < (3, $min_minor))" >/dev/null 2>&1; }
has_venv() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

# Sets `python` to an interpreter that is recent enough and can make a virtual environment.
find_python() {
    python='' without_venv='' brew="brew install python@3.13"
    if [ -n "${PYTHON:-}" ]; then set -- "$PYTHON"; else set -- python3 python3.14 python3.13 python3.12 python3.11; fi
    for candidate in "$@"; do
        is_recent "$candidate" || continue
        if has_venv "$candidate"; then
            python=$candidate
            return
        fi
        without_venv=${without_venv:-$candidate}
    done
    if [ -n "$without_venv" ]; then # Debian keeps ensurepip in a package of its own
        lacks "the venv module (ensurepip) of $without_venv" "${without_venv##*/}-venv" "$brew"
    elif found=$("$1" --version 2>/dev/null); then
        lacks "Python 3.$min_minor or newer ($1 is $found)" "python3.$min_minor python3.$min_minor-venv" "$brew"
    else
        lacks "Python 3.$min_minor or newer (no $1)" "python3 python3-venv" "$brew"
    fi
}

# Console scripts hold the absolute path of their interpreter, so the path of the checkout is part of the stamp.
fingerprint() {
    pwd
    cksum requirements.txt pyproject.toml setup.py tools/setup.sh engines/kernels.c
}
nano_fingerprint() {
    fingerprint
    cksum requirements-nano.txt
}

identity() { "$1" -c 'import sys; print(sys.base_prefix, sys.version)' 2>/dev/null; }

# Has someone asked, by PYTHON=, for another interpreter than the one .venv was made with?
asks_for_another_python() { [ -n "${PYTHON:-}" ] && [ "$(identity "$PYTHON")" != "$(identity $venv/bin/python)" ]; }

# A plain ggml runs f16 at half speed. It can come from a cache, or have been put into .venv by hand: so ask the library.
ggml_is_fast() { $venv/bin/python -c 'import sys, ggml; sys.exit(not ggml.ggml_cpu_has_llamafile())' >/dev/null 2>&1; }

# Those for products with q8_0 weights, which are written for this kind of processor only.
has_kernels() { [ "$(uname -m)" != x86_64 ] || ls engines/_kernels.*.so >/dev/null 2>&1; }

make_venv() {
    clear=
    if [ -d $venv ]; then
        if asks_for_another_python; then
            clear="it was made with another Python"
        elif [ -f $stamp ] && [ "$(head -n 1 $stamp)" != "$(pwd)" ]; then
            clear="the checkout has moved"
        elif ! $venv/bin/python -m pip --version >/dev/null 2>&1; then
            clear="it is incomplete"
        fi
    fi
    if [ -n "$clear" ]; then say "making $venv anew: $clear"; fi
    if [ -n "$clear" ] || [ ! -d $venv ]; then "$python" -m venv --clear $venv; fi
    rm -f $stamp $nano_stamp
    case "$($venv/bin/uv --version 2>/dev/null || true)" in
    "uv $uv_version"*) ;;
    *) $venv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$uv_version" ;;
    esac
}

# uv reads [tool.uv] in the pyproject.toml of the working directory: the build variables of ggml-python come from there.
# --python, because uv would otherwise follow an activated environment; --no-binary, because nobody's wheel is built for this processor.
uv_install() { $venv/bin/uv pip install --python $venv/bin/python --no-binary ggml-python --no-binary llama-cpp-python "$@"; }

# All versions are pinned, so what lies in uv's cache is as good as what the index has: a second checkout is ready in
# seconds, and without a network. (Asked online, uv builds ggml again whenever a proxy hides that its sources are unchanged.)
install() { uv_install --offline --quiet "$@" 2>/dev/null || uv_install "$@"; }

install_packages() {
    say "installing the packages (the first time, building ggml takes one to three minutes)"
    install -r requirements.txt
    if ! ggml_is_fast; then
        # uv leaves an installed version alone, whatever way it was built; uninstalled first, it is taken from uv's cache
        # if it lies there with the right build variables, and built otherwise.
        say "ggml was built without GGML_LLAMAFILE, replacing it"
        $venv/bin/uv pip uninstall --python $venv/bin/python --quiet ggml-python
        install -r requirements.txt
    fi
    if ! ggml_is_fast; then
        say "still without GGML_LLAMAFILE, building it without any cache"
        CMAKE_ARGS="${CMAKE_ARGS:-} -DGGML_LLAMAFILE=ON" uv_install --reinstall-package ggml-python --no-cache -r requirements.txt
    fi
    if ! ggml_is_fast; then
        printf '%s\n' "setup: ggml-python does not load, or was built without GGML_LLAMAFILE (f16 models would run at half" \
            "speed); see what this says: $venv/bin/python -c 'import ggml; print(ggml.ggml_cpu_has_llamafile())'" |
            paste -s -d ' ' - >&2
        exit 1
    fi
    rm -f engines/_kernels.*.so # of other sources, or for another processor: it would stay where these do not compile
    install --no-deps --reinstall-package liveasr --editable .
    if ! has_kernels; then
        say "engines/kernels.c could not be compiled: models in q8_0 will run at a third of the speed that is possible"
    fi
}

if [ "${1:-}" = uv ]; then
    if [ -x $venv/bin/uv ]; then exit; fi
    find_python
    stop_if_lacking
    make_venv
    exit
fi
has_llama() { $venv/bin/python -c 'import llama_cpp' >/dev/null 2>&1; }
if [ "${1:-}" = nano ]; then
    if [ -f $nano_stamp ] && [ "$(cat $nano_stamp)" = "$(nano_fingerprint)" ] && has_llama; then exit; fi
    need_compilers
    stop_if_lacking
    say "installing what Fun-ASR-Nano needs (the first time, building llama.cpp takes five to ten minutes)"
    install -r requirements-nano.txt
    if ! has_llama; then
        say "llama.cpp does not load; see what this says: $venv/bin/python -c 'import llama_cpp'" >&2
        exit 1
    fi
    nano_fingerprint >$nano_stamp
    say "ready: Fun-ASR-Nano can run"
    exit
fi
if [ -f $stamp ] && [ "$(cat $stamp)" = "$(fingerprint)" ] && ! asks_for_another_python && ggml_is_fast && has_kernels; then
    exit
fi
need_compilers
find_python
stop_if_lacking
make_venv
install_packages
fingerprint >$stamp
say "ready: $venv/bin/liveasr"
