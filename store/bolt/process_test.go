//go:build unix

package bolt_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/bolt"
	"github.com/rowmill/rowmill/store/storetest"
)

// child starts this test binary in a role and returns its output.
func child(t *testing.T, role, path string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], path)
	cmd.Env = append(os.Environ(), childEnv+"="+role)
	cmd.Stderr = os.Stderr
	out := must.Get(cmd.StdoutPipe())(t)
	must.Succeed(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // harmless if the test has waited already
	})
	return cmd, bufio.NewScanner(out)
}

// hold opens the file and keeps it until its input ends.
func hold(path string) error {
	s, err := bolt.Open(context.Background(), bolt.Config{Path: path})
	if err != nil {
		return err
	}
	fmt.Println("open")
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, s.Close())
}

func TestSecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "records.db")
	first := open(t, bolt.Config{Path: path})
	second, out := child(t, "hold", path)
	if !out.Scan() {
		t.Fatal("the second process said nothing")
	}
	for _, want := range []string{path, "in use by another process", "stop the other rowmill"} {
		if !strings.Contains(out.Text(), want) {
			t.Errorf("the second process said %q, want it to say %q", out.Text(), want)
		}
	}
	if err := second.Wait(); err == nil {
		t.Error("the second process ended well")
	}
	must.Succeed(t, first.Close())
	if _, out := child(t, "hold", path); !out.Scan() || out.Text() != "open" {
		t.Errorf("after the first has closed: %q", out.Text())
	}
}

// writeForEver creates jobs, claims them and commits parts from several goroutines, and
// prints each acknowledgement.
func writeForEver(path string) error {
	ctx := context.Background()
	s, err := bolt.Open(ctx, bolt.Config{Path: path})
	if err != nil {
		return err
	}
	session, err := s.OpenSession(ctx, "child", time.Hour)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	var out sync.Mutex
	for w := range 4 {
		go func() {
			failed <- func() error {
				for i := 0; ; i++ {
					id := fmt.Sprintf("job-%d-%d-%d", os.Getpid(), w, i)
					if _, _, err := s.Create(ctx, storetest.NewRecord(id, "a", "row of "+id), nil); err != nil {
						return err
					}
					out.Lock()
					fmt.Println("created", id)
					out.Unlock()
					rec, err := s.Claim(ctx, id, session, store.Claim{})
					if err != nil {
						return err
					}
					f := store.Fence{JobID: id, Session: session, Epoch: rec.Epoch}
					totals := store.RowTotals{Rows: 7, InputTokens: 70, OutputTokens: int64(i)}
					if err := s.CommitParts(ctx, f, []store.Part{{Key: id, Rows: 7, Totals: totals}}); err != nil {
						return err
					}
					out.Lock()
					fmt.Println("committed", id)
					out.Unlock()
				}
			}()
		}()
	}
	return <-failed
}

