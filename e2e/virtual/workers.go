package virtual

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

// A task is a schedule for a worker.
type task struct {
	Schedule Schedule
	Trace    bool // return the trace
	Effects  bool // return all effects as the trace
	Log      bool // also return the logs of the nodes
}

// resultMark begins the line of a verdict in the output of a worker.
const resultMark = "verdict: "

// work reads tasks and runs them, one after the other.
func work(t *testing.T, from io.Reader, to io.Writer) {
	sh := must.Get(newShared())(t)
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var ask task
		must.Succeed(t, json.Unmarshal(line, &ask))
		var v Verdict
		log := slog.New(slog.DiscardHandler)
		if ask.Log {
			log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
		}
		stop := quitAfter(spins)
		began, usedBefore := time.Now(), used()
		synctest.Test(t, func(*testing.T) { v = run(ask.Schedule, sh, log) })
		v.Waited = time.Since(began) - (used() - usedBefore)
		stop()
		v.Print = v.print()
		switch {
		case ask.Effects:
			v.Trace = v.effects()
		case ask.Trace:
			v.Trace = v.lines(ask.Log)
		}
		text, err := json.Marshal(v)
		must.Succeed(t, err)
		fmt.Fprintf(to, "%s%s\n", resultMark, text)
	}
}

// A worker is a process that runs schedules. It has one processor, so that goroutines
// almost always run in the same order.
type worker struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	words *tail
}

// tail keeps the beginning of the written text.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const tailBytes = 64 << 10

func (w *tail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.text.Len() < tailBytes { // a panic comes first, then all goroutines
		w.text.Write(p[:min(len(p), tailBytes)])
	}
	return len(p), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// workerMemory is the memory limit at which a worker collects garbage. A world needs some
// megabytes and survives two collections: by growth alone, the number of worlds between two
// collections would grow fourfold each time.
const workerMemory = "768MiB"

// workerEnv tells a process that it is a worker.
const workerEnv = "ROWMILL_VIRTUAL_WORKER"

func startWorker() (*worker, error) {
	w := &worker{words: new(tail)}
	w.cmd = exec.CommandContext(context.Background(), os.Args[0], "-test.run=^TestWorker$", "-test.timeout=0", "-test.cpu=1") //nolint:gosec // the binary of this test
	if profile := os.Getenv("ROWMILL_VIRTUAL_PROFILE"); profile != "" {                                                       // of the last worker to end
		w.cmd.Args = append(w.cmd.Args, "-test.cpuprofile="+profile)
	}
	w.cmd.Env = append(os.Environ(), workerEnv+"=1", "GOMAXPROCS=1", "GOGC=400", "GOMEMLIMIT="+workerMemory, "GOTRACEBACK=all")
	w.cmd.Stderr = w.words
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.out = bufio.NewReaderSize(out, 1<<20)
	return w, w.cmd.Start()
}

func (w *worker) stop() {
	_ = w.in.Close()
	_ = w.cmd.Wait()
}

// spins limits the processor time of a schedule, far above the time that any needs: a
// schedule that takes more is in an endless loop. Elapsed time depends on the machine, so
// its limit hangs is large.
const (
	spins = 40 * time.Second
	hangs = 20 * time.Minute
)

// quitAfter ends this process with the stacks of all goroutines after a processor time,
// unless it is stopped.
func quitAfter(d time.Duration) (stop func()) {
	began, ended := used(), make(chan struct{})
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for used()-began < d {
			select {
			case <-tick.C:
			case <-ended:
				return
			}
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGQUIT)
	}()
	return func() { close(ended) }
}

// used returns the processor time of this process.
func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // never fails for this process
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// spinning is the message about such a schedule.
const spinning = "time does not go on: something goes round and round"

// run runs a task. alive is false if the worker has ended.
func (w *worker) run(ask task) (v Verdict, alive bool) {
	text, err := json.Marshal(ask)
	if err != nil {
		panic(err) // never happens: a task has only numbers and texts
	}
	slow := time.AfterFunc(hangs, func() { _ = w.cmd.Process.Signal(syscall.SIGQUIT) })
	defer slow.Stop()
	if _, err := w.in.Write(append(text, '\n')); err != nil {
		return w.died(), false
	}
	for {
		line, err := w.out.ReadString('\n')
		if found, ok := strings.CutPrefix(line, resultMark); ok {
			if err := json.Unmarshal([]byte(found), &v); err == nil {
				if ask.Log {
					v.Trace = append(v.Trace, w.words.String())
				}
				return v, true
			}
		}
		if err != nil {
			return w.died(), false
		}
	}
}

// died returns the verdict on a schedule that ended its worker.
func (w *worker) died() Verdict {
	_ = w.cmd.Wait()
	words := w.words.String()
	first := "without a word"
	for line := range strings.Lines(words) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "time=") {
			first = line
			break
		}
	}
	if strings.HasPrefix(first, "SIGQUIT") {
		first = spinning
	}
	return Verdict{Wrongs: []string{"the process ended: " + first}, Trace: strings.Split(words[:min(len(words), 12<<10)], "\n")}
}

// A crew is a pool of workers.
type crew struct {
	free chan *worker
	mu   sync.Mutex
	cpu  time.Duration // of workers that have ended
}

func newCrew(size int) *crew {
	c := &crew{free: make(chan *worker, size)}
	for range size {
		c.free <- nil
	}
	return c
}

// run waits for a free worker and runs a task on it.
func (c *crew) run(ask task) Verdict {
	w := <-c.free
	if w == nil {
		var err error
		if w, err = startWorker(); err != nil {
			c.free <- nil
			return Verdict{Wrongs: []string{"no worker: " + err.Error()}}
		}
	}
	v, alive := w.run(ask)
	if !alive || ask.Log {
		c.ended(w)
		w = nil
	}
	c.free <- w
	return v
}

func (c *crew) ended(w *worker) {
	w.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := w.cmd.ProcessState; s != nil {
		c.cpu += s.UserTime() + s.SystemTime()
	}
}

// close ends all workers.
func (c *crew) close() {
	for range cap(c.free) {
		if w := <-c.free; w != nil {
			c.ended(w)
		}
	}
}
