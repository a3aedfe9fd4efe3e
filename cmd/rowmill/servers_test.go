package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/engine/served"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/internal/wait"
)

// awaitServer waits until the only server has a state, and returns the server.
func awaitServer(t *testing.T, api *client.Client, ok func(client.Server) bool) (s client.Server) {
	t.Helper()
	wait.Until(t, func() error {
		found, answer, err := api.ListServers(t.Context())
		if err != nil || len(found.Servers) != 1 || !ok(found.Servers[0]) {
			return fmt.Errorf("servers %s, %w", answer.Raw, err)
		}
		s = found.Servers[0]
		return nil
	})
	return s
}

// An idle server stops. It is no engine then, but jobs can use its models. An operator starts
// it.
func TestServers_StoppedAndStarted(t *testing.T) {
	t.Parallel()
	const model = "llama-3.1-8b"
	data := t.TempDir()
	m := prepare(t, data, func(s *settings.Settings) {
		s.Simulator.Enabled, s.Placement.Hold = settings.Never, 0
		s.Jobs.ProbeInterval /= 50
		server := simulatedServer(t, "sim", filepath.Join(data, "environ"), 0)
		server.Run = "echo it begins; " + server.Run + " --model " + model
		server.Models, server.Idle = map[string]string{model: ""}, time.Millisecond
		s.Servers = []settings.Server{server}
	})
	api := m.run(t)
	if s := awaitServer(t, api, func(s client.Server) bool { return s.Phase == "stopped" }); !slices.Equal(s.Models, []string{model}) || s.Mode != "auto" || s.Error != nil {
		t.Errorf("server %+v", s)
	}
	if models, answer, err := api.ListModels(t.Context()); err != nil || models.Data[0].ID != model || !models.Data[0].ServedBy[0].Stopped {
		t.Errorf("models %.300s, %v", answer.Raw, err)
	}
	if engines, answer, err := api.ListEngines(t.Context()); err != nil || len(engines.Engines) > 0 {
		t.Errorf("engines %s, %v", answer.Raw, err)
	}
	if nodes, answer, err := api.ListNodes(t.Context()); err != nil || len(nodes.Nodes[0].Models) > 0 {
		t.Errorf("nodes %s, %v", answer.Raw, err)
	}
	if _, text := readiness(t, m); !strings.Contains(text, "engines: none runs now: the node starts 1 servers") {
		t.Errorf("readiness %s", text)
	}
	if doc, _, err := api.Diagnose(t.Context()); err != nil || slices.ContainsFunc(doc.Nodes[0].Facts.Findings, func(f client.Finding) bool { return f.Check == "engines" && f.Level != "ok" }) {
		t.Errorf("findings %v", doc.Nodes[0].Facts.Findings)
	}
	runFor(t, m, "servers", "start", "sim")
	awaitServer(t, api, func(s client.Server) bool { return s.Phase == "running" && s.Mode == "on" })
	if out := runFor(t, m, "servers", "logs", "sim"); !strings.Contains(out, "it begins\n") {
		t.Errorf("output %s", out)
	}
	runFor(t, m, "servers", "stop", m.nodeName()+"/sim")
	awaitServer(t, api, func(s client.Server) bool { return s.Phase == "stopped" && s.Mode == "off" })
}

// runFor runs a command with the node's first key, and returns standard output.
func runFor(t *testing.T, m *NodeProcess, args ...string) string {
	t.Helper()
	code, out, said := runCommand(t.Context(), environ(m, m.API.FirstKey), "", args...)
	if code != 0 {
		t.Fatalf("rowmill %v: code %d: %s", args, code, said)
	}
	return out
}

