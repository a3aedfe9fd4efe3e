package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// upWithin limits the start of a real server: vLLM compiles its model first.
const upWithin = 8 * time.Minute

// startGPUServer starts the server for a workload, and returns its address and the
// names of its gauges. Its log is in the folder of results.
func (b *bench) startGPUServer(ctx context.Context, o gpuOptions, m machine, w workload) (*process, string, gauges, error) {
	prefix := ""
	server, address, err := b.startListed(ctx, filepath.Join(o.out, "server-"+w.name+".log"), func(port string) (command, env []string, err error) {
		command, env, prefix, err = b.realCommand(o, m, w, port)
		return append(command, strings.Fields(o.further)...), env, err
	})
	return server, address, gauges{
		done: prefix + ":generation_tokens_total", per: 1, running: prefix + ":num_requests_running",
		waiting: prefix + ":num_requests_waiting", preempted: prefix + ":num_preemptions_total", prompts: prefix + ":prompt_tokens_total", every: readEvery,
	}, err
}

// startListed starts a real server by the command for a free port, waits until the
// server lists its model, and returns its address.
func (b *bench) startListed(ctx context.Context, log string, command func(port string) (command, env []string, err error)) (*process, string, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, "", err
	}
	args, env, err := command(address[strings.LastIndexByte(address, ':')+1:])
	if err != nil {
		return nil, "", err
	}
	b.log.Info("starting the server", "command", strings.Join(args, " "))
	// All output goes to the log, because nothing reads a pipe.
	server, err := startProcess(log, append(os.Environ(), env...), "sh", append([]string{"-c", `exec "$@" >&2`, "sh"}, args...)...)
	if err != nil {
		return nil, "", err
	}
	begun := time.Now()
	if err := answering(ctx, server, address); err != nil {
		server.end()
		return nil, "", err
	}
	b.log.Info("the server is up", "after", time.Since(begun).Round(time.Second))
	return server, address, nil
}

// realCommand returns the command for the server and the prefix of its gauges' names.
func (b *bench) realCommand(o gpuOptions, m machine, w workload, port string) (command, env []string, prefix string, err error) {
	slots, context := strconv.Itoa(w.slots), strconv.Itoa(w.context())
	if m.Server == simServer {
		return []string{b.rowmill, "sim", "--listen", "127.0.0.1:" + port, "--gpu", m.Profile, "--max-num-seqs", slots}, nil, "vllm", nil
	}
	files := filepath.Join(b.dir, "model-"+w.name)
	if err := w.shape.Write(files, w.context(), w.answer); err != nil {
		return nil, nil, "", err
	}
	if m.Server == torchServer {
		script, err := b.torchScript()
		prefix := "bench"
		if o.gauges {
			prefix = "vllm"
		}
		return []string{
			o.python, script, "--model", files, "--name", model, "--port", port, "--slots", slots, "--context", context,
			"--gauges", prefix, "--device", m.device(),
		}, nil, prefix, err
	}
	python, err := exec.LookPath(o.python)
	if err != nil {
		return nil, nil, "", fmt.Errorf("find Python: %w", err)
	}
	bin := filepath.Dir(python)
	command = []string{
		filepath.Join(bin, "vllm"), "serve", files, "--served-model-name", model, "--load-format", "dummy",
		"--host", "127.0.0.1", "--port", port, "--max-model-len", context, "--max-num-seqs", slots,
	}
	env = []string{"HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1", "PATH=" + bin + ":" + os.Getenv("PATH")}
	if m.CPU {
		command = append(command, "--dtype", "float32", "--enforce-eager")
		env = append(env, "VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", "OMP_NUM_THREADS=1")
	}
	return command, env, "vllm", nil
}

// errUnlisted means that a server answers but does not list the model yet.
var errUnlisted = errors.New("it does not list the model")

// answering waits until a server lists its model, or fails if the server has ended.
func answering(ctx context.Context, server *process, address string) error {
	ctx, cancel := context.WithTimeout(ctx, upWithin)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/v1/models", nil)
		if err != nil {
			return fmt.Errorf("make request: %w", err)
		}
		list, err := read(client, request)
		if err == nil && !strings.Contains(string(list), model) {
			err = errUnlisted
		}
		switch {
		case err == nil:
			return nil
		case server.ended():
			return fmt.Errorf("the server ended at its start: %s", tail(server.log))
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return fmt.Errorf("the server does not list its model after %v (%w): %s", upWithin, err, tail(server.log))
		case ctx.Err() != nil:
			return ctx.Err()
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// ended reports whether the program has ended by itself.
func (p *process) ended() bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.command.Process.Pid))
	_, rest, _ := strings.Cut(string(data), ") ")
	return err != nil || strings.HasPrefix(rest, "Z")
}

// tail returns the end of a log.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-3<<10):])
}
