package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/internal/wait"
)

// consult runs rowmill doctor and returns its findings and its exit code.
func consult(t *testing.T, server, key string, args ...string) ([]client.Finding, int) {
	t.Helper()
	code, out, errOut := runCommand(t.Context(), []string{"ROWMILL_SERVER=" + server, "ROWMILL_API_KEY=" + key}, "", append([]string{"doctor", "-o", "json"}, args...)...)
	var doc struct {
		Findings []client.Finding
		OK       bool
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatalf("%v\n%s%s", err, out, errOut)
	}
	if doc.OK != (code == 0) {
		t.Errorf("ok is %v with exit code %d", doc.OK, code)
	}
	return doc.Findings, code
}

// planted is a wrong setup that the doctor must report at its level, with a remedy.
type planted struct{ check, level, says, remedy string }

// diagnosed checks that all planted problems are found, and no others. It ignores the
// free disk space of this machine.
func diagnosed(t *testing.T, found []client.Finding, all ...planted) {
	t.Helper()
	left := all
	for _, f := range found {
		if f.Level == "ok" || strings.HasSuffix(f.Check, "disk") {
			continue
		}
		known := false
		for i, p := range left {
			if strings.Contains(f.Check, p.check) && f.Level == p.level && strings.Contains(f.Text, p.says) && strings.Contains(f.Remedy, p.remedy) {
				left = append(append([]planted{}, left[:i]...), left[i+1:]...)
				known = true
				break
			}
		}
		if !known {
			t.Errorf("found what was not planted: %+v", f)
		}
	}
	for _, p := range left {
		t.Errorf("not found: %+v, among\n%+v", p, found)
	}
}

// members prepares the nodes of a cluster with one Redis and one directory. They are
// healthy except for the changes.
func members(t *testing.T, records *redistest.Server, data string, changes ...func(*settings.Settings)) []*NodeProcess {
	t.Helper()
	first := freeAddress(t)
	all := make([]*NodeProcess, len(changes))
	for i, change := range changes {
		all[i] = prepare(t, data, func(s *settings.Settings) {
			s.APIKey, s.Store.URL, s.Objects.Shared = clusterKey, settings.Secret(records.URL()), true
			s.Cluster.Node, s.Cluster.Listen, s.Cluster.PeerListen, s.Cluster.Join = fmt.Sprint("node", i+1), first, "127.0.0.1:0", []string{first}
			if i > 0 {
				s.Cluster.Listen = freeAddress(t)
			}
			s.Retention.Interval = time.Second
			change(s)
			must.Succeed(t, s.Validate())
		})
		must.Succeed(t, all[i].Run(t.Context()))
		t.Cleanup(func() { stop(t, all[i]) })
	}
	wait.For(t, "all nodes know each other and their engines", func() bool {
		for _, m := range all {
			if len(m.Pipeline.Nodes()) != len(all) {
				return false
			}
			for _, n := range m.Pipeline.Nodes() {
				if n.Version == "" {
					return false
				}
			}
		}
		return true
	})
	return all
}

func asIs(*settings.Settings) {}

// up waits until a node knows for all its servers whether they are up.
func up(t *testing.T, m *NodeProcess, servers int) {
	t.Helper()
	wait.For(t, "the servers were asked", func() bool {
		known := 0
		for _, e := range m.Pipeline.Engines() {
			if e.Up || e.Err != nil && !strings.Contains(e.Err.Error(), "not probed") {
				known++
			}
		}
		return known == servers
	})
}

