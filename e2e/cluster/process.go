package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// patience limits every wait for something fast: much longer than needed on a busy machine,
// and short enough to report a hang.
const patience = time.Minute

// A process is a program that a test starts and kills several times.
type process struct {
	name    string
	command func(ctx context.Context) *exec.Cmd // returns a new command for each start
	log     string                              // file with the output of all starts

	mu      sync.Mutex
	running *exec.Cmd // nil before the first start
	ended   chan struct{}
	verdict error // of the last start, after ended is closed
	stopped bool  // by SIGSTOP
	kills   []downtime
}

// A downtime lasts from a kill to the next start. The end is zero before the start.
type downtime struct{ from, to time.Time }

// start starts the program. The program ends with the process of the test, in any case.
func (p *process) start(ctx context.Context) error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	defer log.Close()
	command := p.command(context.WithoutCancel(ctx))
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	ended := make(chan struct{})
	p.mu.Lock()
	p.running, p.ended, p.stopped = command, ended, false
	if n := len(p.kills); n > 0 && p.kills[n-1].to.IsZero() {
		p.kills[n-1].to = time.Now()
	}
	p.mu.Unlock()
	go func() {
		err := command.Wait()
		p.mu.Lock()
		p.verdict = err
		p.mu.Unlock()
		close(ended)
	}()
	return nil
}

// up reports whether the process runs and is not stopped.
func (p *process) up() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.aliveLocked() && !p.stopped
}

// alive reports whether the process exists.
func (p *process) alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.aliveLocked()
}

func (p *process) aliveLocked() bool {
	if p.running == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// kill ends the process with SIGKILL and waits for its end.
func (p *process) kill() {
	if !p.alive() {
		return
	}
	p.mu.Lock()
	p.kills = append(p.kills, downtime{from: time.Now()})
	p.mu.Unlock()
	_ = p.running.Process.Kill() // it may have ended already
	<-p.ended
}

// killedWithin reports whether the process was down because of a kill at any time in a
// period.
func (p *process) killedWithin(from, to time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.kills, func(d downtime) bool {
		return !to.Before(d.from) && (d.to.IsZero() || !from.After(d.to))
	})
}

// pause stops the process with SIGSTOP; resume continues it.
func (p *process) pause() error  { return p.hold(true, syscall.SIGSTOP) }
func (p *process) resume() error { return p.hold(false, syscall.SIGCONT) }

func (p *process) hold(stopped bool, signal syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.aliveLocked() {
		return fmt.Errorf("%v to %s: it has ended", signal, p.name)
	}
	p.stopped = stopped
	return p.running.Process.Signal(signal)
}

// terminate sends SIGTERM and returns the exit code. If the process does not end in time, its
// stacks are in its log.
func (p *process) terminate(within time.Duration) (int, error) {
	if !p.alive() {
		return 0, fmt.Errorf("SIGTERM to %s: it has ended", p.name)
	}
	if err := p.running.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, fmt.Errorf("SIGTERM to %s: %w", p.name, err)
	}
	return p.end(within)
}

// end waits until the process ends by itself and returns its exit code.
func (p *process) end(within time.Duration) (int, error) {
	late := false
	select {
	case <-p.ended:
	case <-time.After(within):
		late = true
		_ = p.running.Process.Signal(syscall.SIGQUIT) // its goroutines go to the log
		select {
		case <-p.ended:
		case <-time.After(patience):
			p.kill()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var exit *exec.ExitError
	switch {
	case late:
		return 0, fmt.Errorf("%s did not end within %v", p.name, within)
	case p.verdict == nil:
		return 0, nil
	case errors.As(p.verdict, &exit):
		return exit.ExitCode(), nil
	}
	return 0, fmt.Errorf("wait for %s: %w", p.name, p.verdict)
}

// await repeats done until it succeeds. It returns the last error if the process ends or
// after patience.
func (p *process) await(ctx context.Context, what string, done func(context.Context) error) error {
	return await(ctx, p.name+" "+what, patience, func(ctx context.Context) error {
		err := done(ctx)
		if err != nil && !p.alive() {
			return final{fmt.Errorf("it has ended, see %s: %w", p.log, err)}
		}
		return err
	})
}

// A final error ends an await.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// await repeats done until it returns nil or a final error, at most for a time.
func await(ctx context.Context, what string, within time.Duration, done func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var before error // more useful than the timeout
	for {
		err := done(ctx)
		if err == nil {
			return nil
		}
		var last final
		if errors.As(err, &last) {
			return fmt.Errorf("%s: %w", what, err)
		}
		if ctx.Err() != nil && before != nil {
			err = before
		}
		before = err
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %v: %w", what, within, err)
		}
	}
}
