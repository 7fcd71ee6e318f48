#!/usr/bin/env bash
# Follows the README in a clean clone of HEAD, with the first Node and npm in PATH and an empty npm cache:
# runs `npm start` twice. Prints the duration of each part and the programs that compiled something. Exits
# with 1 if a tour failed or if anything other than Weir was compiled. The clone uses the system packages of
# this machine, which `npm run setup -- --test` installs.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone --quiet --no-hardlinks . "$work/weir"
cd "$work/weir"
export npm_config_cache=$work/cache

# Runs `npm start`, and records the time of each output line and every program that was started.
follow() {
  local status=0
  printf '%s begin\n' "$EPOCHREALTIME" >"$work/$1.log"
  strace -f --seccomp-bpf -qq --status=successful -e trace=execve -s 300 -o "$work/$1.trace" npm start </dev/null 2>&1 |
    while IFS= read -r line; do printf '%s %s\n' "$EPOCHREALTIME" "$line"; done >>"$work/$1.log" || status=1
  printf '%s end\n' "$EPOCHREALTIME" >>"$work/$1.log"
  if [ "$status" != 0 ]; then cut -d' ' -f2- "$work/$1.log"; fi
  return "$status"
}

# Prints the seconds between the first lines of log $1 that match the patterns $2 and $3.
between() { awk -v from="$2" -v to="$3" '!a && $0 ~ from { a = $1 } !b && $0 ~ to { b = $1 } END { printf "%.1f", b - a }' "$work/$1.log"; }

follow first
follow second
printf '  packages %s s, compile %s s, tour %s s, all %s s; again %s s\n' \
  "$(between first 'npm packages' 'build: TypeScript')" "$(between first 'build: TypeScript' '> node bin/weir')" \
  "$(between first '> node bin/weir' ' end$')" "$(between first ' begin$' ' end$')" "$(between second ' begin$' ' end$')"

# Finds in the traces each start of a compiler, of a build tool, and of Node with a build tool.
compiler='(cc|gcc|g[+][+]|c[+][+]|clang([+][+])?|cc1(plus)?|collect2|ld([.][a-z]+)?|as|make|ninja|cmake|python[0-9.]*)(-[0-9.]+)?'
started=$(grep -hE "execve\(\"([^\"]*/)?$compiler\"|\[\"([^\"]*/)?node\", \"([^\"]*/)?(tsc|node-gyp|cnoke)[^\"/]*\"" "$work"/*.trace || true)
count() { printf '%s\n' "$started" | grep -cE "$1" || true; }
others=$(printf '%s\n' "$started" | grep -vE '/tsc"|"-target", "bpf"|^$' || true)
printf '  compiled: TypeScript %s time, objects of BPF %s\n' "$(count '/tsc"')" "$(count '"-target", "bpf"')"
if [ "$(count '/tsc"')" != 1 ] || [ "$(count '"-target", "bpf"')" != 2 ] || [ -n "$others" ]; then
  printf '  that should be 1 and 2, and nothing else:\n%s\n' "$others"
  exit 1
fi
