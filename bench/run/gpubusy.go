package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// utilisation is one reading of nvidia-smi: the share of its last sample period, a
// sixth of a second to a second, in which anything ran on the GPU.
type utilisation struct {
	at    time.Time
	share float64
}

// watchGPU reads the first GPU's utilisation until the returned function is called,
// which returns the readings. There are none with -cpu or without nvidia-smi.
func (b *bench) watchGPU(o gpuOptions) (stop func() []utilisation, err error) {
	if o.cpu {
		return func() []utilisation { return nil }, nil
	}
	program, err := exec.LookPath("nvidia-smi")
	if errors.Is(err, exec.ErrNotFound) {
		b.log.Warn("no nvidia-smi: the GPU's utilisation is unknown")
		return func() []utilisation { return nil }, nil
	} else if err != nil {
		return nil, err
	}
	p, err := startProcess(filepath.Join(b.dir, "nvidia-smi.log"), os.Environ(), program,
		"--id=0", "--query-gpu=timestamp,utilization.gpu", "--format=csv,noheader,nounits", "--loop-ms=200")
	if err != nil {
		return nil, err
	}
	read := make(chan []utilisation, 1)
	go func() { read <- readLoads(p.stdout) }()
	return func() []utilisation {
		_ = p.command.Process.Kill() // nvidia-smi does not end by itself
		loads := <-read
		p.kill()
		return loads
	}, nil
}

// smiTime is the format of a reading's time, in local time. One output may have many
// readings.
const smiTime = "2006/01/02 15:04:05.000"

// readLoads reads one time and utilisation in percent per line, until the end. Values
// that the driver does not report, as with MIG, are skipped.
func readLoads(lines io.Reader) (loads []utilisation) {
	scanner := bufio.NewScanner(lines)
	for scanner.Scan() {
		when, percent, _ := strings.Cut(scanner.Text(), ",")
		at, err := time.ParseInLocation(smiTime, strings.TrimSpace(when), time.Local)
		if err != nil {
			continue
		}
		if share, err := strconv.ParseFloat(strings.TrimSpace(percent), 64); err == nil {
			loads = append(loads, utilisation{at, share / 100})
		}
	}
	return loads
}

// meanLoad returns the mean between two times, -1 without readings.
func meanLoad(loads []utilisation, from, to time.Time) float64 {
	sum, n := 0.0, 0
	for _, l := range loads {
		if l.at.After(from) && l.at.Before(to) {
			sum += l.share
			n++
		}
	}
	if n == 0 {
		return -1
	}
	return sum / float64(n)
}
