// Package proctest starts server programs for tests, and keeps the end of their output.
// It does not know the programs.
package proctest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"
)

// A Process is a started program.
type Process struct {
	*os.Process
	Ended <-chan struct{} // closed when the process has ended

	command *exec.Cmd
	output  *tailBuffer
}

// Start starts a command. The caller ends its process.
func Start(command *exec.Cmd) (*Process, error) {
	output, ended := &tailBuffer{}, make(chan struct{})
	command.Stdout, command.Stderr = output, output
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", command.Path, err)
	}
	p := &Process{Process: command.Process, Ended: ended, command: command, output: output}
	go func() {
		_ = command.Wait() // command.ProcessState has the result
		close(ended)
	}()
	return p, nil
}

// WaitUntilReady returns after isReady has returned true. If the process ends before, or if it
// is not ready when ctx or the timeout ends, it kills the process and returns an error with the
// end of the output.
func (p *Process) WaitUntilReady(ctx context.Context, timeout time.Duration, isReady func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not ready within %v", timeout))
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for !isReady() {
		select {
		case <-p.Ended:
			return fmt.Errorf("%s has ended (%v): %s", p.command.Path, p.command.ProcessState, p.output)
		case <-ctx.Done():
			p.KillAndWait()
			return fmt.Errorf("%s: %w: %s", p.command.Path, errors.Join(ctx.Err(), context.Cause(ctx)), p.output)
		case <-poll.C:
		}
	}
	return nil
}

// KillAndWait kills the process (SIGKILL), like a crash, and returns after it has ended.
func (p *Process) KillAndWait() {
	_ = p.Kill() // an error does not matter: the process may have ended
	<-p.Ended
}

// GetStatus sends a GET request to a URL, and returns the status of the answer; 0 if no server
// answers within a second.
func GetStatus(ctx context.Context, url string) int {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0
	}
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// tailBuffer is a writer that keeps the last 8 KiB of the output.
type tailBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *tailBuffer) Write(p []byte) (int, error) {
	const keep = 8 << 10
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(p)
	if over := w.buf.Len() - keep; over > 0 {
		w.buf.Next(over)
	}
	return len(p), nil
}

func (w *tailBuffer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}