func TestDoctor_SoundDeployment(t *testing.T) {
	t.Parallel()
	nodes := members(t, redistest.Start(t), t.TempDir(), asIs, asIs)
	for _, m := range nodes {
		up(t, m, 1)
	}
	found, code := consult(t, nodes[1].Listeners.URL, clusterKey)
	diagnosed(t, found)
	checks := map[string]bool{}
	for _, f := range found {
		_, check, _ := strings.Cut(f.Check, ": ")
		checks[check] = true
		checks[f.Check] = true
	}
	for _, check := range []string{"api", "key", "records", "bucket", "clock", "peers", "engine simulator", "actors"} {
		if !checks[check] {
			t.Errorf("%s was not looked at: %v", check, found)
		}
	}
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// The nodes report how long their storage took, and leave no object behind.
func TestDiagnose_StorageTimes(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	m := start(t, data, func(s *settings.Settings) { s.APIKey = clusterKey })
	api, err := client.New(client.Config{Server: m.Listeners.URL, Key: clusterKey})
	must.Succeed(t, err)
	defer api.Close()
	for range 2 { // the second time the record exists
		found, _, err := api.Diagnose(t.Context())
		if err != nil || len(found.Nodes) != 1 || found.Nodes[0].Facts == nil {
			t.Fatalf("%+v, error %v", found, err)
		}
		times := found.Nodes[0].Facts.Storage
		if times.ObjectBytes != timedObject {
			t.Errorf("objects of %d bytes", times.ObjectBytes)
		}
		for what, all := range map[string][]float64{"commits": times.CommitSeconds, "flushes": times.SyncSeconds, "puts": times.PutSeconds, "gets": times.GetSeconds} {
			if len(all) == 0 || slices.Min(all) <= 0 {
				t.Errorf("%s: %v", what, all)
			}
		}
	}
	left, err := m.Storage.Bucket.List(t.Context(), "probe/")
	if err != nil || len(left) != 0 {
		t.Errorf("objects %v are left, error %v", left, err)
	}
	if files, err := filepath.Glob(filepath.Join(data, ".doctor-*")); err != nil || len(files) != 0 {
		t.Errorf("files %v are left, error %v", files, err)
	}
}

func TestDoctor_ServiceAndKey(t *testing.T) {
	t.Parallel()
	nobody := "http://" + freeAddress(t)
	found, code := consult(t, nobody, "a-key")
	diagnosed(t, found, planted{"api", "fail", "does not answer", "http.listen"})
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	m := start(t, t.TempDir(), func(s *settings.Settings) { s.APIKey = clusterKey })
	found, _ = consult(t, m.Listeners.URL, "a-wrong-key")
	diagnosed(t, found, planted{"key", "fail", "unknown, revoked or expired", "keys create"})
	_, user, _ := runCommand(t.Context(), environ(m, clusterKey), "", "keys", "create", "--role", "user", "--name", "somebody", "-o", "json")
	var made struct{ Key string }
	if err := json.Unmarshal([]byte(user), &made); err != nil {
		t.Fatal(err, user)
	}
	found, _ = consult(t, m.Listeners.URL, made.Key)
	diagnosed(t, found, planted{"key", "fail", "does not allow listing nodes", "administrator's key"})
	files, _ := issued(t)
	secure := start(t, t.TempDir(), func(s *settings.Settings) {
		s.APIKey, s.HTTP.TLSCert, s.HTTP.TLSKey = clusterKey, files.Cert, files.Key
	})
	found, _ = consult(t, secure.Listeners.URL, clusterKey)
	diagnosed(t, found, planted{"certificate", "fail", "clients refuse", "http.tls_cert"}, planted{"api", "fail", "does not answer", ""})
}

func TestRoomFinding(t *testing.T) {
	t.Parallel()
	if f := checkDiskSpace("/data", 20<<30, 100<<30); f.Level != "" {
		t.Errorf("%+v", f)
	}
	if f := checkDiskSpace("/data", 5<<30, 100<<30); f.Level != "warn" || f.Check != "disk" || !strings.Contains(f.Text, "5.0 GiB left, 5 %") || f.Remedy == "" {
		t.Errorf("%+v", f)
	}
}

// page serves an inference server's answers by path.
func page(t *testing.T, answers map[string]string) string {
	t.Helper()
	server := httptest.NewServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		status, body := 404, "{}"
		if text, ok := answers[r.URL.Path]; ok {
			status, body = 200, text
		} else if len(answers) == 0 {
			status = 401
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestDoctor_Engines(t *testing.T) {
	t.Parallel()
	listed := func(model string, context int) string {
		return page(t, map[string]string{
			"/v1/models": fmt.Sprintf(`{"object":"list","data":[{"id":%q,"object":"model","owned_by":"vllm","max_model_len":%d}]}`, model, context),
			"/version":   `{"version":"0.9.0"}`,
		})
	}
	m := start(t, t.TempDir(), func(s *settings.Settings) {
		s.APIKey, s.Simulator.Enabled = clusterKey, settings.Never
		s.Engines = []settings.Engine{
			{URL: page(t, nil), Name: "locked"},
			{URL: "http://" + freeAddress(t), Name: "gone"},
			{URL: listed("llama-3.1-8b", 1000), Name: "short"},
			{URL: listed("somebody/else", 1000), Name: "strange"},
		}
	})
	up(t, m, 4)
	wait.Until(t, func() error { // the server refuses its rows
		for _, e := range m.Pipeline.Engines() {
			if len(e.Info.Models) > 0 && e.Info.Models[0].Unusable != "" {
				return nil
			}
		}
		return errors.New("no engine was found to refuse its model's rows")
	})
	found, code := consult(t, m.Listeners.URL, clusterKey)
	diagnosed(t, found,
		planted{"engine locked", "fail", "HTTP 401", "api_key"},
		planted{"engine gone", "fail", "down", "start it"},
		planted{"engine short", "warn", "1000 tokens for llama-3.1-8b", "--max-model-len"},
		planted{"engine strange", "warn", "lists somebody/else, which cannot be used: its server refuses the rows", "chat template"},
	)
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	none := start(t, t.TempDir(), func(s *settings.Settings) {
		s.APIKey, s.Simulator.Enabled, s.Discover.Addresses = clusterKey, settings.Never, []string{freeAddress(t)}
	})
	found, _ = consult(t, none.Listeners.URL, clusterKey)
	diagnosed(t, found, planted{"engines", "fail", "none", "name one in engines"})
}

func TestDoctor_Cluster(t *testing.T) {
	t.Parallel()
	records, data := redistest.Start(t), t.TempDir()
	must.Get(records.Command("CONFIG", "SET", "appendfsync", "everysec"))(t)
	catalog := filepath.Join(t.TempDir(), "catalog.yaml")
	must.Succeed(t, os.WriteFile(catalog, []byte("models:\n- {id: llama-3.1-8b, kind: generation, context_length: 4096}\n"), 0o600))
	closed := freeAddress(t)
	nodes := members(t, records, data, asIs, func(s *settings.Settings) {
		s.Cluster.Listen = strings.Replace(s.Cluster.Listen, "127.0.0.1", "0.0.0.0", 1)
		s.Cluster.Advertise, s.Cluster.PeerAdvertise, s.Cluster.Insecure = s.Cluster.Listen, closed, true
		s.Cluster.Advertise = strings.Replace(s.Cluster.Advertise, "0.0.0.0", "127.0.0.1", 1)
		s.HTTP.Listen, s.HTTP.AdminListen = "127.0.0.1:0", "0.0.0.0:0"
		s.ClockOffset, s.Retention.ClockTolerance = time.Minute, time.Hour
		s.Retention.OrphanAge, s.Jobs.MaxActive, s.Catalog = time.Hour, 7, catalog
		s.Tracing.Endpoint = "http://" + closed
	})
	for _, m := range nodes {
		up(t, m, 1)
	}
	wait.For(t, "the clock was looked at", func() bool { return nodes[1].Pipeline.StorageStatus().Skew > maxClockError })
	// Put a file in place of the folder for the bucket's test objects.
	probe := filepath.Join(data, "objects", "probe")
	must.Succeed(t, os.RemoveAll(probe))
	must.Succeed(t, os.WriteFile(probe, nil, 0o600))
	found, _ := consult(t, nodes[1].Listeners.URL, clusterKey)
	diagnosed(t, found,
		planted{"node1: records", "warn", "once a second", "redis.conf"},
		planted{"node2: records", "warn", "once a second", "redis.conf"},
		planted{"node1: bucket", "fail", "cannot be written", "write to"},
		planted{"node2: bucket", "fail", "cannot be written", "write to"},
		planted{"node1: peers", "fail", "node node2 cannot be asked at " + closed, "cluster.peer_advertise"},
		planted{"node2: cluster", "warn", "gossip", "cluster.insecure"},
		planted{"node2: cluster", "fail", "cluster.advertise is 127.0.0.1", "address of this machine"},
		planted{"node2: admin", "fail", "pprof", "127.0.0.1"},
		planted{"node2: clock", "fail", "clock_offset is 1m0s", "remove clock_offset"},
		planted{"node2: clock", "fail", "ahead of the clock of the records", "NTP"},
		planted{"node2: retention", "warn", "retention.orphan_age", "24h"},
		planted{"settings", "warn", "jobs.max_active", "same value"},
		planted{"settings", "warn", "retention.orphan_age", "same value"},
		planted{"settings", "warn", "retention.clock_tolerance", "same value"},
		planted{"catalog", "fail", "nodes differ in catalog", "same catalog"},
		planted{"setting tracing.sample", "warn", "nothing is traced", "each node decides"},
	)
	found, _ = consult(t, nodes[0].Listeners.URL, clusterKey)
	for _, f := range found {
		if f.Check == "node node2" && f.Level == "fail" && strings.Contains(f.Remedy, "cluster.peer_listen") {
			return
		}
	}
	t.Errorf("from node1 node2 cannot be asked, and the doctor does not say so: %+v", found)
}
