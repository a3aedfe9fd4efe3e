package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
)

// simulatedServer returns a server that writes its environment into a file.
func simulatedServer(t *testing.T, name, environFile string, gpus int) settings.Server {
	t.Helper()
	return settings.Server{
		Name: name, GPUs: gpus, Ready: settings.Defaults().Jobs.WaitForEngine,
		Run: fmt.Sprintf("env > '%s'; exec '%s' sim --listen 127.0.0.1:{port} --ttft 0s --per-token 0s", environFile, must.Get(os.Executable())(t)),
	}
}

// A node runs rows on the servers that it starts. Each server has GPUs of its own, and no
// settings of the node.
func TestNodeStartsServers(t *testing.T) {
	t.Setenv("ROWMILL_API_KEY", "secret-of-the-node")
	t.Setenv("CUDA_VISIBLE_DEVICES", "7")
	data, files := t.TempDir(), t.TempDir()
	m := prepare(t, data, func(s *settings.Settings) {
		s.Simulator.Enabled = settings.Never // the servers count as real ones, like other engines that the operator names
		s.Jobs.ProbeInterval /= 50
		for i, gpus := range []int{1, 0, 2} {
			name := fmt.Sprint("s", i)
			s.Servers = append(s.Servers, simulatedServer(t, name, filepath.Join(files, name), gpus))
		}
	})
	m.Engines.GPUs = machine{{Index: 0}, {Index: 1}, {Index: 4}}
	api := m.run(t)
	for i := range m.Settings.Servers { // most servers do not answer yet
		host := m.Engines.engineHost(fmt.Sprint("s", i))
		if !slices.Contains(m.Pipeline.ownAddresses(), host) || !strings.HasPrefix(host, "127.0.0.1:") {
			t.Errorf("clients may read from %s", host)
		}
	}
	job := await(t, api, submit(t, api, 50), func(j client.Job) bool { return j.Status.IsTerminal() })
	if job.Status != "succeeded" {
		t.Errorf("the job ended as %s", job.Status)
	}
	for i, want := range []string{"CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=7", "CUDA_VISIBLE_DEVICES=1,4"} {
		name := fmt.Sprint("s", i)
		var environ []string
		wait.For(t, "the environment of "+name, func() bool {
			text, err := os.ReadFile(filepath.Join(files, name))
			environ = strings.Split(string(text), "\n")
			return err == nil && slices.Contains(environ, want)
		})
		if slices.ContainsFunc(environ, func(variable string) bool { return strings.HasPrefix(variable, "ROWMILL_") }) {
			t.Errorf("%s has settings of the node", name)
		}
	}
}

// A machine with fewer GPUs than a server needs starts no server, and no node.
func TestNodeWithTooFewGPUs(t *testing.T) {
	t.Parallel()
	for name, gpus := range map[string]machine{"1": gpuBox, "0": nil} {
		data := t.TempDir()
		m := prepare(t, data, func(s *settings.Settings) {
			s.Simulator.Enabled = settings.Auto
			s.Servers = []settings.Server{simulatedServer(t, "a", filepath.Join(data, "a"), 1), simulatedServer(t, "b", filepath.Join(data, "b"), 2)}
		})
		m.Engines.GPUs = gpus
		if err := m.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "servers: a server needs 2 GPUs (gpus), and this machine has fewer NVIDIA GPUs: "+name+";") {
			t.Errorf("%s GPUs: error %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(data, "servers")); !os.IsNotExist(err) {
			t.Errorf("%s GPUs: a server was started", name)
		}
	}
}