// TestKilled kills a writing process five times. All acknowledged writes must be
// stored.
func TestKilled(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "records.db")
	created, committed := map[string]bool{}, map[string]bool{}
	for round := range 5 {
		cmd, out := child(t, "write", path)
		for acks := 0; acks < 40+13*round && out.Scan(); acks++ {
			note(t, out.Text(), created, committed)
		}
		must.Succeed(t, cmd.Process.Kill())
		for out.Scan() { // the output before the kill
			note(t, out.Text(), created, committed)
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the process ended by itself")
		}
	}
	if len(created) < 100 || len(committed) < 100 {
		t.Fatalf("only %d jobs and %d parts were acknowledged", len(created), len(committed))
	}
	s := open(t, bolt.Config{Path: path})
	for id := range created {
		rec, err := s.Get(t.Context(), id)
		if err != nil || len(rec.Spec.Inline) != 1 || rec.Spec.Inline[0] != "row of "+id {
			t.Errorf("%s was acknowledged: %+v, %v", id, rec.Spec.Inline, err)
		}
	}
	for id := range committed {
		parts, err := s.ListParts(t.Context(), id)
		if err != nil || len(parts) != 1 || parts[0].Rows != 7 {
			t.Errorf("the part of %s was acknowledged: %v, %v", id, parts, err)
		}
		if rec, err := s.Get(t.Context(), id); err != nil || rec.Job.RowsDone != 7 {
			t.Errorf("the progress of %s was acknowledged: %d, %v", id, rec.Job.RowsDone, err)
		}
	}
	// The ledger must match the parts, acknowledged or not.
	var want store.RowTotals
	for cursor := ""; ; {
		jobs, next, err := s.List(t.Context(), "a", 100, cursor)
		must.Succeed(t, err)
		for _, job := range jobs {
			parts := must.Get(s.ListParts(t.Context(), job.ID))(t)
			for _, p := range parts {
				want = want.Plus(p.Totals)
			}
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	got, cost := storetest.SumUsage(t, s, "a", time.Now().AddDate(0, 0, -1), time.Now())
	if got != want || want.Rows < int64(7*len(committed)) {
		t.Errorf("the ledger holds %+v, the parts of %d commits %+v", got, len(committed), want)
	}
	if charge := storetest.NewRecord("", "").Spec.Model.TokenCost(want.InputTokens, want.OutputTokens); cost != charge {
		t.Errorf("the ledger says %v, the parts cost %v", cost, charge)
	}
	// All owners are dead, so that every job is an orphan.
	orphans, err := s.Orphans(t.Context(), 1<<20)
	if err != nil || len(orphans) < len(created) {
		t.Errorf("%d orphans of %d jobs, %v", len(orphans), len(created), err)
	}
}

func note(t *testing.T, line string, created, committed map[string]bool) {
	t.Helper()
	what, id, _ := strings.Cut(line, " ")
	switch what {
	case "created":
		created[id] = true
	case "committed":
		committed[id] = true
	default:
		t.Fatalf("the process said %q", line)
	}
}

// fill writes until the file is at its limit, and continues after the limit is raised.
func fill(path string) error {
	ctx := context.Background()
	s, err := bolt.Open(ctx, bolt.Config{Path: path, PingFresh: time.Nanosecond})
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	tight := limit
	tight.Cur = 4 << 20
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &tight); err != nil {
		return err
	}
	row := strings.Repeat("x", 60<<10)
	stored := 0
	for ; err == nil && stored < 1000; stored++ {
		_, _, err = s.Create(ctx, storetest.NewRecord(fmt.Sprint("job-", stored), "a", row), nil)
	}
	fmt.Println("refused:", err)
	stored--
	for i := range stored {
		if _, err := s.Get(ctx, fmt.Sprint("job-", i)); err != nil {
			return fmt.Errorf("while the disk is full: %w", err)
		}
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	if err := s.Ping(ctx); err != nil {
		return fmt.Errorf("once there is room: %w", err)
	}
	for i := stored; i < stored+50; i++ {
		if _, _, err := s.Create(ctx, storetest.NewRecord(fmt.Sprint("job-", i), "a", row), nil); err != nil {
			return fmt.Errorf("once there is room: %w", err)
		}
	}
	if err := s.Close(); err != nil {
		return err
	}
	fmt.Println("stored", stored+50)
	return nil
}

func TestDiskFull(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "records.db")
	cmd, out := child(t, "fill", path)
	var lines []string
	for out.Scan() {
		lines = append(lines, out.Text())
	}
	if err := cmd.Wait(); err != nil || len(lines) != 2 {
		t.Fatalf("%v: %q", err, lines)
	}
	if !strings.HasPrefix(lines[0], "refused: write record file "+path) {
		t.Errorf("the refusal does not name the file: %q", lines[0])
	}
	var stored int
	if _, err := fmt.Sscanf(lines[1], "stored %d", &stored); err != nil || stored < 60 {
		t.Fatalf("%q: %v", lines[1], err)
	}
	s := open(t, bolt.Config{Path: path})
	for i := range stored {
		if rec, err := s.Get(t.Context(), fmt.Sprint("job-", i)); err != nil || len(rec.Spec.Inline[0]) != 60<<10 {
			t.Errorf("job %d: %v", i, err)
		}
	}
}
