package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/repo"
)

// lastRelease returns the program of the last release.
func lastRelease(t *testing.T) string {
	t.Helper()
	path, err := repo.BuildLastRelease()
	if errors.Is(err, repo.ErrNoHistory) {
		unable(t, "%v", err)
	}
	must.Succeed(t, err)
	return path
}

// replaceBinary stops a node, and starts another program in its place.
func (c *Cluster) replaceBinary(ctx context.Context, n *Node, program string) error {
	if _, err := n.terminate(drainWithin + 10*time.Second); err != nil {
		return err
	}
	n.binary = program
	return c.begin(ctx, n)
}

// replaceAll replaces the program of one node after the other.
func replaceAll(program string) func(context.Context, *Trial) error {
	return func(ctx context.Context, t *Trial) error {
		for _, n := range t.nodes() {
			if err := t.replaceBinary(ctx, n, program); err != nil {
				return err
			}
		}
		t.struck(Strike{Fault: "other program"})
		return nil
	}
}

// TestUpgrade upgrades three nodes of the last release to this version while a job runs, and
// then downgrades them under another job.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	release := lastRelease(t)
	c := startHere(t, Config{Binary: release, Roles: []string{"both", "both", "both"}})
	for _, step := range []struct{ name, binary string }{{"upgrade", binary}, {"downgrade", release}} {
		t.Run(step.name, func(t *testing.T) {
			for rows := 4000; !c.killed(t, rows, replaceAll(step.binary)); rows *= 2 {
				if rows > 50_000 {
					t.Fatalf("%d rows were done before all nodes had the other program", rows)
				}
			}
		})
	}
}

// TestUpgrade_TwoVersions lets a node of one version own a job, and a node of the other version
// run its rows.
func TestUpgrade_TwoVersions(t *testing.T) {
	t.Parallel()
	release := lastRelease(t)
	for name, first := range map[string]string{"old owner": "api", "old worker": "engines"} {
		t.Run(name, func(t *testing.T) {
			c := startHere(t, Config{Binary: release, Roles: []string{first}, Secure: true})
			other := map[string]string{"api": "engines", "engines": "api"}[first]
			n := must.Get(c.AddNode(t.Context(), other))(t)
			n.binary = binary
			must.Succeed(t, c.begin(t.Context(), n))
			c.killed(t, 1000, func(context.Context, *Trial) error { return nil })
		})
	}
}

// TestUpgrade_SingleNode starts one program after the other on the data of a running job.
func TestUpgrade_SingleNode(t *testing.T) {
	t.Parallel()
	release := lastRelease(t)
	c := &Cluster{config: Config{Binary: release, Dir: folder(t)}.withDefaults(), client: newClient()}
	c.dir = c.config.Dir
	c.oracle = must.Get(newOracle(t.Context()))(t)
	t.Cleanup(func() { must.Succeed(t, c.oracle.Stop(context.Background())) })
	n := alone(t, c)
	must.Succeed(t, c.begin(t.Context(), n))
	for _, program := range []string{binary, release, binary} {
		for rows := 1000; !c.replaced(t, n, program, rows); rows *= 2 {
			if rows > 20_000 {
				t.Fatalf("%d rows were done before the other program started", rows)
			}
		}
	}
}

// replaced runs a job and replaces the program of its node after a quarter of the rows. It
// reports whether the job was still running when the other program was ready.
func (c *Cluster) replaced(t *testing.T, n *Node, program string, rows int) (ran bool) {
	t.Helper()
	ctx := t.Context()
	inputs := make([]string, rows)
	for i := range inputs {
		inputs[i] = fmt.Sprintf("row %d of a job that another version ends", i)
	}
	want := must.Get(c.answers(ctx, inputs))(t)
	job := must.Get(c.submit(ctx, fmt.Sprintf("job after %d rows", c.account.Rows), inputs))(t)
	reach := func(done int64) (r Record) {
		t.Helper()
		must.Succeed(t, await(ctx, fmt.Sprintf("%d rows are done", done), jobWithin, func(ctx context.Context) (err error) {
			if r, err = c.record(ctx, job); err == nil && !r.over() && r.RowsDone < done {
				err = fmt.Errorf("the job is %+v", r)
			}
			return err
		}))
		return r
	}
	reach(int64(rows / 4))
	must.Succeed(t, c.replaceBinary(ctx, n, program))
	ran = !reach(0).over()
	reach(int64(rows) + 1)
	c.wantRows(t, job, want)
	return ran
}
