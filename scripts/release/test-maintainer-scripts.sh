# Functions of release-test.sh: the units and the maintainer scripts of the Debian package in $debian.
# shellcheck shell=bash

# Runs the commands that weir.service runs as root before a start.
prepare_pins() {
  local command
  while read -r command; do
    # shellcheck disable=SC2086 # the words of a command
    in_debian $command
  done < <(sed -n 's/^ExecStartPre=+//p' "$debian/usr/lib/systemd/system/weir.service")
}

# The users who may list the BPF file system: its mode, owner and group.
access_to_pins() { in_debian stat -c '%a %U:%G' /sys/fs/bpf; }

# A node that was run as root leaves pins of root.
pins_of_root() {
  check 'the BPF file system is open to the user weir, and not to others' is "$(access_to_pins)" '1750 root:weir'
  chown -R 0 "$debian/sys/fs/bpf/weir"
  prepare_pins
  check 'the Debian package: the node starts over pins of root' start_node "${start_package[@]}"
  stop_node
}

# The scripts find the systemctl below before that of Debian.
in_system() { in_namespace node chroot "$debian" env PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@" 2>&1; }
dpkg_in() { in_system dpkg "$@"; }
# The folders of pins, from the lowest.
pins_below() { (cd "$debian/sys/fs/bpf" && find . -mindepth 1 -type d -printf '%P\n' | sort | tr '\n' ' '); }

# Sends 1500 echo requests in 3 s that the policy allows, in the background.
pings() {
  in_namespace client ping -q -n -c 1500 -i 0.002 -W 1 10.77.2.2 >"$work/pings" &
  pinging=$!
  sleep 0.2
}
all_pings_answered() { wait "$pinging" && contains "$(cat "$work/pings")" ' 1500 received'; }

# Removes and purges the package, whose node has enforced.
removal() {
  local removed purged
  removed=$(dpkg_in --remove weir)
  check 'the removal says how to end the enforcement' contains "$removed" "until the next boot or the end of 'apt purge weir'"
  check 'the removal says that nftables.service can remove the guard' contains "$removed" 'the next restart or reload of nftables.service removes the guard'
  check 'after the removal, no boot loads the guard' is "$(stat -c %s "$debian/var/lib/weir/guard.nft")" 0
  check 'after the removal, the kernel enforces' is_enforced
  # Another program and another node have pins, too.
  mkdir -p "$debian"/sys/fs/bpf/{weir/other,maps-of-other,second/links-1}
  mkdir -p "$debian"/var/log/weir "$debian"/etc/systemd/system/nftables.service.d
  touch "$debian"/etc/systemd/system/nftables.service.d/00-weir.conf
  pings
  purged=$(dpkg_in --purge weir)
  check 'the purge loses no packet that the policy allows' all_pings_answered
  check 'after the purge, the kernel does not enforce' is_open
  check 'the purge keeps the pins of other programs' is "$(pins_below)" 'maps-of-other second second/links-1 weir weir/other '
  check 'the purge names pins that remain' contains "$purged" 'the kernel still enforces by the pins in /sys/fs/bpf/second'
  rm -rf "$debian"/sys/fs/bpf/{weir,maps-of-other,second}
  check 'after the purge, the user weir cannot list the BPF file system' is "$(access_to_pins)" '1750 root:root'
  check 'after the purge, no state is left' is "$(cd "$debian" && ls -d etc/weir var/lib/weir var/log/weir usr/lib/weir etc/systemd/system/nftables.service.d 2>/dev/null)" ''
  purge_elsewhere
}

# Usage: purge_with PINS DATA: runs postrm with a configuration of these folders.
purge_with() {
  mkdir -p "$debian/etc/weir"
  printf 'node: { data_dir: %s }\ndataplane:\n  interfaces: [lan0]\n  pin_path: "%s" # a comment\n' "$2" "$1" >"$debian/etc/weir/weir.yaml"
  in_system env DPKG_MAINTSCRIPT_PACKAGE=weir /opt/scripts/postrm purge
}

# Purges with other folders than those of the package.
purge_elsewhere() {
  local bpf=$debian/sys/fs/bpf said
  in_debian dpkg-deb --control "/opt/${deb##*/}" /opt/scripts
  mkdir -p "$bpf"/{maps-1,links-2,names-2,filling-3,other} "$debian/srv/weir"
  echo 'add table inet weir' >"$debian/srv/weir/guard.nft"
  said=$(purge_with /sys/fs/bpf /srv/weir)
  check 'a purge with the root of the BPF file system removes the pins of Weir alone' is "$(pins_below)" 'other '
  check 'a purge empties guard.nft in another data folder' is "$(stat -c %s "$debian/srv/weir/guard.nft")" 0
  check 'a purge that has found all says that nothing is enforced' is "$said" 'weir: the kernel enforces no policy of Weir any more.'
  purge_without_tools
  chroot "$debian" setpriv --reuid weir --clear-groups sleep 30 &
  sleep 1
  check 'a purge refuses while a process of the user weir runs' contains "$(purge_with /sys/fs/bpf /srv/weir)" 'of the user weir still runs'
  kill $!
  wait $! 2>/dev/null || true
  chroot "$debian" unshare --pid --fork --kill-child setpriv --reuid weir --clear-groups sleep 30 &
  sleep 1
  check 'a purge ignores a process with the number of the user weir in a container' is "$(purge_with /sys/fs/bpf /srv/weir)" 'weir: the kernel enforces no policy of Weir any more.'
  kill $!
  wait $! 2>/dev/null || true
  purge_without_bpf
  said=$(purge_with '${PINS}' '${DATA}')
  check 'a purge names a pin path that it cannot read' contains "$said" 'dataplane.pin_path in /etc/weir/weir.yaml is no plain path'
  check 'a purge names a data folder that it cannot read' contains "$said" 'node.data_dir in /etc/weir/weir.yaml is no plain path'
  check 'a purge removes the configuration' is "$(ls -d "$debian/etc/weir" 2>/dev/null)" ''
  rmdir "$bpf/other"
}

# Purges where no BPF file system is mounted, as in a container, beside the guard of another node.
purge_without_bpf() {
  local said
  in_namespace node nft 'add table inet weir'
  umount "$debian/sys/fs/bpf"
  said=$(purge_with /sys/fs/bpf /srv/weir || echo failed)
  mount -t bpf -o mode=700 bpf "$debian/sys/fs/bpf"
  mkdir "$debian/sys/fs/bpf/other"
  check 'a purge without a BPF file system says that it has changed nothing' is "$said" 'weir: there is no BPF file system here, so that the purge has changed nothing in the kernel.'
  check 'a purge without a BPF file system keeps the guard of another node' is "$(tables)" 'table inet weir'
  check 'a purge without a BPF file system removes the configuration' is "$(ls -d "$debian/etc/weir" 2>/dev/null)" ''
  in_namespace node nft 'delete table inet weir'
}

tables() { in_namespace node nft list tables; }

# Purges without nft and without tc, and while the kernel refuses to delete the guard.
purge_without_tools() {
  local bpf=$debian/sys/fs/bpf said owner
  in_namespace node nft 'add table inet weir; add table bridge weir; add table inet mine'
  mv "$debian/usr/sbin/nft" "$debian/usr/sbin/nft.away"
  purge_with /sys/fs/bpf /srv/weir >/dev/null || true
  mv "$debian/usr/sbin/nft.away" "$debian/usr/sbin/nft"
  check 'a purge without nft removes the tables of the guard alone' is "$(tables)" 'table inet mine'
  # No other process can change a table that an open nft(8) owns.
  coproc owner { in_namespace node nft -i >/dev/null; }
  echo 'add table inet weir { flags owner; }' >&"${owner[1]}"
  sleep 1
  mkdir -p "$bpf"/{maps-1,links-2/1-ingress}
  said=$(purge_with /sys/fs/bpf /srv/weir || echo failed)
  check 'a purge that cannot remove the guard fails' contains "$said" failed
  check 'a purge that cannot remove the guard names the commands' contains "$said" 'apt install nftables; nft delete table inet weir; nft delete table bridge weir; apt purge weir'
  check 'a purge that cannot remove the guard keeps the pins' is "$(pins_below)" 'links-2 links-2/1-ingress maps-1 other '
  eval "exec ${owner[1]}>&-"
  wait "$owner_PID" || true
  rm -rf "$bpf/links-2"
  in_namespace node nft 'delete table inet mine; add table inet weir'
  mv "$debian/usr/sbin/tc" "$debian/usr/sbin/tc.away"
  said=$(purge_with /sys/fs/bpf /srv/weir || echo failed)
  mv "$debian/usr/sbin/tc.away" "$debian/usr/sbin/tc"
  check 'a purge that needs tc fails without it' contains "$said" failed
  check 'a purge that needs tc names the commands' contains "$said" 'apt install iproute2; apt purge weir'
  check 'a purge that needs tc keeps the pins and the guard' is "$(pins_below)$(tables)" 'maps-1 other table inet weir'
  purge_with /sys/fs/bpf /srv/weir >/dev/null
  check 'a purge after a failed one removes the pins and the guard' is "$(pins_below)$(tables)" 'other '
}

# Purges the package together with nftables and iproute2, whose node has enforced. apt removes them first.
autoremoval() {
  local said
  apt install "/opt/${deb##*/}" >/dev/null 2>&1
  in_debian sh -c 'apt-mark manual $(apt-mark showauto) && apt-mark auto nftables iproute2' >/dev/null
  configure "$debian"
  install -d -o "$(in_debian id -u weir)" -m 700 "$debian/var/lib/weir"
  prepare_pins
  start_node "${start_package[@]}"
  stop_node
  check 'the kernel enforces before a purge with nftables' is_enforced
  said=$(in_system env DEBIAN_FRONTEND=noninteractive apt-get -y -qq purge --autoremove weir || true)
  check 'apt has removed nft and tc' is "$(ls "$debian"/usr/sbin/{nft,tc} 2>/dev/null)" ''
  check 'after a purge with nftables, the kernel does not enforce' is_open
  check 'after a purge with nftables, the package is unknown' is "$(in_debian dpkg-query -W weir 2>/dev/null)" ''
  check 'a purge with nftables says that nothing is enforced' contains "$said" 'weir: the kernel enforces no policy of Weir any more.'
}

# Installs, removes and installs the package again, as if systemd had booted the machine. systemctl is a
# script that notes its arguments. No unit is active.
installation() {
  local said
  mkdir -p "$debian/run/systemd/system"
  cat >"$debian/usr/local/bin/systemctl" <<'END'
#!/bin/sh
case "$*" in
  *is-enabled*) SYSTEMD_OFFLINE=1 exec /usr/bin/systemctl "$@" ;;
  *is-active*) exit 3 ;;
  *weir.service*) echo "$*" >>/opt/asked ;;
