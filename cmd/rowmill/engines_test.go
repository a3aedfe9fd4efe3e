package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/gpu"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/engine/sim"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
)

// machine returns its own list of GPUs instead of this machine's.
type machine []gpu.GPU

func (m machine) Read(context.Context) ([]gpu.GPU, error) {
	if len(m) == 0 {
		return nil, gpu.ErrNone
	}
	return m, nil
}

var gpuBox = machine{{Index: 0, Name: "NVIDIA H200", UUID: "GPU-1", MemoryTotal: 141 << 30, MemoryUsed: 47 << 30, Utilisation: 0.5}}

// looking makes a node without configured servers that searches one address often. The
// buffer has its log.
func looking(t *testing.T, gpus machine, address string, change func(*settings.Settings)) (*NodeProcess, *watched) {
	t.Helper()
	m := prepare(t, t.TempDir(), func(s *settings.Settings) {
		s.Simulator.Enabled = settings.Auto
		s.Discover.Addresses, s.Discover.Interval = []string{address}, 100*time.Millisecond
		s.Discover.Timeout = 30 * time.Second // a running server answers within this time on a busy machine too
		s.Jobs.ProbeInterval = time.Second    // a probe may take this long too
		if change != nil {
			change(s)
		}
	})
	logs := &watched{}
	m.Engines.GPUs, m.Logger = gpus, slog.New(slog.NewTextHandler(io.MultiWriter(logs, testWriter{t}), nil))
	return m, logs
}

// run starts the node until the test ends.
func (m *NodeProcess) run(t *testing.T) *client.Client {
	t.Helper()
	must.Succeed(t, m.Run(t.Context()))
	t.Cleanup(func() { stop(t, m) })
	api := must.Get(client.New(client.Config{Server: m.Listeners.URL, Key: m.API.FirstKey}))(t)
	t.Cleanup(api.Close)
	return api
}

// startSim runs a simulated server at an address until the returned function is called,
// which also closes the connections of requests in progress.
func startSim(t *testing.T, address string, ttft time.Duration) (kill func()) {
	t.Helper()
	server := must.Get(openSimulator(t.Context(), address, sim.Config{
		Models:  catalog.Default().All(),
		Profile: applySimSettings(sim.DefaultProfile(), settings.Simulator{TTFT: ttft, Slots: 8}),
	}))(t)
	kill = func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		if err := server.Stop(now); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(kill)
	return kill
}

func submit(t *testing.T, api *client.Client, rows int) string {
	t.Helper()
	texts := make([]string, rows)
	for i := range texts {
		texts[i] = fmt.Sprint("row ", i)
	}
	made := must.Get(api.Submit(t.Context(), client.Submission{Rows: client.RowsOf(texts...), Model: "llama-3.1-8b", Sampling: map[string]any{"max_tokens": 5}}))(t)
	return made.JobID
}

