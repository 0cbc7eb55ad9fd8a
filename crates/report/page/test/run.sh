#!/usr/bin/env bash
# The pages in headless Chromium: the report and, beside it, that of `terrace view`. `run.sh [DIRECTORY]`: the report in DIRECTORY,
# else the sample report.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ -d node_modules/playwright-core ]] || npm ci --silent --no-audit --no-fund
view=$(mktemp)
trap 'rm "$view"' EXIT
# Each has a browser of its own, whose pages run on one processor.
node test/view.mjs >"$view" 2>&1 &
status=0
node test/browser.mjs "$@" || status=$?
wait $! || status=$?
cat "$view"
exit "$status"
