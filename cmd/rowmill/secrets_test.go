package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	nethttp "net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/internal/certtest"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/internal/wait"
)

// put replaces a file atomically, as an operator would.
func put(t *testing.T, name, text string) {
	t.Helper()
	must.Succeed(t, os.WriteFile(name+".new", []byte(text), 0o600))
	must.Succeed(t, os.Rename(name+".new", name))
}

// fromFile prepares a node with a settings file.
func fromFile(t *testing.T, file string, log io.Writer) (m *NodeProcess, hangup chan<- os.Signal) {
	t.Helper()
	load := func() (settings.Settings, error) {
		return settings.Load(settings.Sources{File: file, Environ: []string{"HOME=" + t.TempDir()}})
	}
	s := must.Get(load())(t)
	signals := make(chan os.Signal, 1)
	m = newNodeProcess(s, slog.New(slog.NewJSONHandler(log, nil)))
	m.Secrets.Reload, m.Secrets.Hangup = load, signals
	return m, signals
}

// status returns the status of a request to a node.
func status(t *testing.T, m *NodeProcess, key string) int {
	t.Helper()
	request := must.Get(nethttp.NewRequestWithContext(t.Context(), nethttp.MethodGet, m.Listeners.URL+"/v1/me", nethttp.NoBody))(t)
	request.Header.Set("Authorization", "Key "+key)
	response, err := nethttp.DefaultClient.Do(request)
	must.Succeed(t, err)
	response.Body.Close()
	return response.StatusCode
}

// A node that reloads only at SIGHUP takes over the secrets and no other settings. If
// the settings cannot be read, it continues with the old ones.
func TestSecretsAtSIGHUP(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, file := filepath.Join(dir, "key"), filepath.Join(dir, "rowmill.yaml")
	write := func(active int) {
		put(t, file, fmt.Sprintf("data: %s\napi_key_file: %s\nsecrets_interval: 0s\nhttp: {listen: '127.0.0.1:0'}\nsimulator: {enabled: always}\njobs: {max_active: %d}\n",
			filepath.Join(dir, "data"), key, active))
	}
	put(t, key, "first\n")
	write(8)
	log := &watched{}
	m, hangup := fromFile(t, file, io.MultiWriter(log, testWriter{t}))
	must.Succeed(t, m.Run(t.Context()))
	defer stop(t, m)
	put(t, key, "first\nsecond\n")
	if code := status(t, m, "second"); code != 401 {
		t.Fatalf("before it was asked for the new key is answered with %d", code)
	}
	hangup <- syscall.SIGHUP
	wait.For(t, "both keys are good", func() bool { return status(t, m, "first") == 200 && status(t, m, "second") == 200 })

	put(t, key, "")
	hangup <- syscall.SIGHUP
	wait.For(t, "the node says that the file is empty", func() bool { return strings.Contains(log.String(), "it must hold the secret") })
	if status(t, m, "second") != 200 {
		t.Error("with an empty file the former keys are not good any more")
	}
	if facts := m.Service.collectFacts(t.Context()); !strings.Contains(fmt.Sprint(facts), "it must hold the secret") {
		t.Errorf("the node finds nothing wrong with itself: %v", facts)
	}

	put(t, key, "second\n")
	write(9)
	hangup <- syscall.SIGHUP
	wait.For(t, "the old key is good no more", func() bool { return status(t, m, "first") == 401 })
	if status(t, m, "second") != 200 {
		t.Error("the new key is not good")
	}
	wait.For(t, "the node says that it needs a restart", func() bool { return strings.Contains(log.String(), "take effect only after a restart") })
}

// rotated is a node of TestRotation, with the files of its secrets.
type rotated struct {
	*NodeProcess
	dir string
}

func (r rotated) file(name string) string { return filepath.Join(r.dir, name) }

// replace changes a node's file, and waits until the new content is in use.
func (r rotated) replace(t *testing.T, name, setting, text string) {
	t.Helper()
	put(t, r.file(name), text)
	wait.For(t, setting+" is in use", func() bool {
		r.Secrets.mu.Lock()
		defer r.Secrets.mu.Unlock()
		return r.Secrets.used[setting] == strings.TrimRight(text, "\n")
	})
}

// A gossipWriter is a testWriter that fails the test after a message that a member cannot
// decrypt.
type gossipWriter struct{ t *testing.T }

func (w gossipWriter) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("memberlist reported")) && bytes.Contains(p, []byte("ecrypt")) {
		w.t.Errorf("%s", p)
	}
	return testWriter(w).Write(p)
}

// pingLife is how long a node waits for the answer to a ping at most (memberlist: 1 s,
// multiplied by up to 8 on a busy node).
const pingLife = 8 * time.Second

