// Package redistest runs real redis-server processes for tests: on a free loopback
// port, with an append-only file in a test's folder. Tests can kill, pause and restart
// them with the same data. It owns the processes and does not know their data.
package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/port"
	"github.com/rowmill/rowmill/internal/proctest"
)

// program is the server's executable. The same executable also runs as Sentinel.
const program = "redis-server"

// processTimeout limits the time until a server answers after its start, and the time
// until it has stopped. It is long, so that no test fails on a busy machine.
const processTimeout = 30 * time.Second

// A Server is a redis-server with one port and one folder, which stay the same after a
// restart. Its methods are not safe for concurrent use, except Addr, URL, Port and
// Command.
type Server struct {
	dir     string
	port    int
	args    []string
	process *proctest.Process // nil while no process runs
	release func()            // releases a reserved port; nil for a port that the caller gave
}

// Start runs a server until the end of the test: with an append-only file, every write
// synced, no snapshots. settings are lines of redis.conf, such as "maxmemory 8mb", and
// override these defaults. If the machine has no redis-server, the test is skipped; if
// ROWMILL_CI is set, it fails.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	requireRedis(t)
	s := must.Get(Run(t.Context(), t.TempDir(), 0, "always", settings...))(t)
	t.Cleanup(func() { stop(t, s) })
	return s
}

// StartSentinel runs a StartSentinel that watches primary under a name, until the end of the
// test. With quorum 1, it starts a failover by itself after primary has not answered
// for the time down.
func StartSentinel(t testing.TB, name string, primary *Server, down time.Duration) *Server {
	t.Helper()
	requireRedis(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "sentinel.conf") // a Sentinel rewrites its file
	lines := []string{
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 1", name, primary.port),
		fmt.Sprintf("sentinel down-after-milliseconds %s %d", name, down.Milliseconds()),
		fmt.Sprintf("sentinel failover-timeout %s 5000", name),
	}
	must.Succeed(t, os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	s := must.Get(run(t.Context(), dir, 0, func(port int) []string {
		return []string{config, "--sentinel", "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--logfile", "server.log"}
	}))(t)
	t.Cleanup(func() { stop(t, s) })
	return s
}

// requireRedis skips the test if there is no redis-server; if ROWMILL_CI is set, it
// fails the test.
func requireRedis(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	if os.Getenv("ROWMILL_CI") != "" {
		t.Fatalf("no %s on this machine: install Debian's redis-server", program)
	}
	t.Skipf("SKIPPED, NOT TESTED against a real Redis: no %s on this machine", program)
}

func stop(t testing.TB, s *Server) {
	if err := s.Stop(); err != nil {
		t.Errorf("stop redis-server: %v", err)
	}
	if s.release != nil {
		s.release()
	}
}

// Run starts a server with its data in dir and returns after it answers. port 0 means a
// free port. fsync is "always", "everysec" or "no". The caller stops the server; ctx
// limits only the start.
func Run(ctx context.Context, dir string, port int, fsync string, settings ...string) (*Server, error) {
	return run(ctx, dir, port, func(port int) []string {
		args := []string{
			"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir, "--logfile", "server.log",
			"--save", "", "--appendonly", "yes", "--appendfsync", fsync, "--enable-debug-command", "local",
		}
		for _, line := range settings {
			name, value, _ := strings.Cut(line, " ")
			args = append(args, "--"+name)
			args = append(args, strings.Fields(value)...)
		}
		return args
	})
}

// run starts a server on the port fixedPort; 0 means a free port. args returns the
// arguments of the server for its port.
func run(ctx context.Context, dir string, fixedPort int, args func(port int) []string) (*Server, error) {
	s := &Server{dir: dir, port: fixedPort}
	if fixedPort == 0 {
		reserved, err := port.Reserve(ctx, "127.0.0.1")
		if err != nil {
			return nil, err
		}
		s.port, s.release = reserved.Port, reserved.Release
	}
	s.args = args(s.port)
	err := s.start(ctx)
	if err != nil && s.release != nil {
		s.release()
	}
	return s, err
}

// start runs the process and waits until it has loaded its data and answers.
func (s *Server) start(ctx context.Context) error {
	process, err := proctest.Start(exec.Command(program, s.args...)) //nolint:noctx // the process outlives the context of its start
	if err != nil {
		return err
	}
	s.process = process
	if err := process.WaitUntilReady(ctx, processTimeout, s.isReady); err != nil {
		s.process = nil
		return fmt.Errorf("port %d: %w%s", s.port, err, s.log())
	}
	return nil
}

// isReady reports whether this process has loaded its data and answers, and not another
// process on the same port.
func (s *Server) isReady() bool {
	info, err := s.Command("INFO", "server")
	if err != nil || !strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", s.process.Pid)) {
		return false
	}
	answer, err := s.Command("PING")
	return err == nil && answer == "PONG"
}

// Addr returns the server's address, HOST:PORT.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Port returns the server's port on 127.0.0.1.
func (s *Server) Port() int { return s.port }

// URL returns the address of the server's first database.
func (s *Server) URL() string { return "redis://" + s.Addr() + "/0" }

// Dir returns the folder of the server's data and its server.log.
func (s *Server) Dir() string { return s.dir }

// Kill kills the process with SIGKILL. If no process runs, it does nothing.
func (s *Server) Kill() error { return s.signalAndWait(syscall.SIGKILL) }

// Stop lets the process write its files and then end. If no process runs, it does
// nothing.
func (s *Server) Stop() error {
	if err := s.Resume(); err != nil {
		return err
	}
	return s.signalAndWait(syscall.SIGTERM)
}

// Restart starts a new process on the same port and data, after Kill or Stop.
func (s *Server) Restart(ctx context.Context) error {
	if s.process != nil {
		return fmt.Errorf("%s on port %d still runs: kill or stop it first", program, s.port)
	}
	return s.start(ctx)
}

// Pause stops the process (SIGSTOP) until Resume: the port still accepts connections,
// but the process does not answer.
func (s *Server) Pause() error { return s.signal(syscall.SIGSTOP) }

// Resume lets a paused process continue.
func (s *Server) Resume() error { return s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) error {
	if s.process == nil {
		return nil
	}
	return s.process.Signal(sig)
}

// signalAndWait sends a signal and waits until the process has ended. It repeats the signal,
// because a server that makes its first append-only file refuses to stop.
func (s *Server) signalAndWait(sig syscall.Signal) error {
	if s.process == nil {
		return nil
	}
	timeout := time.NewTimer(processTimeout)
	defer timeout.Stop()
	repeat := time.NewTicker(processTimeout / 100)
	defer repeat.Stop()
	for {
		if err := s.process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		select {
		case <-s.process.Ended:
			s.process = nil
			return nil
		case <-timeout.C:
			return errors.Join(fmt.Errorf("%s on port %d does not end within %v: %s", program, s.port, processTimeout, s.log()), s.process.Kill())
		case <-repeat.C:
		}
	}
}

// log returns the last part of the server's log.
func (s *Server) log() string {
	raw, err := os.ReadFile(filepath.Join(s.dir, "server.log"))
	if err != nil {
		return err.Error()
	}
	const enough = 2000
	return string(raw[max(len(raw)-enough, 0):])
}
