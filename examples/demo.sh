#!/bin/sh
# demo.sh: a whole batch on this machine, from a CSV file to one Parquet file.
#
# It starts a node of its own on a free port with an empty data directory and
# the built-in simulated engine, whatever servers and GPUs there are, runs
# examples/dictionary.csv through it, shows what came out and stops the node
# again; on a terminal it waits for Enter first, so that one can look at the
# console. The result stays in .demo/.
set -eu
cd "$(dirname "$0")/.."

rowmill=$PWD/${BINARY:-bin/rowmill}
if [ ! -x "$rowmill" ]; then
	echo "demo.sh: no $rowmill; run 'make build' first, or 'make demo' for both" >&2
	exit 1
fi
mkdir -p .demo
work=$(mktemp -d "${TMPDIR:-/tmp}/rowmill-demo.XXXXXX")
node=

# stop ends the node, however the demo ends.
stop() {
	status=$?
	trap - EXIT HUP INT TERM
	if [ -n "$node" ]; then
		kill -TERM "$node" 2>/dev/null || true
		wait "$node" 2>/dev/null || true
	fi
	if [ "$status" -ne 0 ]; then
		echo "demo.sh: ended with code $status; the node's last words:" >&2
		tail -n 20 "$work/log" >&2 2>/dev/null || true
	fi
	rm -rf "$work"
	exit "$status"
}
trap stop EXIT
trap 'exit 130' HUP INT TERM

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

# A fresh random key: the node makes it its administrator, the client uses it.
ROWMILL_API_KEY=demo_$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export ROWMILL_API_KEY

say 'Starting a node: embedded store, local directory, SIMULATED engine'
"$rowmill" serve --simulate --data "$work/data" --listen 127.0.0.1:0 >"$work/log" 2>&1 &
node=$!
tries=0
address=
until [ -n "$address" ]; do
	tries=$((tries + 1))
	if ! kill -0 "$node" 2>/dev/null || [ "$tries" -gt 300 ]; then
		echo "demo.sh: the node did not start" >&2
		exit 1
	fi
	sleep 0.1
	# The node logs the address it got, as it will tell any operator.
	address=$(sed -n 's/.*"msg":"listening".*"address":"\([^"]*\)".*/\1/p' "$work/log")
done
ROWMILL_SERVER=http://$address
export ROWMILL_SERVER
echo "It answers at $ROWMILL_SERVER and keeps its data in $work/data"

say 'Running examples/dictionary.csv: 1,200 dictionary entries, answers as JSON by a schema'
"$rowmill" jobs submit examples/dictionary.csv \
	--column entry --model llama-3.1-8b \
	--system-prompt 'Make a vocabulary card of this dictionary entry.' \
	--schema examples/card.schema.json --param max_tokens=256 \
	--name 'vocabulary cards' \
	--include-inputs --include-logprobs --output .demo/cards.parquet --force

say 'The jobs of the node'
"$rowmill" jobs list

say 'What it wrote'
go run ./examples/show .demo/cards.parquet 3

say 'These outputs are SIMULATED: made up from the prompts by the built-in engine.'
echo "For real ones start a server, then 'bin/rowmill serve'; it finds one on this machine, or takes --engine URL."
echo "The result is in $PWD/.demo/cards.parquet."

say 'The console of the node'
echo "$ROWMILL_SERVER/console/ with the API key $ROWMILL_API_KEY"
if [ -t 0 ] && [ -t 1 ]; then
	printf 'Look around in it; Enter stops the node. '
	read -r _ || true
fi
echo "The node is being stopped."