// A node starts a server without models once to learn its models. It keeps them over a
// restart.
func TestServers_AreLearnedOnce(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	starts := filepath.Join(data, "starts")
	for range 2 {
		m := prepare(t, data, func(s *settings.Settings) {
			s.Simulator.Enabled = settings.Never
			s.Jobs.ProbeInterval /= 50
			server := simulatedServer(t, "sim", filepath.Join(data, "environ"), 0)
			server.Run, server.Idle = fmt.Sprintf("echo >> '%s'; %s", starts, server.Run), time.Millisecond
			s.Servers = []settings.Server{server}
		})
		must.Succeed(t, m.Run(t.Context()))
		wait.For(t, "a stopped server with known models", func() bool {
			return slices.ContainsFunc(m.Service.Servers(), func(s served.Server) bool { return s.Stopped && len(s.Models) > 0 })
		})
		stop(t, m)
	}
	if n := len(must.Get(os.ReadFile(starts))(t)); n != 1 {
		t.Errorf("the server was started %d times", n)
	}
}

// Any node shows the output of a server of another node, and why it ended.
func TestServers_OfAnotherNode(t *testing.T) {
	t.Parallel()
	records, data, first := redistest.Start(t), t.TempDir(), freeAddress(t)
	member := func(name, listen string, change func(*settings.Settings)) *client.Client {
		m := prepare(t, data, func(s *settings.Settings) {
			s.APIKey, s.Objects.Shared, s.Store.URL = clusterKey, true, settings.Secret(records.URL())
			s.Cluster.Node, s.Cluster.Listen, s.Cluster.PeerListen, s.Cluster.Join = name, listen, "127.0.0.1:0", []string{first}
			change(s)
			must.Succeed(t, s.Validate())
		})
		must.Succeed(t, m.Run(t.Context()))
		t.Cleanup(func() { stop(t, m) })
		api := must.Get(client.New(client.Config{Server: m.Listeners.URL, Key: clusterKey}))(t)
		t.Cleanup(api.Close)
		return api
	}
	web := member("web", first, func(s *settings.Settings) { s.Cluster.Role, s.Simulator.Enabled = settings.APIOnly, settings.Auto })
	member("gpu", freeAddress(t), func(s *settings.Settings) {
		s.Simulator.Enabled = settings.Never
		s.Servers = []settings.Server{{Name: "bad", Run: "name=secret-{port}; echo the GPU is out of memory; exit 3", Ready: time.Hour}}
	})
	failed := awaitServer(t, web, func(s client.Server) bool { return s.Error != nil && s.RetryAt != nil })
	if failed.Node != "gpu" || *failed.Error != "the server ended with code 3: the GPU is out of memory" || failed.FailingSince == nil {
		t.Errorf("server %+v, error %s", failed, *failed.Error)
	}
	if _, answer, err := web.ListServers(t.Context()); err != nil || strings.Contains(string(answer.Raw), "secret") {
		t.Errorf("the command is in the answer: %s, %v", answer.Raw, err)
	}
	log, _, err := web.GetServerLog(t.Context(), "gpu", "bad", client.GetServerLogParams{Lines: 1})
	if err != nil || !strings.HasSuffix(log.Text, " is out of memory\n") || log.End < int64(len(log.Text)) {
		t.Errorf("output %+v, %v", log, err)
	}
	if rest, _, err := web.GetServerLog(t.Context(), "gpu", "bad", client.GetServerLogParams{After: log.End}); err != nil || rest.End != log.End+int64(len(rest.Text)) {
		t.Errorf("later output %+v, %v", rest, err)
	}
	doc, _, err := web.Diagnose(t.Context())
	must.Succeed(t, err)
	gpu := slices.IndexFunc(doc.Nodes, func(d client.Diagnosis) bool { return d.Name == "gpu" })
	if gpu < 0 || doc.Nodes[gpu].Facts == nil || !slices.ContainsFunc(doc.Nodes[gpu].Facts.Findings, func(f client.Finding) bool {
		return f.Check == "server bad" && f.Level == "fail" && strings.Contains(f.Remedy, "rowmill servers logs gpu/bad")
	}) {
		t.Errorf("diagnosis %+v", doc)
	}
}