func await(t *testing.T, api *client.Client, id string, ok func(client.Job) bool) client.Job {
	t.Helper()
	var job client.Job
	wait.Until(t, func() (err error) {
		if job, err = api.Job(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if !ok(job) {
			return fmt.Errorf("the job did not get there: %s", job.Raw)
		}
		return nil
	})
	return job
}

// awaitReady waits until /readyz?verbose contains all of the texts.
func awaitReady(t *testing.T, m *NodeProcess, texts ...string) {
	t.Helper()
	wait.Until(t, func() error {
		status, body := readiness(t, m)
		missing := slices.IndexFunc(texts, func(text string) bool { return !strings.Contains(body, text) })
		if status == 200 && missing < 0 {
			return nil
		}
		return fmt.Errorf("%d, lacks %q:\n%s", status, texts[max(missing, 0)], body)
	})
}

// A node uses a server that it finds at its start, also after the server vanished in
// the middle of a job and returned.
func TestServeUsesTheServerItFinds(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	kill := startSim(t, address, 20*time.Millisecond)
	m, logs := looking(t, gpuBox, address, nil)
	api := m.run(t)
	if m.Engines.Simulator != nil || len(m.Engines.Engines) != 1 || m.Engines.Engines[0].Name() != address {
		t.Fatalf("engines %v, simulator %v", m.Engines.Engines, m.Engines.Simulator)
	}
	awaitReady(t, m, "engine "+address+": SIMULATED, outputs are made up; rowmill-sim", "at "+address+", up since 20", "serves ", "a window of ", "gpu 0: NVIDIA H200, 47.0 of 141.0 GiB used, 50 % busy")
	if !strings.Contains(logs.String(), "OUTPUTS ARE SIMULATED: a simulated server was found") {
		t.Error("the log does not name the servers in use")
	}

	const rows = 600
	id := submit(t, api, rows)
	await(t, api, id, func(j client.Job) bool { return j.RowsDone > 0 })
	kill()
	awaitReady(t, m, "engine "+address+": DOWN since 20", "connection refused")
	if job := await(t, api, id, func(j client.Job) bool { return strings.HasPrefix(j.Message, "Waiting for an engine") }); job.RowsDone == rows {
		t.Fatal("the job was over before its server vanished")
	}
	startSim(t, address, 0)
	job := await(t, api, id, func(j client.Job) bool { return j.Status.IsTerminal() })
	if job.Status != "succeeded" || job.RowsDone != rows || job.FailedRows != 0 {
		t.Errorf("the job ended %s: %s", job.Status, job.Raw)
	}
	for _, want := range []string{
		`rowmill_engine_info{engine="` + address + `",host="` + address + `",kind="rowmill-sim",simulated="true",version="`,
		`rowmill_engine_model_info{engine="` + address + `",model="llama-3.1-8b"} 1`,
		`rowmill_engine_state_since_timestamp_seconds{engine="` + address + `"} 1`,
		`rowmill_engine_rows_queued{engine="` + address + `"} 0`,
		`rowmill_engine_up{engine="` + address + `"} 1`,
		`rowmill_gpu_memory_bytes{index="0",kind="total"} 1.5`,
	} {
		wait.For(t, "metrics have "+want, func() bool { // on a busy machine a probe may fail
			_, metrics := fetch(t, m.Listeners.URL+"/metrics")
			return strings.Contains(metrics, want)
		})
	}
}

// A machine with a GPU does not simulate: the job waits until the server has loaded its
// model.
func TestGPUMachineWaitsForItsServer(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	m, logs := looking(t, gpuBox, address, nil)
	api := m.run(t)
	if m.Engines.Simulator != nil || len(m.Engines.Engines) > 0 {
		t.Fatalf("engines %v, simulator %v", m.Engines.Engines, m.Engines.Simulator)
	}
	awaitReady(t, m, "engines: NONE YET, jobs wait for a server at "+address, "this machine has a GPU (NVIDIA H200)")
	if text := logs.String(); !strings.Contains(text, "NO INFERENCE SERVER YET") || !strings.Contains(text, "--simulate") {
		t.Error("the log does not name the missing server:\n" + text)
	}
	id := submit(t, api, 3)
	await(t, api, id, func(j client.Job) bool { return j.Message == "Waiting for an engine that serves llama-3.1-8b." })
	startSim(t, address, 0)
	if job := await(t, api, id, func(j client.Job) bool { return j.Status.IsTerminal() }); job.Status != "succeeded" {
		t.Errorf("the job ended %s: %s", job.Status, job.Raw)
	}
}

// A real server that appears while outputs are simulated is reported once, with the
// remedy, and gets no rows.
func TestRealServerBesideTheSimulator(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	m, logs := looking(t, nil, address, nil)
	api := m.run(t)
	if m.Engines.Simulator == nil || !m.Engines.policy.isSimulating() {
		t.Fatal("no simulator on a machine without GPU and server")
	}
	var rows, keys atomic.Int64
	real := httptest.NewUnstartedServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if r.Header.Get("Authorization") != "" {
			keys.Add(1)
		}
		switch r.URL.Path {
		case "/v1/models":
			fmt.Fprint(w, `{"object":"list","data":[{"id":"llama-3.1-8b","owned_by":"vllm","max_model_len":8192}]}`)
		case "/version":
			fmt.Fprint(w, `{"version":"0.11.0"}`)
		case "/health":
		default:
			rows.Add(1)
			nethttp.NotFound(w, r)
		}
	}))
	var err error
	if real.Listener, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	real.Start()
	defer real.Close()
	awaitReady(t, m, "server "+address+": FOUND AND NOT USED: it is real", "--engine http://"+address, "vllm 0.11.0, serves llama-3.1-8b", "engine simulator: SIMULATED")
	if job := await(t, api, submit(t, api, 50), func(j client.Job) bool { return j.Status.IsTerminal() }); job.Status != "succeeded" {
		t.Errorf("the job ended %s: %s", job.Status, job.Raw)
	}
	if n := strings.Count(logs.String(), "INFERENCE SERVER FOUND AND NOT USED"); n != 1 {
		t.Errorf("reported %d times", n)
	}
	if rows.Load()+keys.Load() > 0 || len(m.Pipeline.Engines()) != 1 {
		t.Errorf("the real server got %d rows and %d keys", rows.Load(), keys.Load())
	}
}

