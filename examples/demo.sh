#!/usr/bin/env bash
# The whole loop on one machine: find, verify and install a faster forward pass, use it, roll it back.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH" STROP_HOME="${STROP_HOME:-.strop}"

say() { printf '\n\033[1m$ %s\033[0m\n' "$*"; "$@"; }

say strop observe examples/azure_conv_slice.csv --max-isl 512 --max-osl 256 --max-clusters 3
say strop optimize examples/demo.toml --report "$STROP_HOME/report.html"
if ! strop history smollm2-chat --json | grep '"alias_moved"' > /dev/null; then
    printf '\nNothing was proven faster on this machine today, so there is nothing to use or to roll back.\n'
    exit 0
fi
say python examples/greedy_text.py smollm2 smollm2-chat
say strop rollback smollm2-chat
say python examples/greedy_text.py smollm2 smollm2-chat
say strop history smollm2-chat
