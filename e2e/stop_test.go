package e2e

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
)

// TestDrain stops a node. The node must finish and commit the rows in flight, and end
// with code 0. After the next start the job continues and repeats no row.
func TestDrain(t *testing.T) {
	t.Parallel()
	const rows = 20_000
	w := newWitness(t, rows, 5*time.Millisecond)
	n := newNode(t, w.url, killSettings).start(t)
	id := n.submit(t, submission{Inputs: serveBytes(t, parquetOf(t, rows)), Model: model, Column: "text", IDColumn: "id", Priority: 1})
	wait.For(t, "the job runs", func() bool { return w.calls.Load() >= rows/10 })
	n.drains(t)
	if calls := w.calls.Load(); calls == rows {
		t.Fatal("the job was over before the node was told to stop; nothing was tested")
	}
	n.start(t)
	n.succeeds(t, id)
	n.checkRows(t, id, rows)
	if again := w.repeats(); again != 0 {
		t.Errorf("%d rows were run again after a drain", again)
	}
}

// TestSecondProcess starts a second node on a directory in use. It must be refused with
// a message that names the directory, and the first node must continue.
func TestSecondProcess(t *testing.T) {
	t.Parallel()
	w := newWitness(t, 1, 0)
	n := newNode(t, w.url, "").start(t)
	second := n.command(t, "127.0.0.1:0")
	var stderr bytes.Buffer
	second.Stderr = &stderr
	must.Succeed(t, second.Start())
	timer := time.AfterFunc(patience, func() { _ = second.Process.Kill() })
	defer timer.Stop()
	var exit *exec.ExitError
	if err := second.Wait(); !errors.As(err, &exit) || exit.ExitCode() <= 0 {
		t.Fatalf("the second process ended with %v, want an exit code above 0", err)
	}
	if !strings.Contains(stderr.String(), n.data) {
		t.Errorf("the message does not name %s:\n%s", n.data, stderr.String())
	}
	id := n.submit(t, submission{Inputs: []string{rowText(0)}, Model: model})
	n.succeeds(t, id)
}