// When no server is found, settings and GPUs decide whether the node simulates, waits
// or refuses to start.
func TestWithoutAServer(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	for _, test := range []struct {
		name     string
		gpus     machine
		simulate settings.FeatureMode
		discover settings.FeatureMode
		want     string // simulate, wait, or a part of the error
	}{
		{"no GPU", nil, settings.Auto, settings.Auto, "simulate"},
		{"no GPU, not looking", nil, settings.Auto, settings.Never, "simulate"},
		{"no GPU, never", nil, settings.Never, settings.Auto, "wait"},
		{"GPU", gpuBox, settings.Auto, settings.Auto, "wait"},
		{"GPU, always", gpuBox, settings.Always, settings.Auto, "simulate"},
		{"GPU, not looking", gpuBox, settings.Auto, settings.Never, "name a server with --engine URL, or give --simulate"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m, _ := looking(t, test.gpus, address, func(s *settings.Settings) {
				s.Simulator.Enabled, s.Discover.Enabled = test.simulate, test.discover
			})
			err := m.Run(t.Context())
			defer stop(t, m)
			var greeting bytes.Buffer
			switch {
			case err != nil:
				if !strings.Contains(err.Error(), test.want) {
					t.Errorf("error %v, want %q", err, test.want)
				}
				return
			case m.Engines.Simulator != nil:
				printStartBanner(&terminal.IO{Out: &greeting}, m)
				if test.want != "simulate" || !strings.Contains(greeting.String(), "OUTPUTS ARE SIMULATED") {
					t.Errorf("it simulates, want %s:\n%s", test.want, greeting.String())
				}
			default:
				printStartBanner(&terminal.IO{Out: &greeting}, m)
				if test.want != "wait" || !strings.Contains(greeting.String(), "NONE YET: jobs wait for a server at "+address) {
					t.Errorf("it waits, want %s:\n%s", test.want, greeting.String())
				}
			}
		})
	}
}

// A node does not use itself or another node as an inference server.
func TestNodesDoNotUseEachOther(t *testing.T) {
	t.Parallel()
	other := start(t, t.TempDir(), nil)
	m, _ := looking(t, nil, other.Listeners.Addr.String(), nil)
	m.run(t)
	if m.Engines.Simulator == nil {
		t.Error("another node was taken for an inference server")
	}
	for _, test := range []struct {
		address, listen string
		own             bool
	}{
		{"127.0.0.1:8080", "127.0.0.1:8080", true},
		{"127.0.0.1:8080", "0.0.0.0:8080", true},
		{"127.0.0.1:8080", ":8080", true},
		{"127.0.0.1:8080", "[::]:8080", true},
		{"127.0.0.1:8080", "localhost:8080", true},
		{"localhost:8080", "127.0.0.1:8080", true},
		{"gpu2:8080", "gpu2:8080", true},
		{"127.0.0.1:8080", "127.0.0.1:8088", false},
		{"127.0.0.1:8080", "192.168.1.2:8080", false},
		{"gpu2:8080", "127.0.0.1:8080", false},
		{"127.0.0.1:8080", "", false},
	} {
		if got := isOwnAddress(test.address, test.listen); got != test.own {
			t.Errorf("%s with a listener on %q: %v", test.address, test.listen, got)
		}
	}
}

// A node of a cluster does not simulate by default: another node may have a real
// server, and outputs would be mixed.
func TestNodeOfAClusterSimulatesOnlyWhenTold(t *testing.T) {
	t.Parallel()
	for choice, want := range map[settings.FeatureMode]bool{settings.Auto: false, settings.Always: true} {
		m, _ := looking(t, nil, freeAddress(t), func(s *settings.Settings) {
			s.Cluster.Listen, s.Simulator.Enabled = "127.0.0.1:0", choice
		})
		m.Engines.Catalog = catalog.Default()
		err := m.Engines.Start(t.Context())
		if err != nil || (m.Engines.Simulator != nil) != want || !want && !strings.Contains(m.Engines.waitReason, "other nodes") {
			t.Errorf("%s: simulates %v, waits since %q, error %v", choice, m.Engines.Simulator != nil, m.Engines.waitReason, err)
		}
		if err := m.Engines.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestServesTellsTheCatalogsModels(t *testing.T) {
	t.Parallel()
	m := &nodeEngines{Catalog: catalog.Default()}
	all := m.Catalog.All()
	var info engine.ServerInfo
	for _, model := range all { // the names of the servers and of the catalog
		info.Models = append(info.Models, engine.ServedModel{Name: model.EngineNames[0]}, engine.ServedModel{Name: model.ID})
	}
	if got := m.modelIDs(info); len(got) != len(all) || got[0] != all[0].ID {
		t.Errorf("all models are %v", got)
	}
	if got := m.formatModels(info); !strings.HasPrefix(got, all[0].ID+", ") || !strings.HasSuffix(got, fmt.Sprintf(" and %d more", len(all)-5)) || strings.Count(got, ",") != 4 {
		t.Errorf("all models are %q", got)
	}
	if got, want := m.formatModels(engine.ServerInfo{Models: []engine.ServedModel{{Name: all[1].EngineNames[0]}}}), all[1].ID; got != want {
		t.Errorf("one model is %q, want %q", got, want)
	}
	if got := m.formatModels(mergeServerModels([]nodes.Engine{{Models: []engine.ServedModel{{Name: "own"}}}})); got != "own" {
		t.Errorf("a model of no catalog is %q", got)
	}
}
