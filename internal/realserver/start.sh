#!/bin/sh
# start.sh SERVER PORT chat|think|embed [arguments of the server]: a real inference
# server on 127.0.0.1:PORT with a tiny random model called ALIAS (tiny-KIND). Ollama
# can have several kinds, such as "chat,embed"; then ALIAS has one name for each.
#
# The server runs in the foreground and replaces this process. Run get.sh before. The
# first start makes the model. Ollama lists its models shortly after it answers.
set -eu

usage="usage: start.sh SERVER PORT chat|think|embed [arguments]"
server=${1:?$usage}
port=${2:?$usage}
kind=${3:?$usage}
shift 3
here=$(cd "$(dirname "$0")" && pwd)
dir=${ROWMILL_ENGINES_DIR:-${XDG_CACHE_HOME:-${HOME:?start.sh: set ROWMILL_ENGINES_DIR}/.cache}/rowmill-engines}
[ -e "$dir/$server" ] || { echo "start.sh: no $server in $dir; run get.sh first" >&2; exit 3; }
mkdir -p "$dir/models"
name=${ALIAS:-tiny-$kind}
model=$dir/models/tiny-$kind
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 DO_NOT_TRACK=1 OMP_NUM_THREADS="${THREADS:-1}"

# hf_model makes the model in Hugging Face's format, if it is missing or old.
hf_model() {
	[ -e "$model/complete" ] && [ ! "$here/tiny_hf.py" -nt "$model/complete" ] && return
	"$dir/$server/bin/python" "$here/tiny_hf.py" "$kind" "$model" --context "${CTX:-2048}"
	touch "$model/complete"
}

case $server in
vllm)
	hf_model
	case $kind in
	think) set -- --reasoning-parser qwen3 "$@" ;;
	embed) set -- --runner pooling "$@" ;;
	esac
	export VLLM_NO_USAGE_STATS=1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind
	export PATH="$dir/vllm/bin:$PATH"
	exec vllm serve "$model" --served-model-name "$name" --host 127.0.0.1 --port "$port" --dtype float32 --enforce-eager "$@"
	;;
sglang)
	hf_model
	case $kind in
	think) set -- --reasoning-parser qwen3 "$@" ;;
	embed) set -- --is-embedding "$@" ;;
	esac
	export CUDA_VISIBLE_DEVICES=
	exec "$dir/sglang/bin/python" -m sglang.launch_server --model-path "$model" --served-model-name "$name" --host 127.0.0.1 --port "$port" \
		--device cpu --dtype float32 --attention-backend torch_native --sampling-backend pytorch --disable-overlap-schedule --disable-cuda-graph \
		--mem-fraction-static 0.1 --max-total-tokens 16384 --enable-metrics "$@"
	;;
transformers)
	hf_model
	# The server lists the models in the cache of the hub, with the names that they have
	# there.
	export HF_HOME="$dir/hf-home-$name" CUDA_VISIBLE_DEVICES=
	cached=$HF_HOME/hub/models--$name
	commit=0000000000000000000000000000000000000000
	mkdir -p "$cached/refs" "$cached/snapshots"
	printf %s "$commit" >"$cached/refs/main"
	ln -sfn "$model" "$cached/snapshots/$commit"
	exec "$dir/transformers/bin/transformers" serve "$name" --host 127.0.0.1 --port "$port" --device cpu "$@"
	;;
infinity)
	hf_model
	export HF_HOME="$dir/hf-home-infinity" CUDA_VISIBLE_DEVICES= INFINITY_ANONYMOUS_USAGE_STATS=0
	exec "$dir/infinity/bin/infinity_emb" v2 --model-id "$model" --served-model-name "$name" --url-prefix /v1 --host 127.0.0.1 --port "$port" \
		--engine torch --device cpu --dtype float32 --no-bettertransformer --no-model-warmup "$@"
	;;
llama-cpp-python)
	python3 "$here/../llama/tiny_gguf.py" "$kind" "$model.gguf"
	[ "$kind" != embed ] || set -- --embedding true "$@"
	exec "$dir/llama-cpp-python/bin/python" -m llama_cpp.server --model "$model.gguf" --model_alias "$name" --host 127.0.0.1 --port "$port" \
		--n_ctx "${CTX:-2048}" --n_threads "${THREADS:-1}" --n_threads_batch "${THREADS:-1}" "$@"
	;;
ollama)
	for k in $(echo "$kind" | tr , ' '); do
		python3 "$here/../llama/tiny_gguf.py" "$k" "$dir/models/tiny-$k.gguf"
		{
			echo "FROM $dir/models/tiny-$k.gguf"
			echo "PARAMETER num_thread ${THREADS:-1}"
			if [ "$k" != embed ]; then
				echo 'PARAMETER stop "<|im_end|>"'
				echo 'TEMPLATE """{{ range .Messages }}<|im_start|>{{ .Role }}'
				echo '{{ .Content }}<|im_end|>'
				echo '{{ end }}<|im_start|>assistant'
				echo '"""'
			fi
		} >"$dir/models/tiny-$k.Modelfile"
	done
	export OLLAMA_HOST="127.0.0.1:$port" OLLAMA_MODELS="$dir/ollama-models" HOME="$dir/ollama-home"
	export OLLAMA_CONTEXT_LENGTH="${CTX:-2048}" OLLAMA_NUM_PARALLEL="${SLOTS:-4}"
	mkdir -p "$HOME"
	(
		until "$dir/ollama" list >/dev/null 2>&1; do
			kill -0 $$ 2>/dev/null || exit 0
			sleep 0.2
		done
		for k in $(echo "$kind" | tr , ' '); do
			"$dir/ollama" create "${name%%,*}" -f "$dir/models/tiny-$k.Modelfile" >/dev/null 2>&1
			name=${name#*,}
		done
	) &
	exec "$dir/ollama" serve "$@"
	;;
*)
	echo "start.sh: no way to start $server is known" >&2
	exit 2
	;;
esac
