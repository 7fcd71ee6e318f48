#!/usr/bin/env bash
# The first process of a virtual machine of boot-test.sh, after its file systems are mounted. Configures the
# units of this boot, and starts systemd.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
for word in $(cat /proc/cmdline); do
  case "$word" in
    weir_folder=*) folder=${word#*=} ;;
    weir_boot=*) boot=${word#*=} ;;
  esac
done
for module in virtio_blk ext4 veth bridge nf_tables nft_counter; do modprobe "$module" 2>/dev/null; done
mkdir -p /var/lib/weir /etc/weir
id weir >/dev/null 2>&1 || useradd --system weir
mount /dev/vda /var/lib/weir
echo >/etc/fstab

units=/etc/systemd/system
rm -rf "$units"
mkdir -p "$units/weir.service.d" "$units/multi-user.target.wants" "$units/sysinit.target.wants"
ln -s /dev/null "$units/systemd-timesyncd.service"
ln -s /dev/null "$units/getty.target"
cp "$folder"/deploy/systemd/*.service "$units"
[ "$boot" = unguarded ] || cp -r "$folder/deploy/systemd/nftables.service.d" "$units"
enable() { ln -s "$1" "$units/$2.wants/"; }
enable /lib/systemd/system/nftables.service sysinit.target
[ "$boot" = unguarded ] || systemctl enable -q weir-guard.service
enable "$units/weir.service" multi-user.target
for name in network traffic check; do enable "$units/boot-test-$name.service" multi-user.target; done

cat >/etc/weir/weir.yaml <<END
version: 1
node: { id: boot }
dataplane: { interfaces: [lan0, wan0, port0, port1] }
policy: { activation_timeout: 60s }
END
cat >"$units/weir.service.d/boot-test.conf" <<END
[Unit]
After=boot-test-traffic.service
[Service]
TimeoutStartSec=10min
ExecStartPre=+$folder/scripts/boot-test-check.sh before
ExecStart=
ExecStart=$(command -v node) $folder/bin/weir.js run --config /etc/weir/weir.yaml
StandardOutput=file:/run/weir.log
END
unit() {
  cat >"$units/boot-test-$1.service" <<END
[Unit]
$2
[Service]
$3
ExecStart=$folder/scripts/boot-test-check.sh $1
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console
Environment=BOOT=$boot FOLDER=$folder
END
}
unit network $'Wants=network-pre.target\nAfter=network-pre.target\nBefore=network.target' $'Type=oneshot\nRemainAfterExit=yes'
unit traffic 'After=boot-test-network.service' Type=exec
unit check $'After=weir.service\nSuccessAction=poweroff-force\nFailureAction=poweroff-force' Type=oneshot
exec /lib/systemd/systemd
