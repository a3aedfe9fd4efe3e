package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/promtest"
)

// notHere lists the metrics with empty panels in TestWatched, and the reasons.
var notHere = map[string]string{
	"rowmill_gpu_utilization_ratio":   "there is no GPU",
	"rowmill_gpu_memory_bytes":        "there is no GPU",
	"rowmill_gpu_power_watts":         "there is no GPU",
	"rowmill_gpu_temperature_celsius": "there is no GPU",
}

// A panelQuery is one query of the dashboard in the form for Prometheus.
type panelQuery struct{ panel, expr string }

// panelQueries returns the queries of the dashboard for all nodes.
func panelQueries(t *testing.T) (all []panelQuery) {
	t.Helper()
	text := must.Get(os.ReadFile("../../deploy/grafana/rowmill.json"))(t)
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	must.Succeed(t, json.Unmarshal(text, &board))
	values := strings.NewReplacer("$job", ".*", "$instance", ".*", "$__rate_interval", "15s")
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			all = append(all, panelQuery{panel.Title, values.Replace(target.Expr)})
		}
	}
	if len(all) < 70 {
		t.Fatalf("the dashboard has %d queries only", len(all))
	}
	return all
}

// A watcher is a Prometheus that scrapes nodes, with the shipped rules.
type watcher struct {
	process
	url    string
	client *client
}

func startWatcher(t *testing.T, c *Cluster, nodes []*Node) *watcher {
	t.Helper()
	program := promtest.Tool(t, "prometheus")
	rules := must.Get(filepath.Abs("../../deploy/prometheus/rules.yaml"))(t)
	var targets []string
	for _, n := range nodes {
		targets = append(targets, n.http)
	}
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%s]\nscrape_configs:\n- job_name: rowmill\n  static_configs: [{targets: [%s]}]\n",
		rules, "'"+strings.Join(targets, "', '")+"'")
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	h := must.Get(newHost(t.Context(), nil, ""))(t)
	address := must.Get(h.listen(t.Context(), 0))(t)
	w := &watcher{url: "http://" + address, client: c.client}
	w.name, w.log = "prometheus", filepath.Join(c.dir, "prometheus.log")
	w.command = func(ctx context.Context) *exec.Cmd {
		return exec.CommandContext(ctx, program, "--config.file", filepath.Join(dir, "prometheus.yml"),
			"--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", address)
	}
	must.Succeed(t, w.start(t.Context()))
	t.Cleanup(w.kill)
	must.Succeed(t, w.await(t.Context(), "answers", func(ctx context.Context) error { return w.client.probe(ctx, w.url+"/-/ready") }))
	return w
}

// ask calls the API of Prometheus.
func (w *watcher) ask(ctx context.Context, path string, out any) error {
	text, err := w.client.get(ctx, w.url+path)
	if err != nil {
		return err
	}
	answer := struct{ Data any }{out}
	return json.Unmarshal(text, &answer)
}

// shows reports whether a query has a value for a panel now.
func (w *watcher) shows(ctx context.Context, expr string) (bool, error) {
	var found struct {
		Result []struct{ Value [2]any }
	}
	if err := w.ask(ctx, "/api/v1/query?query="+url.QueryEscape(expr), &found); err != nil {
		return false, fmt.Errorf("%s: %w", expr, err)
	}
	for _, series := range found.Result {
		if series.Value[1] != "NaN" {
			return true, nil
		}
	}
	return false, nil
}

