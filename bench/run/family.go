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
	"sync"
	"time"
)

// A family is a program and all that it starts, workers that leave it included:
// they are told by a variable of their environment, which processes inherit.
type family struct {
	mark []byte
	used map[int]time.Duration // processor time of each process, as last seen
	kin  map[int]bool          // what is known of a process that runs
	peak int64                 // of the sum of their anonymous memory, bytes
}

// runFamily runs a program to its end and returns what it and all that it started
// used, as far as looking every sampleEvery shows, and the last line it printed.
func runFamily(ctx context.Context, env []string, name string, args ...string) (used usage, peak int64, printed string, err error) {
	mark := "ROWMILL_BENCH=" + rand.Text()
	command := exec.CommandContext(ctx, name, args...)
	command.Env = append(append(os.Environ(), env...), mark)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	f := family{mark: []byte(mark), used: make(map[int]time.Duration), kin: make(map[int]bool)}
	begun := time.Now()
	if err := command.Start(); err != nil {
		return used, 0, "", fmt.Errorf("%s: %w", name, err)
	}
	stop := f.watch()
	err = command.Wait()
	used.wall = time.Since(begun)
	stop()
	if err != nil {
		return used, 0, "", fmt.Errorf("%s: %w: %s", name, err, lastLine(stderr.String()))
	}
	for _, spent := range f.used {
		used.cpu += spent
	}
	return used, f.peak, lastLine(stdout.String()), nil
}

// watch looks until stop is called.
func (f *family) watch() (stop func()) {
	done := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		ticker := time.NewTicker(sampleEvery)
		defer ticker.Stop()
		for {
			f.look()
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

// look adds up what runs now.
func (f *family) look() {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return // the next look may tell
	}
	memory, run := int64(0), make(map[int]bool, len(f.kin))
	for _, dir := range dirs {
		pid, err := strconv.Atoi(dir.Name())
		if err != nil {
			continue
		}
		kin, known := f.kin[pid]
		if !known || !kin { // a process has its parent's environment until it runs a program
			environment, err := os.ReadFile(filepath.Join("/proc", dir.Name(), "environ"))
			kin = err == nil && bytes.Contains(environment, f.mark)
		}
		run[pid] = kin
		if !kin {
			continue
		}
		if _, spent, err := stat(pid); err == nil {
			f.used[pid] = spent
		}
		if now, err := anonymousOf(pid); err == nil {
			memory += now
		}
	}
	f.kin = run
	f.peak = max(f.peak, memory)
}
