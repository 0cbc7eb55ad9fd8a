#!/usr/bin/env bash
# The pages in headless Chromium: the report and, beside it, that of `terrace view`. `run.sh [DIRECTORY]`: the report in DIRECTORY,
# else the sample report.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ -d node_modules/playwright-core ]] || npm ci --silent --no-audit --no-fund
view=$(mktemp)
# Both run at once. Each starts its own browser, and the pages of one browser share a processor.
node test/view.mjs >"$view" 2>&1 &
view_pid=$!
trap 'kill "$view_pid" 2>/dev/null || true; rm -f "$view"' EXIT
status=0
node test/browser.mjs "$@" || status=$?
wait "$view_pid" || status=$?
cat "$view"
exit "$status"
