# Functions of release-test.sh: the units and the maintainer scripts of the Debian package in the folder $debian.
# shellcheck shell=bash

# Runs the commands that weir.service runs as root before a start.
prepare_pins() {
  local command
  while read -r command; do
    # shellcheck disable=SC2086 # the words of a command
    in_debian $command
  done < <(sed -n 's/^ExecStartPre=+//p' "$debian/usr/lib/systemd/system/weir.service")
}

# A node that was run as root leaves pins of root.
pins_of_root() {
  chown -R 0 "$debian/sys/fs/bpf/weir"
  prepare_pins
  check 'the Debian package: the node starts over pins of root' start_node "${start_package[@]}"
  stop_node
}
