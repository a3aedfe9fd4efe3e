#!/bin/bash
# cluster.sh runs three nodes on this machine, with Redis, an S3 server, and a
# simulated GPU for each node.
#
# It needs bash 5.1 and redis-server in PATH, and builds the S3 server (versitygw)
# once. It prints the URLs of the nodes and the administrator's key, and runs until
# Ctrl-C; rows in flight finish first. Records, objects, logs and the key stay in
# .cluster/ for the next start; `make clean` removes them. Ports start at CLUSTER_PORT
# (8101).
set -euo pipefail
cd "$(dirname "$0")/.."

nodes=3
gpu=${CLUSTER_GPU:-llama-3.1-8b/h100}
base=${CLUSTER_PORT:-8101}
rowmill=$PWD/bin/rowmill
work=$PWD/.cluster

fail() {
	echo "cluster.sh: $*" >&2
	exit 1
}

[ -x "$rowmill" ] || fail "no bin/rowmill; run 'make build' first, or 'make cluster' for both"
command -v redis-server >/dev/null || fail "no redis-server in PATH: install Redis"
.ci/tools s3
s3server=bin/tools/versitygw-$(sed -n 's,^.*github.com/versity/versitygw \(v[^ ]*\).*,\1,p' internal/s3server/go.mod)

mkdir -p "$work/redis" "$work/s3/objects/rowmill" "$work/s3/attributes"
[ -e "$work/key" ] || (umask 077 && echo "cluster_$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')" >"$work/key")
ROWMILL_API_KEY=$(cat "$work/key")
export ROWMILL_API_KEY

# port NAME [N] prints the port of a process. It is the same at every start.
port() {
	case $1 in
	api) echo $((base + $2)) ;;
	gossip) echo $((base + 10 + 2 * $2)) ;;
	peers) echo $((base + 11 + 2 * $2)) ;;
	gpu) echo $((base + 20 + $2)) ;;
	redis) echo $((base + 30)) ;;
	s3) echo $((base + 31)) ;;
	esac
}

answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

for p in $(port redis) $(port s3) $(for n in $(seq 0 $((nodes - 1))); do port api $n; port gossip $n; port peers $n; port gpu $n; done); do
	if answers "$p"; then
		fail "port $p is in use; is another cluster running? Set CLUSTER_PORT to use other ports"
	fi
done

# Each process has its own process group, so that Ctrl-C stops only this script. The
# script then stops the nodes first, and Redis and the S3 server after them.
set -m
declare -A running=() # name by PID

# begin NAME PORT COMMAND… starts a process and waits until it listens.
begin() {
	local name=$1 listens=$2 tries=0 pid
	shift 2
	"$@" >>"$work/$name.log" 2>&1 &
	pid=$!
	running[$pid]=$name
	until answers "$listens"; do
		tries=$((tries + 1))
		if ! kill -0 $pid 2>/dev/null || [ $tries -gt 300 ]; then
			tail -n 20 "$work/$name.log" >&2
			fail "$name did not start; the end of its log is above"
		fi
		sleep 0.1
	done
}

# finish PATTERN stops the processes with matching names, and waits for them.
finish() {
	local pid ending=()
	for pid in "${!running[@]}"; do
		# shellcheck disable=SC2053 # it is a pattern
		[[ ${running[$pid]} == $1 ]] || continue
		kill -TERM "$pid" 2>/dev/null || true
		ending+=("$pid")
	done
	for pid in "${ending[@]}"; do
		wait "$pid" || echo "cluster.sh: ${running[$pid]} ended with code $?; see $work/${running[$pid]}.log" >&2
		unset "running[$pid]"
	done
}

stop() {
	local status=$?
	trap - EXIT
	trap '' HUP INT TERM
	echo 'Stopping: rows in flight finish.'
	finish 'node*'
	finish '*'
	exit "$status"
}
trap stop EXIT
trap 'exit 0' HUP INT TERM

begin redis "$(port redis)" redis-server --bind 127.0.0.1 --port "$(port redis)" --dir "$work/redis" \
	--save '' --appendonly yes --appendfsync always --maxmemory-policy noeviction
ROOT_ACCESS_KEY_ID=rowmill ROOT_SECRET_ACCESS_KEY=$ROWMILL_API_KEY \
	begin s3 "$(port s3)" "$s3server" --port "127.0.0.1:$(port s3)" --keep-alive --quiet \
	posix --sidecar "$work/s3/attributes" "$work/s3/objects"
for n in $(seq 0 $((nodes - 1))); do
	begin "gpu$n" "$(port gpu $n)" "$rowmill" sim --listen "127.0.0.1:$(port gpu $n)" --gpu "$gpu"
done
for n in $(seq 0 $((nodes - 1))); do
	ROWMILL_OBJECTS_SECRET_KEY=$ROWMILL_API_KEY begin "node$n" "$(port api $n)" "$rowmill" serve --data "$work/node$n" \
		--listen "127.0.0.1:$(port api $n)" --engine "http://127.0.0.1:$(port gpu $n)" \
		--set "store.url=redis://127.0.0.1:$(port redis)/0" \
		--set objects.url=s3://rowmill --set "objects.endpoint=http://127.0.0.1:$(port s3)" --set objects.access_key=rowmill \
		--set "cluster.node=node$n" --set "cluster.listen=127.0.0.1:$(port gossip $n)" \
		--set "cluster.peer_listen=127.0.0.1:$(port peers $n)" --join "127.0.0.1:$(port gossip 0)"
done

cat <<END

Three nodes, each with a SIMULATED GPU ($gpu): outputs are made up.

$(for n in $(seq 0 $((nodes - 1))); do echo "  node$n   http://127.0.0.1:$(port api $n)"; done)
  logs    $work/*.log

  export ROWMILL_SERVER=http://127.0.0.1:$(port api 0) ROWMILL_API_KEY=$ROWMILL_API_KEY
  bin/rowmill nodes list
  bin/rowmill jobs submit examples/dictionary.csv --column entry --model ${gpu%/*} --output cards.parquet

Ctrl-C stops all.
END

# Report a process that ends by itself; the others continue.
while [ ${#running[@]} -gt 0 ]; do
	gone=
	wait -n -p gone "${!running[@]}" || true
	if [ -n "$gone" ]; then
		echo "cluster.sh: ${running[$gone]} has ended; see $work/${running[$gone]}.log" >&2
		unset "running[$gone]"
	fi
done
