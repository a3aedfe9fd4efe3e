package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
)

// TestMain runs the tests, or a guard: the test program is its own guard.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "guard" {
		grace, err := time.ParseDuration(os.Args[2])
		code := 0
		if err == nil {
			code, err = Guard{PIDFile: os.Args[3], Command: os.Args[4], Grace: grace}.Run(os.Stdin)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// A fixture is a folder for servers, and their log.
type fixture struct {
	*testing.T
	folder string
	grace  time.Duration
	ready  time.Duration

	mu  sync.Mutex
	log bytes.Buffer
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	return &fixture{T: t, folder: t.TempDir(), grace: GraceTime, ready: time.Hour}
}

func (f *fixture) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log.Write(p)
}

func (f *fixture) logged() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log.String()
}

// start starts a server. It answers as soon as its command has made the file "answers" in
// its working folder.
func (f *fixture) start(command string) *Server {
	f.Helper()
	s := Start(f.Context(), Config{
		Name: "s", Command: "cd " + f.folder + "; " + command, Env: os.Environ(), Folder: f.folder,
		Guard: []string{must.Get(os.Executable())(f.T), "guard", f.grace.String()}, Ready: f.ready,
		Probe:  func(context.Context) error { _, err := os.Stat(filepath.Join(f.folder, "answers")); return err },
		Logger: slog.New(slog.NewTextHandler(f, nil)),
	})
	f.Cleanup(func() {
		s.Stop(context.WithoutCancel(f.Context()))
		if f.Failed() {
			f.Log(f.logged())
		}
	})
	return s
}

// read returns a file of the folder; empty if there is none.
func (f *fixture) read(name string) string {
	text, err := os.ReadFile(filepath.Join(f.folder, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.Fatal(err)
	}
	return string(text)
}

// pid waits for a whole line in a file of the folder, and returns the last one as a number.
func (f *fixture) pid(name string) int {
	f.Helper()
	wait.For(f, "a line in "+name, func() bool { return strings.HasSuffix(f.read(name), "\n") })
	lines := strings.Fields(f.read(name))
	return must.Get(strconv.Atoi(lines[len(lines)-1]))(f.T)
}

func (f *fixture) waitForLog(text string) {
	f.Helper()
	wait.For(f, "log: "+text, func() bool { return strings.Contains(f.logged(), text) })
}

func (f *fixture) waitForEnd(pids ...int) {
	f.Helper()
	for _, pid := range pids {
		wait.For(f, fmt.Sprint("the end of process ", pid), func() bool { return !runs(pid) })
	}
}

func runs(pid int) bool {
	p, found := readProcess(pid)
	return found && !p.ended
}

func TestServerStartsAgain(t *testing.T) {
	f := newFixture(t)
	s := f.start("echo $$ >> starts; echo; echo first; printf 'out of\tmemory\\n\\n'; exit 3")
	wait.For(t, "two starts", func() bool { return strings.Count(f.read("starts"), "\n") == 2 })
	f.waitForLog(`pause=2s`)
	if log := f.logged(); !strings.Contains(log, `err="the server ended with code 3" last_line="out of memory"`) || !strings.Contains(log, `pause=1s`) || strings.Contains(log, "the server answers") {
		t.Error("unexpected log")
	}
	if got := s.State().LastLine; got != "out of memory" {
		t.Errorf("the last line is %q", got)
	}
}

func TestServerIsEndedWithItsGroup(t *testing.T) {
	f := newFixture(t)
	s := f.start("sleep 1000 & echo $! > child; echo $$ > leader; touch answers; wait")
	leader, child := f.pid("leader"), f.pid("child")
	f.waitForLog("the server answers")
	if !runs(leader) || !runs(child) {
		t.Fatal("the server does not run")
	}
	s.Stop(t.Context())
	f.waitForEnd(leader, child)
	if log := f.logged(); !strings.Contains(log, `the node ended the server" server=s result="a signal ended the server: terminated"`) || strings.Contains(log, "starts again") {
		t.Error("unexpected log")
	}
}

func TestServerThatIgnoresSIGTERM(t *testing.T) {
	f := newFixture(t)
	f.grace = 50 * time.Millisecond
	s := f.start("trap '' TERM; sleep 1000 & echo $! > child; while :; do wait; sleep 1; done")
	child := f.pid("child")
	s.Stop(t.Context())
	f.waitForEnd(child)
	if !strings.Contains(f.logged(), `result="a signal ended the server: killed"`) {
		t.Error("unexpected log")
	}
}

func TestServerThatDoesNotAnswerInTime(t *testing.T) {
	f := newFixture(t)
	f.ready = 2 * time.Second
	f.start("echo loading; echo $$ >> starts; exec sleep 1000")
	first := f.pid("starts")
	f.waitForLog("did not answer within 2s (a signal ended the server: terminated); if it needs more time, raise `ready` of the server")
	f.waitForEnd(first)
	wait.For(t, "the second start", func() bool { return f.pid("starts") != first })
}

// A server ends by itself and leaves a child, which must not keep the GPU.
func TestRestOfAServerIsEnded(t *testing.T) {
	f := newFixture(t)
	f.start("sleep 1000 & echo $! >> child; exec sleep 0.01")
	first := f.pid("child")
	f.waitForLog(`the server ended by itself with code 0`)
	f.waitForEnd(first)
}

func TestStopDuringTheStart(t *testing.T) {
	f := newFixture(t)
	s := f.start("echo $$ > leader; exec sleep 1000")
	s.Stop(t.Context()) // the guard may not have started the server yet
	if leader := f.read("leader"); leader != "" {
		f.waitForEnd(f.pid("leader"))
	}
	if f.start("echo $$ > next; exec sleep 1000"); !runs(f.pid("next")) {
		t.Error("the next start does not work")
	}
}

// Signals to all processes of a terminal or of a service do not end the guard.
func TestGuardContinuesAfterSignals(t *testing.T) {
	f := newFixture(t)
	f.start("echo $PPID > guard; until test -e go; do sleep 0.01; done; exit 7")
	guard := f.pid("guard")
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		must.Succeed(t, syscall.Kill(guard, signal))
	}
	must.Succeed(t, os.WriteFile(filepath.Join(f.folder, "go"), nil, 0o600))
	f.waitForLog("the server ended with code 7")
	if strings.Contains(f.logged(), "the guard of the server was ended") {
		t.Error("a signal ended the guard")
	}
}

