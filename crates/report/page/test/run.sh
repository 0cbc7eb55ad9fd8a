#!/usr/bin/env bash
# The pages in headless Chromium: the report, then that of `terrace view`. `run.sh [DIRECTORY]`: the report in DIRECTORY, else
# the sample report.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ -d node_modules/playwright-core ]] || npm ci --silent --no-audit --no-fund
node test/browser.mjs "$@"
node test/view.mjs
