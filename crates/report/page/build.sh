#!/usr/bin/env bash
# Builds the pages of the report (src/main.ts) and of `terrace view` (src/view), with Apache ECharts, in dist/. The result is
# committed, so that building Terrace needs Rust alone. `--check` builds beside it and fails where the committed files are not
# what comes out.
set -euo pipefail
cd "$(dirname "$0")"

if ! command -v npm >/dev/null; then
  echo "page/build.sh: npm is missing; on Debian: apt-get install nodejs npm" >&2
  exit 1
fi

out=dist
if [ "${1:-}" = --check ]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi

if [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
  npm ci --silent
fi
npx --no-install tsc
bundle() {
  npx --no-install esbuild "$1" --bundle --minify --format=iife --target=es2022 \
    --legal-comments=inline --charset=utf8 --outfile="$out/$2.js" --log-level=warning
}
bundle src/main.ts report
bundle src/view/main.ts view
{
  echo "report.js and view.js contain these libraries."
  for library in echarts zrender tslib; do
    echo
    echo "=== $library $(node -p "require('./node_modules/$library/package.json').version")"
    echo
    for name in LICENSE LICENSE.txt NOTICE; do
      if [ -e "node_modules/$library/$name" ]; then cat "node_modules/$library/$name"; fi
    done
  done
} | sed 's/[[:space:]]*$//' >"$out/LICENSES.txt"

if [ "$out" != dist ]; then
  for name in report.js report.css view.js view.css LICENSES.txt; do
    if ! cmp -s "$out/$name" "dist/$name"; then
      echo "page/dist/$name is not what page/src builds; run page/build.sh and commit the result" >&2
      exit 1
    fi
  done
  echo "page/dist is up to date"
fi
