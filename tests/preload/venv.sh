#!/bin/sh
# venv.sh DIR: a Python environment with numpy and scipy from PyPI, made once and kept.
set -eu
[ ! -f "$1/complete" ] || exit 0
rm -rf "$1"
/usr/bin/python3 -m venv "$1"
"$1/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --timeout 20 --retries 1 \
    numpy scipy threadpoolctl
touch "$1/complete"
