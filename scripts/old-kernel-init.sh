#!/bin/busybox sh
# The first process of a virtual machine. Mounts the files of the host under an overlay in memory, so that
# writes do not reach the host. Then runs the tests of old-kernel.sh, or the script that `weir_init` names.
alias b=/bin/busybox
b mkdir -p /proc /sys /host /new /layer
b mount -t proc proc /proc
for module in /modules/*; do b insmod "$module"; done
b mount -t 9p -o trans=virtio,version=9p2000.L,cache=loose,msize=512000,ro host /host || b poweroff -f
b mount -t tmpfs -o size=2g layer /layer
b mkdir /layer/upper /layer/work
b mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work overlay /new || b poweroff -f
for word in $(b cat /proc/cmdline); do
  case "$word" in
    weir_modules=*) modules=${word#*=} ;;
    weir_init=*) init=${word#*=} ;;
    weir_folder=*) folder=${word#*=} ;;
    weir_files=*) files=$(echo "${word#*=}" | b tr , ' ') ;;
  esac
done
cd /new || b poweroff -f
b mount -t proc proc proc
b mount -t sysfs sys sys
b mount -t devtmpfs dev dev
b mkdir -p dev/pts dev/shm
b mount -t devpts devpts dev/pts
b mount -t tmpfs shm dev/shm
b mount -t cgroup2 cgroup sys/fs/cgroup
b mount -t bpf bpf sys/fs/bpf
b mount -t tmpfs tmp tmp
b mount -t tmpfs run run
b mkdir -p run/netns lib/modules
b mount -o bind "/host$modules" lib/modules
[ -z "$init" ] || exec /bin/busybox switch_root /new /bin/bash "$init"
b cat >tests.sh <<END
exec </dev/null
export HOME=/root TERM=dumb NO_COLOR=1 CI=1 PATH=/usr/sbin:/usr/bin:/sbin:/bin
ip link set lo up
modprobe tun
cd "$folder"
echo "old-kernel: Linux \$(uname -r)"
if npx --no-install vitest run --maxWorkers 1 --testTimeout 900000 --hookTimeout 900000 $files; then
  echo "old-kernel: passed"
else
  echo "old-kernel: failed"
fi
echo o > /proc/sysrq-trigger
sleep 60
END
exec /bin/busybox switch_root /new /bin/bash /tests.sh
