package cluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/seed"
)

// previous returns the program of the previous version.
func previous(t *testing.T) string {
	t.Helper()
	binary, err := buildPrevious(t.Context())
	if errors.Is(err, errNoHistory) {
		unable(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// TestRollingUpgrade replaces the program of three nodes of the previous version
// by this one while a job runs that was begun by that, and back under one that was
// begun by this.
func TestRollingUpgrade(t *testing.T) {
	soaks(t)
	c := start(t, Config{Roles: []string{"both", "both", "both"}, Previous: previous(t), Old: 3})
	first := seed.Of(t)
	try(t, c, first, "rolling upgrade")
	try(t, c, first+1, "rolling back")
}

// TestVersionsShareWork has a node own jobs whose rows another of the other version
// runs: all that they know of each other they have told each other.
func TestVersionsShareWork(t *testing.T) {
	soaks(t)
	for name, roles := range map[string][]string{"former owner": {"api", "engines"}, "former workers": {"engines", "api"}} {
		t.Run(name, func(t *testing.T) {
			c := start(t, Config{Roles: roles, Previous: previous(t), Old: 1, Secure: true})
			try(t, c, seed.Of(t))
		})
	}
}

// TestUpgradeAlone opens the data directory of a node of the previous version
// by this one, and the other way round, with a job in its middle.
func TestUpgradeAlone(t *testing.T) {
	soaks(t)
	config := Config{Binary: binary, Previous: previous(t), Dir: folder(t)}.withDefaults()
	c := &Cluster{config: config, dir: config.Dir, client: newClient()}
	ctx := t.Context()
	var err error
	if c.oracle, err = newOracle(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.oracle.Stop(context.Background()) })
	n := alone(t, c)
	n.Previous = true
	if err := c.begin(ctx, n); err != nil {
		t.Fatal(err)
	}
	inputs := make([]string, 1000)
	for i := range inputs {
		inputs[i] = fmt.Sprintf("row %d of a job that outlives its program", i)
	}
	want, err := c.answers(ctx, inputs)
	if err != nil {
		t.Fatal(err)
	}
	job, err := c.submit(ctx, "alone", inputs)
	if err != nil {
		t.Fatal(err)
	}
	var record Record
	reach := func(rows int64) {
		t.Helper()
		err := await(ctx, fmt.Sprintf("%d rows are done", rows), jobWithin, func(ctx context.Context) (err error) {
			if record, err = c.record(ctx, job); err == nil && !record.over() && record.RowsDone < rows {
				err = fmt.Errorf("it is %+v", record)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, exchange := range []func() error{
		func() error { n.kill(); return nil },
		func() error { _, err := n.terminate(drainWithin + 10*time.Second); return err },
		func() error { n.kill(); return nil },
	} {
		reach(int64(200 * (i + 1)))
		if record.over() {
			t.Fatalf("the job is over before exchange %d: %+v", i, record)
		}
		if err := exchange(); err != nil {
			t.Fatal(err)
		}
		n.Previous = !n.Previous
		if err := c.begin(ctx, n); err != nil {
			t.Fatal(err)
		}
	}
	reach(int64(len(inputs)) + 1) // over
	c.wantRows(t, job, want)
}

// alone makes a node with a store and objects of its own, on loopback.
func alone(t *testing.T, c *Cluster) *Node {
	t.Helper()
	h, err := newHost(t.Context(), nil, "")
	if err != nil {
		t.Fatal(err)
	}
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
