#!/bin/bash
# machine.sh FOLDER runs a disposable machine. Its disk is this machine's disk under a
# layer in memory; its processes, network and systemd are its own. It runs
# FOLDER/check.sh, which sees the folder as /io and the layer as /layer, and exits with
# the exit code of check.sh. It needs root and systemd.
#
#   unshare --mount --pid --net --ipc --uts --cgroup --fork machine.sh FOLDER
set -eu
folder=$1
mount --make-rprivate /
layer=$folder/.machine
mkdir "$layer"
mount -t tmpfs none "$layer"
mkdir "$layer"/{upper,work,root}
root=$layer/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$layer/upper,workdir=$layer/work" "$root"

# The devices and mounts of a container: systemd cannot change the real machine through
# them.
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -o ro -t sysfs sysfs "$root/sys"
mount -t cgroup2 none "$root/sys/fs/cgroup"
mount -t tmpfs none "$root/dev"
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty "$root/dev/"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 none "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs none "$root/run"
mount -t tmpfs none "$root/tmp"
rm -rf "$root/etc/fstab" "$root/etc/systemd/system"/*.wants # do not start this machine's services
mkdir "$root/io" "$root/layer" "$root/.old"
mount --bind "$folder" "$root/io"
mount -o bind,ro "$layer/upper" "$root/layer"

mkdir -p "$root/run/systemd/system"
cat >"$root/run/systemd/system/check.service" <<'UNIT'
[Unit]
DefaultDependencies=no
Requires=systemd-journald.service
After=systemd-journald.service
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
Environment=HOME=/root LC_ALL=C.UTF-8
ExecStart=/bin/bash -c 'exec /bin/bash -eux /io/check.sh >/io/log 2>&1'
UNIT
ip link set lo up
cd "$root"
pivot_root . .old
cd /
mount --make-rshared /
umount -l /.old
exec env -i container=oci "PATH=$PATH" /lib/systemd/systemd --system --unit=check.service --show-status=no
