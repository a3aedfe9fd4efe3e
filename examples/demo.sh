#!/bin/sh
# demo.sh runs a batch on this machine, from a CSV file to a Parquet file.
#
# rowmill run starts its own node with simulated answers, even if there are servers or
# GPUs, and runs examples/dictionary.csv. The result stays in .demo/.
set -eu
cd "$(dirname "$0")/.."

rowmill=$PWD/${BINARY:-bin/rowmill}
if [ ! -x "$rowmill" ]; then
	echo "demo.sh: no $rowmill; run 'make build' first, or 'make demo' for both" >&2
	exit 1
fi
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }
rm -rf .demo
mkdir .demo

say 'Running examples/dictionary.csv: 1,200 dictionary entries, answers as JSON by a schema'
"$rowmill" run examples/dictionary.csv --simulate --model llama-3.1-8b \
	--prompt 'Make a vocabulary card of this dictionary entry. {{entry}}' \
	--schema examples/card.schema.json --param max_tokens=256 --id-column id \
	--include-inputs --include-logprobs --output .demo/cards.parquet

say 'The result'
go run ./examples/show .demo/cards.parquet 3

say 'These outputs are SIMULATED: made up from the prompts by the built-in engine.'
echo "For real outputs start an inference server, then run the same command without --simulate."
echo "The result is in $PWD/.demo/cards.parquet."
echo "For a service with a console and an API, run 'bin/rowmill serve'."
