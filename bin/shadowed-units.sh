# Prints one sentence for each file in /etc that systemd reads in place of a file of the package, also after
# an upgrade. postinst and `weir init` run it.
for file in weir.service weir-guard.service; do
  if [ -f "/etc/systemd/system/$file" ] && [ -f "/usr/lib/systemd/system/$file" ]; then
    echo "/etc/systemd/system/$file replaces /usr/lib/systemd/system/$file: remove it if it is an old copy"
  fi
done
