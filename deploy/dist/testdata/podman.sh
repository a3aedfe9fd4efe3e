# podman.sh: what lets podman run on the machine of machine.sh, which has no network of
# podman's and whose disk is a layer already: ports are those of the machine, and bounds
# its own. The commands stay as they are.
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
