#!/usr/bin/env bash
# Formats the C sources as .clang-format requires. With --check, changes nothing, and fails if a file is not
# formatted so.
source "$(dirname "$0")/usage.sh"
set -euo pipefail
cd "$(dirname "$0")/.."

version=19
for tool in "clang-format-$version" clang-format; do
  if command -v "$tool" >/dev/null && [[ "$("$tool" --version)" =~ version\ $version\. ]]; then
    do=(-i)
    [ "${1:-}" != --check ] || do=(--dry-run -Werror)
    find src bench test -name '*.[ch]' -print0 | xargs -0 "$tool" --style=file "${do[@]}"
    exit
  fi
done
echo "format-c: clang-format $version is missing; install it by npm run setup -- --test, or the Debian package clang-format-$version." >&2
exit 1
