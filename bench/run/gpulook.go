package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rowmill/rowmill/bench/gpu"
	"github.com/rowmill/rowmill/engine/sim/batching"
)

// The supported servers, in order of preference.
const (
	vllmServer  = "vllm"
	torchServer = "torch"
	simServer   = "sim"
)

var gpuServers = []string{vllmServer, torchServer, simServer}

// machine describes this machine for the benchmark.
type machine struct {
	Python     string `json:"python"`      // version; empty if there is none
	Torch      string `json:"torch"`       // version; empty if there is none
	TorchError string `json:"torch_error"` // why torch cannot be used
	CUDA       string `json:"cuda"`        // CUDA version of torch
	GPU        string `json:"gpu"`         // name; empty if torch finds none
	Memory     int64  `json:"memory"`      // memory of the GPU, bytes
	VLLM       string `json:"vllm"`        // version; empty if there is none
	SMI        string `json:"nvidia_smi"`  // nvidia-smi's GPUs and driver, or its error

	Server  string `json:"server"` // the chosen server
	CPU     bool   `json:"cpu"`
	Profile string `json:"profile"` // profile of the simulator; may be empty
	Commit  string `json:"commit"`
}

// lookScript prints the properties of a Python.
const lookScript = `
import importlib.metadata as metadata, importlib.util as util, json, sys
facts = {"python": sys.version.split()[0]}
try:
    import torch
    facts.update(torch=torch.__version__, cuda=torch.version.cuda or "")
    if torch.cuda.is_available():
        device = torch.cuda.get_device_properties(0)
        facts.update(gpu=device.name, memory=device.total_memory)
except Exception as e:
    facts["torch_error"] = repr(e)
if util.find_spec("vllm"):
    try:
        facts["vllm"] = metadata.version("vllm")
    except metadata.PackageNotFoundError:
        facts["vllm"] = "unknown"
print(json.dumps(facts))
`

// inspect examines the machine, chooses the server, checks the PyTorch model if it is the
// choice, and prints all results. If something is missing, the error names it.
func (b *bench) inspect(ctx context.Context, o gpuOptions) (machine, error) {
	m := machine{CPU: o.cpu, Profile: o.profile, SMI: nvidiaSMI(ctx), Commit: commit(ctx)}
	out, err := exec.CommandContext(ctx, o.python, "-c", lookScript).Output()
	if err == nil {
		err = json.Unmarshal([]byte(lastLine(string(out))), &m)
	}
	if err != nil {
		m.TorchError = fmt.Sprintf("%s does not run: %v", o.python, err)
	}
	if m.Server, err = m.choose(o.server); err != nil {
		return m, err
	}
	if m.Profile == "" {
		m.Profile = m.profile()
	}
	if m.Profile != "" {
		if _, err := batching.FindProfile(m.Profile); err != nil {
			return m, fmt.Errorf("-profile: %w", err)
		}
	}
	fmt.Printf("%s\n", m)
	if m.Server == torchServer {
		if err := b.checkTorch(ctx, o, m); err != nil {
			return m, err
		}
	}
	return m, writeJSON(filepath.Join(o.out, "look.json"), m)
}

// choose returns the server to measure.
func (m machine) choose(wanted string) (string, error) {
	switch {
	case !m.CPU && wanted == simServer:
		return "", errors.New("-server sim is not a real server: use it with -cpu only")
	case !m.CPU && m.GPU == "":
		return "", fmt.Errorf("no NVIDIA GPU can be used here.\n%s\nWith -cpu the program runs on a processor, which only shows that it works", m)
	case wanted == vllmServer && m.VLLM == "", wanted == torchServer && m.Torch == "":
		return "", fmt.Errorf("-server %s: this Python does not have it; name another with -python.\n%s", wanted, m)
	case wanted != "auto":
		return wanted, nil
	case m.VLLM != "":
		return vllmServer, nil
	case m.Torch != "":
		return torchServer, nil
	}
	return simServer, nil // with -cpu: without torch no GPU is found
}

// profile returns the simulator's profile for this machine, or "". The simulated server
// is an H100.
func (m machine) profile() string {
	name := strings.ToLower(m.GPU)
	switch {
	case m.Server == simServer, !m.CPU && strings.Contains(name, "h100"):
		return "llama-3.1-8b/h100"
	case !m.CPU && strings.Contains(name, "h200"):
		return "llama-3.1-8b/h200"
	}
	return ""
}

func (m machine) String() string {
	said := func(value, missing string) string {
		if value == "" {
			return missing
		}
		return value
	}
	return fmt.Sprintf("nvidia-smi: %s\nPython: %s\ntorch: %s\nGPU that torch sees: %s\nvLLM: %s\nserver: %s\nsimulator's profile: %s",
		m.SMI, said(m.Python, "none"), said(m.Torch, "none: "+m.TorchError), said(m.GPU, "none"), said(m.VLLM, "none"),
		said(m.Server, "none chosen"), said(m.Profile, "none for this machine"))
}

// checkTorch runs the self-check of the PyTorch server's model on the device of the
// benchmark.
func (b *bench) checkTorch(ctx context.Context, o gpuOptions, m machine) error {
	script, err := b.torchScript()
	if err != nil {
		return err
	}
	_, printed, err := runOnce(ctx, o.python, script, "--check", "--device", m.device())
	if err != nil {
		return fmt.Errorf("the PyTorch server's model is wrong on this machine: %w", err)
	}
	b.log.Info("checked the PyTorch server's model", "said", printed)
	return nil
}

func (m machine) device() string {
	if m.CPU {
		return "cpu"
	}
	return "cuda"
}

// torchScript writes the PyTorch server to a file.
func (b *bench) torchScript() (string, error) {
	path := filepath.Join(b.dir, "server.py")
	if err := os.WriteFile(path, gpu.Server, 0o644); err != nil {
		return "", fmt.Errorf("write server: %w", err)
	}
	return path, nil
}

// nvidiaSMI returns nvidia-smi's description of the GPUs.
func nvidiaSMI(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader").CombinedOutput()
	said := strings.Join(strings.Fields(string(out)), " ")
	if err != nil {
		return strings.TrimSpace("none: " + err.Error() + " " + said)
	}
	return said
}

// The linker sets version when the program is built for a machine without the
// repository.
var version string

// commit returns the measured commit.
func commit(ctx context.Context) string {
	if version != "" {
		return version
	}
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func writeJSON(path string, value any) error {
	data, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return fmt.Errorf("encode results: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}
