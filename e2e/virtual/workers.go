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
)

// A task is what a worker is asked to run.
type task struct {
	Schedule Schedule
	Trace    bool // the trace is wanted
	Effects  bool // all effects are wanted as the trace
	Log      bool // what the nodes log is wanted too
}

// resultMark begins the line of a verdict, among whatever else is printed.
const resultMark = "verdict: "

// work runs the tasks that are read, one after the other.
func work(t *testing.T, from io.Reader, to io.Writer) {
	sh, err := newShared()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var ask task
		if err := json.Unmarshal(line, &ask); err != nil {
			t.Fatal(err)
		}
		var v Verdict
		log := slog.New(slog.DiscardHandler)
		if ask.Log {
			log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
		}
		stop := quitAfter(spins)
		synctest.Test(t, func(*testing.T) { v = run(ask.Schedule, sh, log) })
		stop()
		v.Print = v.print()
		switch {
		case ask.Effects:
			v.Trace = v.effects()
		case ask.Trace:
			v.Trace = v.told(ask.Log)
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(to, "%s%s\n", resultMark, text)
	}
}

// A worker is a process that runs schedules. It has one processor: the order in
// which goroutines run is then almost always the same.
type worker struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	words *tail
}

// tail keeps the end of what is written.
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

// workerMemory is where a worker collects garbage at the latest. A world is some
// megabytes that live for two collections, so that by growth alone each would
// come four times as many worlds after the last.
const workerMemory = "768MiB"

// workerEnv tells a process that it is a worker.
const workerEnv = "ROWMILL_VIRTUAL_WORKER"

func startWorker() (*worker, error) {
	w := &worker{words: new(tail)}
	w.cmd = exec.CommandContext(context.Background(), os.Args[0], "-test.run=^TestWorker$", "-test.timeout=0", "-test.cpu=1") //nolint:gosec // it is this test
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

// spins is how much of a processor's time a schedule may take, far above what any
// needs: one that takes more goes round and round. What it takes by the clock is
// the machine's business, unless it is hangs.
const (
	spins = 40 * time.Second
	hangs = 20 * time.Minute
)

// quitAfter ends this process with the stacks of all that runs once it has used so
// much of a processor's time, unless it is stopped.
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

// used is the processor's time that this process has had.
func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // never fails for oneself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// spinning is what is wrong with those.
const spinning = "time does not go on: something goes round and round"

// run has a schedule run. alive is false where the worker is not.
func (w *worker) run(ask task) (v Verdict, alive bool) {
	text, err := json.Marshal(ask)
	if err != nil {
		panic(err) // it is made of numbers and texts
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

// died is the verdict on a schedule that its worker did not survive.
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

// A crew are workers, some tasks at a time.
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

// run has a free worker run a schedule, once there is one.
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
