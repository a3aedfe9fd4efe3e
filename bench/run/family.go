package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// A family is a program and all processes that it starts, also ones that detach.
// Processes are recognized by an environment variable, which they inherit.
type family struct {
	mark   []byte
	used   map[int]time.Duration // last known processor time per process
	member map[int]bool          // whether a process belongs to the family
	peak   int64                 // peak of their total anonymous memory, bytes
}

func newFamily() *family {
	return &family{mark: []byte("ROWMILL_BENCH=" + rand.Text()), used: make(map[int]time.Duration), member: make(map[int]bool)}
}

// cpu returns the last known processor time of all processes.
func (f *family) cpu() (sum time.Duration) {
	for _, used := range f.used {
		sum += used
	}
	return sum
}

// runFamily runs a program to its end. It returns the usage of the program and all its
// processes, sampled every sampleEvery, and the last printed line.
func runFamily(ctx context.Context, env []string, name string, args ...string) (used usage, peak int64, printed string, err error) {
	f := newFamily()
	command := exec.CommandContext(ctx, name, args...)
	command.Env = append(append(os.Environ(), env...), string(f.mark))
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	begun := time.Now()
	if err := command.Start(); err != nil {
		return used, 0, "", fmt.Errorf("%s: %w", name, err)
	}
	stop := sampling(f.inspect)
	err = command.Wait()
	used.wall = time.Since(begun)
	stop()
	if err != nil {
		return used, 0, "", fmt.Errorf("%s: %w: %s", name, err, lastLine(stderr.String()))
	}
	used.cpu = f.cpu()
	return used, f.peak, lastLine(stdout.String()), nil
}

// inspect samples all running processes of the machine.
func (f *family) inspect() {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return // the next sample may succeed
	}
	memory, run := int64(0), make(map[int]bool, len(f.member))
	for _, dir := range dirs {
		pid, err := strconv.Atoi(dir.Name())
		if err != nil {
			continue
		}
		member, known := f.member[pid]
		if !known || !member { // before exec a process still shows its parent's environment
			environment, err := os.ReadFile(filepath.Join("/proc", dir.Name(), "environ"))
			member = err == nil && bytes.Contains(environment, f.mark)
		}
		run[pid] = member
		if !member {
			continue
		}
		if spent, err := processorTime(pid); err == nil {
			f.used[pid] = spent
		}
		if now, err := anonymous(pid); err == nil {
			memory += now
		}
	}
	f.member = run
	f.peak = max(f.peak, memory)
}
