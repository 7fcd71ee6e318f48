#!/bin/bash
# The command `weir` of the installed Debian package. `weir run` gets from this script what weir.service gets
# from systemd: the commands before the start, the user, the capabilities, the system calls, the limits and
# the environment. Usage: as-unit.sh [run --config FILE | ARGUMENT...]
set -euo pipefail
[ "${1:-}" = run ] || exec /usr/bin/weir "$@"
config=${!#}

setting() { sed -n "s/^$1=//p" /usr/lib/systemd/system/weir.service; }
# Usage: key NAME DEFAULT: prints a path of the configuration.
key() {
  local path
  path=$(sed -nE "s/.*\"?$1\"? *: *\"?([^\",}]+).*/\1/p" "$config" | head -n 1)
  echo "${path:-$2}"
}
user=$(setting User) data=$(key data_dir /var/lib/weir) pins=$(key pin_path /sys/fs/bpf/weir)

# All users can reach /etc/weir and the socket of systemd, but not the folders of the tests. Another test can
# remove its folder meanwhile.
chmod o+x "$TMPDIR"/weir-*/ 2>/dev/null || true
if [ -n "${NOTIFY_SOCKET:-}" ]; then chmod o+w "$NOTIFY_SOCKET"; fi
# An operator gives the user the files that the configuration names.
grep -oE "$TMPDIR/[^\",}[:space:]]+" "$config" | while read -r file; do
  if [ -f "$file" ]; then chown "$user" "$file"; fi
done
# StateDirectory= also changes the owner of all files, if the folder has another owner.
if [ "$(stat -c %U "$data" 2>/dev/null)" != "$user" ]; then
  mkdir -p "$data"
  chown -R "$user:$user" "$data"
fi
chmod "$(setting StateDirectoryMode)" "$data"
setting ExecStartPre | sed -n 's/^+//p' | while read -r command; do
  # shellcheck disable=SC2086 # the words of a command
  ${command//\/sys\/fs\/bpf\/weir/$pins}
done

# A test can have taken a capability away.
bounding=,$(setpriv --dump | sed -n 's/^Capability bounding set: //p'),
# Usage: capabilities SETTING: prints a set of capabilities for setpriv.
capabilities() {
  local set=-all name
  for name in $(setting "$1" | tr '[:upper:]' '[:lower:]'); do
    if [[ $bounding == *",${name#cap_},"* ]]; then set+=,+${name#cap_}; fi
  done
  echo "$set"
}
ambient=$(capabilities AmbientCapabilities)
umask "$(setting UMask)"
# Usage: limit OPTION VALUE: without CAP_SYS_RESOURCE, a limit cannot be raised, and stays.
limit() { ulimit "$1" "$2" 2>/dev/null || ulimit -S "$1" "$(ulimit -H "$1")"; }
limit -n "$(setting LimitNOFILE)"
limit -l "$(setting LimitMEMLOCK | sed s/infinity/unlimited/)"
environment=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin LANG=C.UTF-8 HOME=/var/lib/weir USER="$user")
# An operator sets the variables that the configuration names in a drop-in.
for name in NOTIFY_SOCKET JOURNAL_STREAM LISTEN_PID LISTEN_FDS LISTEN_FDNAMES $(sed -nE 's/.*\$\{([A-Z_]+)\}.*/\1/p' "$config"); do
  if [ -n "${!name:-}" ]; then environment+=("$name=${!name}"); fi
done
exec env -i "${environment[@]}" setpriv --reuid "$user" --regid "$user" --init-groups --no-new-privs \
  --bounding-set "$(capabilities CapabilityBoundingSet)" --inh-caps "$ambient" --ambient-caps "$ambient" --pdeathsig KILL \
  --seccomp-filter /opt/syscall-filter \
  /usr/bin/weir "$@"