esac
case "$*" in *restart*) [ ! -e /opt/fails ] ;; esac
END
  chmod 755 "$debian/usr/local/bin/systemctl"
  in_debian sed -i 's/^weir:x:[0-9]*:/weir:x:1234:/' /etc/passwd
  said=$(dpkg_in --install "/opt/${deb##*/}" || true)
  check 'an installation refuses the account of a person as its user' contains "$said" 'the user weir is not a system user (uid 1234)'
  in_debian sed -i '/^weir:/d' /etc/passwd
  dpkg_in --install "/opt/${deb##*/}" >/dev/null
  check 'an installation starts no node' is "$(cat "$debian/opt/asked" 2>/dev/null)" ''
  in_debian env SYSTEMD_OFFLINE=1 /usr/bin/systemctl --quiet enable weir.service
  dpkg_in --remove weir >/dev/null
  check 'a removal stops the node' is "$(cat "$debian/opt/asked")" 'stop weir.service'
  rm -f "$debian/opt/asked"
  echo '[Service]' >"$debian/etc/systemd/system/weir-guard.service"
  said=$(dpkg_in --install "/opt/${deb##*/}")
  check 'an installation after a removal starts an enabled node' is "$(cat "$debian/opt/asked")" '--quiet --system restart weir.service'
  check 'an installation names a unit that replaces that of the package' contains "$said" '/etc/systemd/system/weir-guard.service replaces'
  rm -f "$debian/opt/asked" "$debian/etc/systemd/system/weir-guard.service"
  touch "$debian/opt/fails"
  sed -i 's/"node": "[^"]*"/"node": "^99.0.0"/' "$debian/usr/lib/weir/package.json"
  said=$(in_system env DPKG_MAINTSCRIPT_PACKAGE=weir /var/lib/dpkg/info/weir.postinst abort-remove)
  check 'an aborted removal starts an enabled node' is "$(cat "$debian/opt/asked")" '--quiet --system restart weir.service'
  check 'an unsupported Node.js is reported' contains "$said" 'is not supported: this version of Weir is tested with ^99.0.0'
  check 'a node that does not start is reported' contains "$said" 'weir.service did not start'
  rm -r "$debian/usr/local/bin/systemctl" "$debian/run/systemd/system"
  dpkg_in --purge weir >/dev/null
}