// The next start ends the server that a killed guard left.
func TestGuardIsKilled(t *testing.T) {
	f := newFixture(t)
	f.grace = 50 * time.Millisecond
	f.start("trap '' TERM; sleep 1000 & echo $! >> child; echo $$ >> leader; echo $PPID > guard; touch answers; wait")
	leader, child := f.pid("leader"), f.pid("child")
	f.waitForLog("the server answers")
	must.Succeed(t, syscall.Kill(f.pid("guard"), syscall.SIGKILL))
	f.waitForLog("the guard of the server was ended: signal: killed")
	f.waitForEnd(leader, child)
	wait.For(t, "the next server", func() bool { return f.pid("leader") != leader && runs(f.pid("leader")) })
	if !strings.Contains(f.read("s.log"), fmt.Sprint("ending the server that a killed guard left, process group ", leader)) {
		t.Errorf("output:\n%s", f.read("s.log"))
	}
}

// EndOrphans ends the server that a killed guard left. While a guard runs, EndOrphans waits.
func TestEndOrphans(t *testing.T) {
	f := newFixture(t)
	s := f.start("sleep 1000 & echo $! >> child; echo $$ >> leader; echo $PPID > guard; wait")
	leader, child := f.pid("leader"), f.pid("child")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if must.Succeed(t, EndOrphans(ctx, f.folder)); !runs(leader) {
		t.Fatal("a server with a guard was ended")
	}
	must.Succeed(t, syscall.Kill(f.pid("guard"), syscall.SIGKILL))
	must.Succeed(t, EndOrphans(t.Context(), f.folder))
	f.waitForEnd(leader, child)
	s.Stop(t.Context())
	must.Succeed(t, EndOrphans(t.Context(), t.TempDir()))
}

