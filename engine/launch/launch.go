// Package launch runs inference servers as processes of this machine. It starts each
// server by its command, starts a server again that ended, and ends the servers with the
// node. The parent process of each server is a guard, which ends the server when the node
// dies. The package sends no rows to servers.
package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	// probeInterval is the time between two probes of a server that has not answered yet.
	probeInterval = time.Second
	// probeTimeout limits one probe. A loading server may accept a connection and say nothing.
	probeTimeout = 5 * time.Second
)

// Config describes one server. All fields but MayRestart and Changed are required.
type Config struct {
	Name    string                      // name of the server, in logs and of its files
	Command string                      // command for `sh -c`; it stays in the foreground
	Env     []string                    // environment of the server, NAME=VALUE
	Folder  string                      // folder for NAME.log and NAME.pid; it exists
	Guard   []string                    // program and arguments; PID_FILE and COMMAND are added. It calls Guard.Run
	Ready   time.Duration               // time after a start in which the server must answer
	Probe   func(context.Context) error // asks the server; nil means that the server runs rows
	Logger  *slog.Logger

	// MayRestart decides after each end of the server whether the server starts again. answered
	// reports whether the server answered in its last run. Default: always.
	MayRestart func(answered bool) bool
	// Changed is called in another goroutine after each change of State. Default: nothing.
	Changed func()
}

// A Server is an inference server that this process starts again and again until Stop, or
// until Config.MayRestart returns false.
type Server struct {
	Config
	start  func() (process, error)
	cancel context.CancelFunc
	done   chan struct{} // closed when the server has ended for good

	mu    sync.Mutex
	state State
}

// A State is the present state of a server.
type State struct {
	Answers bool  // the process runs and has answered
	Over    bool  // the server has ended for good
	Err     error // why the last run of the server ended; nil before
	// LastLine is the last line of the output at that end.
	LastLine string
}

// State returns the present state.
func (s *Server) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *Server) change(set func(*State)) {
	s.mu.Lock()
	set(&s.state)
	s.mu.Unlock()
	s.Changed()
}

// A process is one start of a server.
type process struct {
	end    func()       // makes the guard end the server; a second call does nothing
	exited <-chan error // receives the result of exec.Cmd.Wait once
}

// Start starts a server in the background. Stop ends the server; the end of ctx does not.
func Start(ctx context.Context, config Config) *Server {
	s := newServer(config)
	s.start = s.startGuard
	s.begin(ctx)
	return s
}

func newServer(config Config) *Server {
	config.Logger = config.Logger.With("server", config.Name)
	if config.MayRestart == nil {
		config.MayRestart = func(bool) bool { return true }
	}
	if config.Changed == nil {
		config.Changed = func() {}
	}
	return &Server{Config: config, done: make(chan struct{})}
}

func (s *Server) begin(ctx context.Context) {
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go s.keepRunning(ctx)
}

// Stop ends the server and waits until it has ended. If ctx ends first, the guard ends the
// server later.
func (s *Server) Stop(ctx context.Context) {
	s.cancel()
	select {
	case <-s.done:
	case <-ctx.Done():
		s.Logger.Warn("the server still runs; its guard ends it", "within", GraceTime.String())
	}
}

// keepRunning starts the server until ctx ends, with a pause after each end of the server.
func (s *Server) keepRunning(ctx context.Context) {
	defer s.change(func(state *State) { state.Over = true })
	defer close(s.done)
	var plan RestartPlan
	for {
		answered, err := s.runOnce(ctx)
		if ctx.Err() != nil {
			s.Logger.Info("the node ended the server", "result", err)
			return
		}
		last := LastLine(s.outputFile())
		s.change(func(state *State) { *state = State{Err: err, LastLine: last} })
		ended := []any{"err", err, "last_line", last, "output", s.outputFile()}
		if !s.MayRestart(answered) {
			s.Logger.Warn("the server ended", ended...)
			return
		}
		pause := plan.Next(answered)
		s.Logger.Warn("the server ended, and starts again after a pause", append(ended, "pause", pause.String())...)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// runOnce starts the server and returns after it has ended: by itself, because it did not
// answer in time, or because ctx ended. answered reports whether the server answered. The
// error says why the server ended.
func (s *Server) runOnce(ctx context.Context) (answered bool, err error) {
	p, err := s.start()
	if err != nil {
		return false, fmt.Errorf("start the guard of the server: %w", err)
	}
	defer p.end()
	s.Logger.Info("the server starts", "output", s.outputFile())
	began, late, probes := time.Now(), time.NewTimer(s.Ready), time.NewTicker(probeInterval)
	defer late.Stop()
	defer probes.Stop()
	for {
		select {
		case err := <-p.exited:
			return answered, describeExit(err)
		case <-ctx.Done():
			p.end()
			return answered, describeExit(<-p.exited)
		case <-late.C:
			p.end()
			return false, fmt.Errorf("the server did not answer within %v (%w); if it needs more time, raise `ready` of the server", s.Ready, describeExit(<-p.exited))
		case <-probes.C:
			if s.answers(ctx) {
				answered = true
				late.Stop()
				probes.Stop()
				s.change(func(state *State) { state.Answers = true })
				s.Logger.Info("the server answers", "after", time.Since(began).Round(time.Second).String())
			}
		}
	}
}

func (s *Server) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return s.Probe(ctx) == nil
}

func (s *Server) outputFile() string { return outputFile(s.Folder, s.Name) }
func (s *Server) pidFile() string    { return filepath.Join(s.Folder, s.Name+".pid") }

func outputFile(folder, name string) string { return filepath.Join(folder, name+".log") }

// startGuard starts the guard, which starts the server.
func (s *Server) startGuard() (process, error) {
	output, err := openOutput(s.outputFile())
	if err != nil {
		return process{}, err
	}
	defer output.Close()
	args := append(s.Guard[1:len(s.Guard):len(s.Guard)], s.pidFile(), s.Command)
	guard := exec.CommandContext(context.Background(), s.Guard[0], args...) // the end of the pipe ends the guard, also if this process dies
	guard.Env, guard.Stdout, guard.Stderr = s.Env, output, output
	// Signals to the process group of the node, such as from a terminal, must not reach the guard.
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := guard.StdinPipe()
	if err != nil {
		return process{}, err
	}
	if err := guard.Start(); err != nil {
		return process{}, err
	}
	exited := make(chan error, 1)
	go func() { exited <- guard.Wait() }()
	return process{end: func() { _ = pipe.Close() }, exited: exited}, nil
}

// describeExit returns the reason of a server's end from the exit code of its guard.
func describeExit(err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return errors.New("the server ended by itself with code 0; its command must stay in the foreground")
	case !errors.As(err, &exit):
		return err
	case !exit.Exited():
		return fmt.Errorf("the guard of the server was ended: %w", err)
	case exit.ExitCode() > signalled:
		return fmt.Errorf("a signal ended the server: %v", syscall.Signal(exit.ExitCode()-signalled))
	}
	return fmt.Errorf("the server ended with code %d", exit.ExitCode())
}