// TestRotation changes every secret of a cluster of three nodes while clients send
// requests and a job runs. No request fails, and signatures and sessions stay valid
// until their key is removed.
func TestRotation(t *testing.T) {
	t.Parallel()
	records, data := redistest.Start(t), t.TempDir()
	authority := func() *certtest.Authority {
		a := must.Get(certtest.NewAuthority())(t)
		return a
	}
	issue := func(a *certtest.Authority, name string) map[string]string {
		files := must.Get(a.Issue(t.TempDir(), name))(t)
		texts := map[string]string{}
		for what, file := range map[string]string{"crt": files.Cert, "key": files.Key, "ca": files.CA} {
			text := must.Get(os.ReadFile(file))(t)
			texts[what] = string(text)
		}
		return texts
	}
	random := func(letter string) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(letter), 32)) }
	inner, outer, innerNext, outerNext := authority(), authority(), authority(), authority()
	trusted := x509.NewCertPool()
	for _, a := range []*certtest.Authority{outer, outerNext} {
		trusted.AppendCertsFromPEM([]byte(issue(a, "127.0.0.1")["ca"]))
	}

	var nodes []rotated
	first := freeAddress(t)
	for i := range 3 {
		r := rotated{dir: t.TempDir()}
		api, peers := issue(outer, "127.0.0.1"), issue(inner, "rowmill")
		for name, text := range map[string]string{
			"api.crt": api["crt"], "api.key": api["key"], "node.crt": peers["crt"], "node.key": peers["key"], "node.ca": peers["ca"],
			"admin": "before", "gossip": random("b"), "signing": "records",
		} {
			put(t, r.file(name), text)
		}
		gossip := first
		if i > 0 {
			gossip = freeAddress(t)
		}
		put(t, r.file("rowmill.yaml"), strings.NewReplacer("DIR", r.dir, "DATA", data, "REDIS", records.URL(), "GOSSIP", gossip, "FIRST", first, "NODE", fmt.Sprintf("n%d", i)).Replace(`
data: DATA
secrets_interval: 100ms
api_key_file: DIR/admin
http: {listen: "127.0.0.1:0", tls_cert: DIR/api.crt, tls_key: DIR/api.key, signing_key_file: DIR/signing}
store: {url: REDIS}
objects: {shared: true}
cluster: {node: NODE, listen: GOSSIP, peer_listen: "127.0.0.1:0", join: [FIRST], key_file: DIR/gossip, tls_cert: DIR/node.crt, tls_key: DIR/node.key, tls_ca: DIR/node.ca}
simulator: {enabled: always, ttft: 100ms, slots: 8}
jobs: {part_interval: 100ms, shard_rows: 64}
`))
		m, _ := fromFile(t, r.file("rowmill.yaml"), gossipWriter{t})
		must.Succeed(t, m.Run(t.Context()))
		t.Cleanup(func() { stop(t, m) })
		r.NodeProcess = m
		nodes = append(nodes, r)
	}

	transport := &nethttp.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS13}, DisableKeepAlives: true} // each request makes a new handshake
	asked := &nethttp.Client{Transport: transport}
	send := func(ctx context.Context, method, url, body, key string) (int, []byte, error) {
		request, err := nethttp.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
		if err != nil {
			return 0, nil, err
		}
		if key != "" {
			request.Header.Set("Authorization", "Key "+key)
		}
		response, err := asked.Do(request)
		if err != nil {
			return 0, nil, err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		return response.StatusCode, text, err
	}
	var key atomic.Pointer[string] // of the clients
	before, after := "before", "after"
	key.Store(&before)
	ask := func(m *NodeProcess, method, path, body string, into any) {
		t.Helper()
		code, text, err := send(t.Context(), method, m.Listeners.URL+path, body, *key.Load())
		if err == nil && code == 200 {
			err = json.Unmarshal(text, into)
		}
		if err != nil || code != 200 {
			t.Fatalf("%s %s: %d %s %v", method, path, code, text, err)
		}
	}
	together := func() error {
		for _, n := range nodes {
			if all := n.Members.Cluster.Members(); len(all) != 3 {
				return fmt.Errorf("%s sees %d nodes", n.nodeName(), len(all))
			}
		}
		return nil
	}
	wait.Until(t, together)

	submit := func(rows int) string {
		inputs := make([]string, rows)
		for i := range inputs {
			inputs[i] = fmt.Sprintf("row %d", i)
		}
		body := must.Get(json.Marshal(map[string]any{"model": "llama-3.1-8b", "inputs": inputs, "sampling_params": map[string]any{"max_tokens": 4}}))(t)
		var job struct {
			ID string `json:"results"`
		}
		ask(nodes[0].NodeProcess, nethttp.MethodPost, "/v1/batch-inference", string(body), &job)
		return job.ID
	}
	succeeds := func(id string) {
		t.Helper()
		wait.Until(t, func() error {
			var doc struct {
				Job struct{ Status rowmill.Status }
			}
			ask(nodes[1].NodeProcess, nethttp.MethodGet, "/v1/jobs/"+id, "", &doc)
			if job := doc.Job; job.Status != rowmill.StatusSucceeded {
				return fmt.Errorf("job %s is %s", id, job.Status)
			}
			return nil
		})
	}
	done := submit(10)
	succeeds(done)

	ctx, halt := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var answers atomic.Int64
	for _, n := range nodes {
		load.Go(func() {
			for ctx.Err() == nil {
				code, text, err := send(ctx, nethttp.MethodGet, n.Listeners.URL+"/v1/nodes", "", *key.Load())
				switch {
				case ctx.Err() != nil:
				case err != nil || code != 200:
					t.Errorf("node %s: %d %s %v", n.nodeName(), code, text, err)
				default:
					answers.Add(1)
				}
			}
		})
	}
	defer func() { halt(); load.Wait() }()

	url := func(m *NodeProcess) string {
		var doc struct{ URLs struct{ Get string } }
		ask(m, nethttp.MethodGet, "/v1/jobs/"+done+"/results-url", "", &doc)
		return doc.URLs.Get
	}
	verify := func(what, signed string, want int) {
		t.Helper()
		_, path, _ := strings.Cut(signed, "/objects/")
		for _, n := range nodes { // with keys of any node
			if code, text, err := send(t.Context(), nethttp.MethodGet, n.Listeners.URL+"/objects/"+path, "", ""); err != nil || code != want {
				t.Errorf("%s is answered by %s with %d %.200s %v, want %d", what, n.nodeName(), code, text, err, want)
			}
		}
	}
	steps := func(name, setting string, texts ...string) {
		for _, text := range texts {
			for _, n := range nodes {
				n.replace(t, name, setting, text)
			}
		}
	}

	const rows = 800 // of the job that runs during each change; some 3 s
	running := submit(rows)
	// Keys of the administrator: add the new key to the old one, change the clients,
	// remove the old key.
	steps("admin", "api_key", "before\nafter")
	key.Store(&after)
	wait.For(t, "no request has the old key", func() func() bool {
		from := answers.Load()
		return func() bool { return answers.Load() > from+6 }
	}())
	steps("admin", "api_key", "after")
	if code, _, err := send(t.Context(), nethttp.MethodGet, nodes[2].Listeners.URL+"/v1/me", "", before); err != nil || code != 401 {
		t.Errorf("the old key is answered with %d, %v", code, err)
	}

	succeeds(running)

	// Signing keys.
	running = submit(rows)
	old := url(nodes[0].NodeProcess)
	steps("signing", "http.signing_key", "records\n"+random("s"), random("s")+"\nrecords")
	fresh := url(nodes[1].NodeProcess)
	verify("the old URL", old, 200)
	verify("the new URL", fresh, 200)
	steps("signing", "http.signing_key", random("s"))
	verify("the old URL, its key removed,", old, 403)
	verify("the new URL", fresh, 200)

	succeeds(running)

	// Gossip keys. docs/security.md says to wait before the removal of the old key: a busy node
	// may read the answer to a ping late.
	running = submit(rows)
	steps("gossip", "cluster.key", random("b")+"\n"+random("a"), random("a")+"\n"+random("b"))
	time.Sleep(pingLife)
	nodes[0].replace(t, "gossip", "cluster.key", random("a"))
	if marks := nodes[0].Secrets.secretFingerprints()["cluster.key"]; marks == "" || marks == nodes[1].Secrets.secretFingerprints()["cluster.key"] {
		t.Errorf("nodes of different keys show %q", marks)
	}
	steps("gossip", "cluster.key", random("a"))

	succeeds(running)

	// Certificates: trust both authorities, then replace the certificates, then trust
	// only the new authority.
	running = submit(rows)
	next := issue(innerNext, "rowmill")
	current := must.Get(os.ReadFile(nodes[0].file("node.ca")))(t)
	for _, n := range nodes {
		put(t, n.file("node.ca"), string(current)+next["ca"])
	}
	for _, n := range nodes {
		peers, web := issue(innerNext, "rowmill"), issue(outerNext, "127.0.0.1")
		put(t, n.file("node.crt"), peers["crt"])
		put(t, n.file("node.key"), peers["key"])
		put(t, n.file("api.crt"), web["crt"])
		put(t, n.file("api.key"), web["key"])
	}
	for _, n := range nodes {
		put(t, n.file("node.ca"), next["ca"])
	}
	onlyNext := x509.NewCertPool()
	onlyNext.AppendCertsFromPEM([]byte(issue(outerNext, "127.0.0.1")["ca"]))
	strict := &nethttp.Client{Transport: &nethttp.Transport{TLSClientConfig: &tls.Config{RootCAs: onlyNext, MinVersion: tls.VersionTLS13}, DisableKeepAlives: true}}
	for _, n := range nodes {
		response, err := strict.Get(n.Listeners.URL + "/livez")
		if err != nil {
			t.Errorf("the new certificate of %s: %v", n.nodeName(), err)
			continue
		}
		response.Body.Close()
	}

	succeeds(running)
	wait.Until(t, together) // on a slow machine a member may be silent for a while
	for _, n := range nodes {
		if facts := n.Service.collectFacts(t.Context()); strings.Contains(fmt.Sprint(facts), "cannot be asked") {
			t.Errorf("%s: %v", n.nodeName(), facts)
		}
	}
	t.Logf("%d requests answered meanwhile", answers.Load())
}