// The file names a process that has ended, and its number now has another process.
func TestForeignProcessIsNotEnded(t *testing.T) {
	f := newFixture(t)
	other := newFixtureBeside(f)
	other.start("echo $$ > leader; exec sleep 1000")
	foreign := other.pid("leader")
	started, _ := readProcess(foreign)
	must.Succeed(t, os.WriteFile(filepath.Join(f.folder, "s.pid"), fmt.Appendf(nil, "%d 1%s\n", foreign, started.start), 0o600))
	f.start("echo $$ > leader; exec sleep 1000")
	f.pid("leader")
	if !runs(foreign) {
		t.Error("a foreign process was ended")
	}
	if want := other.read("s.pid"); want != fmt.Sprintf("%d %s\n", foreign, started.start) {
		t.Errorf("the file has %q", want)
	}
}

func newFixtureBeside(f *fixture) *fixture {
	return &fixture{T: f.T, folder: f.TempDir(), grace: f.grace, ready: f.ready}
}

// While a guard runs, no other node ends or starts its server.
func TestTwoNodesWithOneFolder(t *testing.T) {
	f := newFixture(t)
	first := f.start("echo $$ >> leader; exec sleep 1000")
	leader := f.pid("leader")
	f.start("echo $$ >> leader; exec sleep 1000")
	wait.For(t, "the second guard waits", func() bool { return strings.Contains(f.read("s.log"), "still runs: waiting for the lock of ") })
	if f.pid("leader") != leader || !runs(leader) {
		t.Error("the second node ended or started a server")
	}
	first.Stop(t.Context())
	wait.For(t, "the second server", func() bool { return f.pid("leader") != leader })
}

func TestOutputFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.log")
	add := func(text string) {
		t.Helper()
		file := must.Get(openOutput(path))(t)
		must.Get(file.WriteString(text))(t)
		must.Succeed(t, file.Close())
	}
	for _, step := range []struct{ add, last string }{
		{"", ""},
		{"one\ntwo\n", "two"},
		{"\n \n", "two"},
		{"10 %\r20 %\r", "20 %"},
		{"\x1b[31mred\x1b[0m", "[31mred [0m"},
		{strings.Repeat("x", 2*tailBytes), strings.Repeat("x", lineBytes) + "…"},
	} {
		add(step.add)
		if got := LastLine(path); got != step.last {
			t.Errorf("after %.20q: %.400q, want %.400q", step.add, got, step.last)
		}
	}
	must.Succeed(t, os.Truncate(path, maxOutput))
	add("new")
	if got := string(must.Get(os.ReadFile(path))(t)); got != "new" {
		t.Errorf("after the rotation the file has %.20q", got)
	}
	if info := must.Get(os.Stat(path + ".1"))(t); info.Size() != maxOutput {
		t.Errorf("the old file has %d bytes", info.Size())
	}
	if got := LastLine(filepath.Join(t.TempDir(), "none")); !strings.Contains(got, "no such file") {
		t.Errorf("no file: %q", got)
	}
}

func TestReadOutput(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "gpu.log")
	read := func(after int64, lines int, want string, wantEnd int64) {
		t.Helper()
		text, end, err := ReadOutput(folder, "gpu", after, lines)
		must.Succeed(t, err)
		if text != want || end != wantEnd {
			t.Errorf("after %d, %d lines: %.100q and end %d, want %.100q and %d", after, lines, text, end, want, wantEnd)
		}
	}
	read(0, 10, "", 0) // the server has not run
	must.Succeed(t, os.WriteFile(path, []byte("one\ntwo\n\x1b[31m10 %\r20 %\r\nth\xff"), 0o600))
	read(0, 10, "one\ntwo\n[31m10 %\n20 %\nth\uFFFD", 27)
	read(0, 2, "20 %\nth\uFFFD", 27)
	read(4, 10, "two\n[31m10 %\n20 %\nth\uFFFD", 27)
	read(27, 10, "", 27)
	must.Succeed(t, os.WriteFile(path, []byte("a new file\n"), 0o600))
	read(27, 10, "a new file\n", 11)
	long := strings.Repeat("x", maxRead) + "\nlast\n"
	must.Succeed(t, os.WriteFile(path, []byte(long), 0o600))
	read(0, 10, "last\n", maxRead+6)
	must.Succeed(t, os.Remove(path))
	must.Succeed(t, os.Mkdir(path, 0o700))
	if _, _, err := ReadOutput(folder, "gpu", 0, 1); err == nil {
		t.Error("a folder was read")
	}
}
