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

// patience bounds every wait for something that takes moments: far more than
// anything takes on a busy machine, and short enough to report a hang.
const patience = time.Minute

// A process is a program that is started, killed, and started again.
type process struct {
	name    string
	command func(ctx context.Context) *exec.Cmd // a fresh one for each start
	log     string                              // file that gets what it says, over all starts

	mu      sync.Mutex
	running *exec.Cmd // nil before the first start
	ended   chan struct{}
	verdict error // of the last one, once ended is closed
	stopped bool  // by SIGSTOP
	kills   []downtime
}

// A downtime is from a kill to the next start, which is zero before that.
type downtime struct{ from, to time.Time }

// start starts the program. It ends with the harness's own process, whatever
// becomes of that.
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

// kill ends the process as a power cut would, and returns once it is gone.
func (p *process) kill() {
	if !p.alive() {
		return
	}
	p.mu.Lock()
	p.kills = append(p.kills, downtime{from: time.Now()})
	p.mu.Unlock()
	_ = p.running.Process.Kill() // it may be gone already
	<-p.ended
}

// killedWithin reports whether the process was being killed, or was gone since a kill,
// at any moment of a time.
func (p *process) killedWithin(from, to time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.kills, func(d downtime) bool {
		return !to.Before(d.from) && (d.to.IsZero() || !from.After(d.to))
	})
}

// pause stops the process with SIGSTOP, resume lets it go on.
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

// terminate asks the process to end and returns its exit code. One that has not
// ended within the given time is shown where it hangs, in its log.
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

// await asks again and again until done says that it is, with the last error
// once the process has ended or patience is over.
func (p *process) await(ctx context.Context, what string, done func(context.Context) error) error {
	return await(ctx, p.name+" "+what, patience, func(ctx context.Context) error {
		err := done(ctx)
		if err != nil && !p.alive() {
			return final{fmt.Errorf("it has ended, see %s: %w", p.log, err)}
		}
		return err
	})
}

// A final error is not worth asking again.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// await asks until done returns nil or a final error, at most for the given
// time.
func await(ctx context.Context, what string, within time.Duration, done func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var before error // says more than that the time was over
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
