# podman.sh configures podman for the machine of machine.sh, which has no podman
# network and an overlay as its disk: containers use the machine's ports and their own
# limits. The tested commands stay unchanged.
mkdir -p /etc/containers
cat >/etc/containers/storage.conf <<'CONF'
[storage]
driver = "vfs"
graphroot = "/tmp/podman"
runroot = "/run/podman"
CONF
cat >/etc/containers/containers.conf <<'CONF'
[containers]
netns = "host"
cgroups = "disabled"
default_sysctls = []
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
events_logger = "none"
cgroup_manager = "cgroupfs"
runtime = "crun"
CONF
