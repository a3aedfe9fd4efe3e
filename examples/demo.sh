#!/bin/sh
# demo.sh runs a batch on this machine, from a CSV file to a Parquet file.
#
# It starts its own node on a free port, with an empty data directory and the built-in
# simulated engine, even if there are servers or GPUs. It runs examples/dictionary.csv,
# prints the results and stops the node. On a terminal it waits for Enter before it
# stops the node, so that you can open the console. The result stays in .demo/.
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

# stop stops the node at every exit of the demo.
stop() {
	status=$?
	trap - EXIT HUP INT TERM
	if [ -n "$node" ]; then
		kill -TERM "$node" 2>/dev/null || true
		wait "$node" 2>/dev/null || true
	fi
	if [ "$status" -ne 0 ]; then
		echo "demo.sh: failed with exit code $status; last lines of the node's log:" >&2
		tail -n 20 "$work/log" >&2 2>/dev/null || true
	fi
	rm -rf "$work"
	exit "$status"
}
trap stop EXIT
trap 'exit 130' HUP INT TERM

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

# A new random key: it is the node's administrator key, and the client uses it.
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
	# The node logs its address.
	address=$(sed -n 's/.*"msg":"listening".*"address":"\([^"]*\)".*/\1/p' "$work/log")
done
ROWMILL_SERVER=http://$address
export ROWMILL_SERVER
echo "The node runs at $ROWMILL_SERVER with its data in $work/data"

say 'Running examples/dictionary.csv: 1,200 dictionary entries, answers as JSON by a schema'
"$rowmill" jobs submit examples/dictionary.csv \
	--column entry --model llama-3.1-8b \
	--system-prompt 'Make a vocabulary card of this dictionary entry.' \
	--schema examples/card.schema.json --param max_tokens=256 \
	--name 'vocabulary cards' \
	--include-inputs --include-logprobs --output .demo/cards.parquet --force

say 'The jobs of the node'
"$rowmill" jobs list

say 'The result'
go run ./examples/show .demo/cards.parquet 3

say 'These outputs are SIMULATED: made up from the prompts by the built-in engine.'
echo "For real outputs start an inference server, then 'bin/rowmill serve'. It finds servers on this machine; name others with --engine URL."
echo "The result is in $PWD/.demo/cards.parquet."

say 'The console of the node'
echo "$ROWMILL_SERVER/console/ with the API key $ROWMILL_API_KEY"
if [ -t 0 ] && [ -t 1 ]; then
	printf 'Look around in it; Enter stops the node. '
	read -r _ || true
fi
echo "Stopping the node."
