package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// usage is the usage of a contender's process alone.
type usage struct {
	cpu  time.Duration // user and system time
	wall time.Duration
}

// costOf returns the time and the processor time that do takes. cpu returns the processor
// time so far.
func costOf(cpu func() (time.Duration, error), do func() error) (u usage, err error) {
	before, err := cpu()
	if err != nil {
		return u, err
	}
	begun := time.Now()
	err = do()
	u.wall = time.Since(begun)
	if err != nil {
		return u, err
	}
	after, err := cpu()
	u.cpu = after - before
	return u, err
}

// runOnce runs a program to its end, and returns the usage of its process and the last
// printed line.
func runOnce(ctx context.Context, name string, args ...string) (usage, string, error) {
	command := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	begun := time.Now()
	if err := command.Run(); err != nil {
		return usage{}, "", fmt.Errorf("%s: %w: %s", name, err, lastLine(stderr.String()))
	}
	state := command.ProcessState
	return usage{cpu: state.UserTime() + state.SystemTime(), wall: time.Since(begun)}, lastLine(stdout.String()), nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// process is a program that runs during a measurement.
type process struct {
	command *exec.Cmd
	stdout  *bufio.Reader
	log     string // path of the standard error log
	waited  sync.Once
	waitErr error
}

// startProcess starts a program; its standard error goes to the file log.
func startProcess(log string, env []string, name string, args ...string) (*process, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("create log: %w", err)
	}
	defer file.Close()
	command := exec.Command(name, args...) //nolint:noctx // it is stopped by a signal, for a graceful end
	command.Stderr = file
	command.Env = env
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return &process{command: command, stdout: bufio.NewReader(stdout), log: log}, nil
}

// firstLine returns the first printed line.
func (p *process) firstLine() (string, error) {
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s printed nothing: %w", p.command.Path, err)
	}
	return strings.TrimSpace(line), nil
}

// stop sends SIGTERM and waits for the end of the program.
func (p *process) stop() error {
	p.waited.Do(func() {
		_ = p.command.Process.Signal(syscall.SIGTERM) // it may have ended already
		p.waitErr = p.command.Wait()
	})
	if p.waitErr != nil {
		return fmt.Errorf("%s: %w (log: %s)", p.command.Path, p.waitErr, p.log)
	}
	return nil
}

// kill kills the program, as a power cut would, and returns when it has ended.
func (p *process) kill() {
	p.waited.Do(func() {
		_ = p.command.Process.Kill() // it may have ended already
		_ = p.command.Wait()         // the error only says that it was killed
	})
}

// end stops the program and ignores errors, after a stop or after another error.
func (p *process) end() { _ = p.stop() }

// clockTick is the unit of /proc/PID/stat: USER_HZ, which is 100 on every Linux with
// Go.
const clockTick = 10 * time.Millisecond

// cpu returns the processor time of the process so far.
func (p *process) cpu() (time.Duration, error) { return processorTime(p.command.Process.Pid) }

// processorTime returns the processor time of a process so far.
func processorTime(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	// The command's name is in parentheses and may contain any character. Fields from
	// number 3 on follow: utime is number 14, stime 15.
	_, rest, _ := bytes.Cut(data, []byte(") "))
	fields := bytes.Fields(rest)
	if len(fields) < 13 {
		return 0, errors.New("read processor time: unknown form of /proc/PID/stat")
	}
	var user, system int64
	if _, err := fmt.Sscan(string(fields[11])+" "+string(fields[12]), &user, &system); err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	return time.Duration(user+system) * clockTick, nil
}

// anonymous returns the anonymous resident memory of a process in bytes: allocated
// memory without mapped files.
func anonymous(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, found := strings.CutPrefix(line, "RssAnon:"); found {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read memory: %w", err)
			}
			return kib << 10, nil
		}
	}
	return 0, errors.New("read memory: no RssAnon in /proc/PID/status")
}

// sampleEvery is the time between two samples of memory. Shorter peaks are missed; a
// sample costs a few microseconds.
const sampleEvery = 50 * time.Millisecond

// watchMemory samples the process's memory until stop is called, which returns the peak
// in bytes.
func (p *process) watchMemory() (stop func() int64) {
	peak := int64(0)
	end := sampling(func() {
		if now, err := anonymous(p.command.Process.Pid); err == nil {
			peak = max(peak, now)
		}
	})
	return func() int64 {
		end()
		return peak
	}
}

// sampling calls sample every sampleEvery until stop is called.
func sampling(sample func()) (stop func()) {
	done := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		ticker := time.NewTicker(sampleEvery)
		defer ticker.Stop()
		for {
			sample()
			select {
			case <-ticker.C:
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		ended.Wait()
	}
}