// TestWatched scrapes three nodes and a single node with a real Prometheus under load, while
// servers fail and Redis and a node are killed. No panel of the dashboard may be empty, all
// alerts must be evaluated, and the right ones must fire.
func TestWatched(t *testing.T) {
	soaks(t)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	audited := []string{"log.audit_webhook=" + receiver.URL, "log.audit_webhook_secret=whsec_" + firstGossipKey}
	ctx := t.Context()
	c := startHere(t, Config{Roles: []string{"both", "both", "both"}, Secure: true, Settings: audited})
	second := &Cluster{config: Config{Binary: binary, Dir: folder(t)}.withDefaults(), client: newClient()}
	second.dir = second.config.Dir
	single := alone(t, second)
	must.Succeed(t, second.begin(ctx, single))
	w := startWatcher(t, c, append(c.nodes(), single))
	for _, n := range []*Node{c.Nodes[0], single} {
		must.Succeed(t, c.client.setFaults(ctx, n.sim.url, `{"rate_500":0.02,"rate_503":0.02}`))
	}
	must.Succeed(t, c.insist(ctx, http.MethodPost, "/v1/webhooks", map[string]any{"url": receiver.URL}, nil))

	// Jobs on each node, one after the other, until the end of the test. One more job reads a slow
	// input, because most tasks of actors end between two scrapes.
	loaded, unload := context.WithCancel(ctx)
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, err := fmt.Fprint(w, "text\n"); err == nil && loaded.Err() == nil; _, err = fmt.Fprint(w, "a row\n") {
			_ = http.NewResponseController(w).Flush() // the next write returns the error
			select {
			case <-r.Context().Done():
			case <-loaded.Done():
			case <-time.After(time.Second):
			}
		}
	}))
	t.Cleanup(slow.Close)
	must.Get(c.submit(ctx, "slow", slow.URL+"/rows.csv"))(t)
	var load sync.WaitGroup
	for _, on := range []*Cluster{c, second} {
		load.Go(func() { on.keepBusy(loaded) })
	}
	defer load.Wait()
	defer unload()

	time.Sleep(5 * time.Second) // load without a fault
	c.Redis.kill()
	time.Sleep(2 * time.Second)
	must.Succeed(t, c.Repair(ctx))
	c.Nodes[2].kill()
	if err := await(ctx, "the alert about a lost node fires", patience, func(ctx context.Context) error {
		if fires, err := w.shows(ctx, `ALERTS{alertname="RowmillNodeLost", alertstate="firing"}`); err != nil || !fires {
			return errors.Join(err, errors.New("it does not"))
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	must.Succeed(t, c.Repair(ctx))

	queries := panelQueries(t)
	empty := func(ctx context.Context) error {
		time.Sleep(time.Second) // until the next scrape
		var errs []error
		queries = slices.DeleteFunc(queries, func(q panelQuery) bool {
			for metric := range notHere {
				if strings.Contains(q.expr, metric) {
					return true
				}
			}
			shown, err := w.shows(ctx, q.expr)
			if err == nil && !shown {
				err = fmt.Errorf("panel %q is empty: %s", q.panel, q.expr)
			}
			errs = append(errs, err)
			return shown
		})
		return errors.Join(errs...)
	}
	if err := await(ctx, "no panel is empty", patience, empty); err != nil {
		t.Error(err)
	}

	var evaluated struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	must.Succeed(t, w.ask(ctx, "/api/v1/rules", &evaluated))
	if len(evaluated.Groups) != 1 || len(evaluated.Groups[0].Rules) < 20 {
		t.Fatalf("the rules are %+v", evaluated)
	}
	for _, rule := range evaluated.Groups[0].Rules {
		if rule.Health != "ok" || rule.LastError != "" {
			t.Errorf("%s is %s: %s", rule.Name, rule.Health, rule.LastError)
		}
	}
}

// keepBusy submits jobs, one after the other, until ctx ends. Some are refused and some fail;
// other tests check the outcomes.
func (c *Cluster) keepBusy(ctx context.Context) {
	inputs := make([]string, 3000)
	for round := 0; ctx.Err() == nil; round++ {
		for i := range inputs {
			inputs[i] = fmt.Sprintf("row %d of round %d", i, round)
		}
		job, err := c.submit(ctx, fmt.Sprintf("watched %d", round), inputs)
		for err == nil {
			var r Record
			if r, err = c.record(ctx, job); err != nil || r.over() {
				break
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}

// alone creates a single node with its own store and objects, on loopback.
func alone(t *testing.T, c *Cluster) *Node {
	t.Helper()
	h, err := newHost(t.Context(), nil, "")
	must.Succeed(t, err)
	n := &Node{Name: "alone", Owns: true, Runs: true, host: h, data: filepath.Join(c.dir, "alone")}
	if n.http, err = h.listen(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	n.API = "http://" + n.http
	if n.sim, err = c.startSimulator(t.Context(), h, n.Name); err != nil {
		t.Fatal(err)
	}
	n.name, n.log = n.Name, filepath.Join(c.dir, "alone.log")
	n.command = func(ctx context.Context) *exec.Cmd { return c.serve(ctx, n, "") }
	c.Nodes = []*Node{n}
	t.Cleanup(func() {
		n.kill()
		n.sim.kill()
		c.client.http.CloseIdleConnections()
	})
	return n
}
