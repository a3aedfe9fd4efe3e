# image.sh runs a job in the image with podman on the machine of machine.sh, without
# capabilities and with a read-only disk except /data. /io has image.tar and a file with
# its version.
image=localhost/rowmill:$(cat /io/version)
# Set limits here: podman would raise the limits of this machine.
run=(--read-only --read-only-tmpfs=false --cap-drop all --security-opt no-new-privileges --network none --cgroups disabled
	--ulimit nofile=4096:4096 --ulimit nproc=4096:4096 --volume rowmill:/data)
# Containers must not write the kernel settings that all machines share.
printf '[containers]\ndefault_sysctls = []\n' >/io/containers.conf
export CONTAINERS_CONF=/io/containers.conf
podman() { command podman --root /tmp/podman --runroot /run/podman --storage-driver vfs --events-backend none "$@"; }
in_node() { podman exec --env ROWMILL_API_KEY="$key" node /rowmill "$@"; }
key=0123456789abcdef0123456789abcdef

podman load -i /io/image.tar
podman run --rm "${run[@]}" "$image" version

for round in 1 2; do
	podman run --detach --name node "${run[@]}" --env ROWMILL_API_KEY="$key" "$image"
	for try in $(seq 300); do
		in_node jobs list && break
		sleep 0.1
	done
	if [ $round = 1 ]; then
		printf 'one\ntwo\n' | podman exec --interactive --env ROWMILL_API_KEY="$key" node /rowmill jobs submit - --format json --output - >/io/rows.json
		[ "$(jq '.outputs | length' /io/rows.json)" = 2 ]
	else
		# Another container with the same volume has the job.
		[ "$(in_node jobs list -o json | jq length)" = 1 ]
	fi
	podman exec node /rowmill version
	podman stop --time 45 node
	[ "$(podman inspect --format '{{.State.ExitCode}}' node)" = 0 ]
	podman rm node
done
