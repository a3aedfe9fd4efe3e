package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// writes measures the bytes written to a node's disk for a job of rows of 100 bytes,
// from a CSV file by URL to the first results-url of the whole result, and the time
// from the last row to the result. Every round has a new node. It reads the counter of
// the device, so nothing else may write to the device. The kernel's counter per process
// (write_bytes of /proc/PID/io) counts whole folios, up to a mebibyte for a commit of
// one page.
func (b *bench) writes(ctx context.Context) error {
	rows := b.rows
	in, err := b.makeShortCSV(rows)
	if err != nil {
		return err
	}
	null, address, err := b.startNull(ctx, "-tokens", "20", "-models", model)
	if err != nil {
		return err
	}
	defer null.end()
	var written, ratio, final, url, cpu, peak spread
	for range b.rounds {
		w, err := b.writesOf(ctx, in, address, rows)
		if err != nil {
			return err
		}
		written = append(written, float64(w.written)/(1<<20))
		ratio = append(ratio, float64(w.written)/float64(w.result))
		final = append(final, w.final.Seconds()*1e3)
		url = append(url, w.url.Seconds()*1e3)
		cpu = append(cpu, w.cpu.Seconds()*1e6/float64(rows))
		peak = append(peak, float64(w.peak)/(1<<20))
		b.log.Info("measured", "written_mib", w.written>>20, "result_mib", w.result>>20, "final", w.final, "url", w.url, "cpu", w.cpu, "wall", w.wall, "peak_mib", w.peak>>20)
	}
	t := table{head: []string{"load", "written, MiB", "÷ result", "last row to result, ms", "results-url, ms", "CPU µs/row", "peak anonymous memory, MiB"}}
	t.add(fmt.Sprintf("%d rows of 100 B, CSV by URL", rows), written.String(), ratio.String(), final.String(), url.String(), cpu.String(), peak.String())
	t.report("Writes: %d rounds, median (min–max)", b.rounds)
	return nil
}

// written holds the figures of a job.
type written struct {
	measured
	written, result int64         // in bytes
	final, url      time.Duration // time from the last row to the result, and to its URL
}

func (b *bench) writesOf(ctx context.Context, in, address string, rows int64) (w written, err error) {
	data := filepath.Join(b.dir, "node-writes")
	n, err := startNode(ctx, b.rowmill, data, address)
	if err != nil {
		return w, err
	}
	defer n.end()
	before, err := deviceWrites(b.dir)
	if err != nil {
		return w, err
	}
	if w.measured, err = n.measure(ctx, b.fileOf(in)); err != nil {
		return w, err
	}
	values, err := n.metrics(ctx)
	if err != nil {
		return w, err
	}
	w.final = time.Duration(values["rowmill_finalise_seconds_sum"] * float64(time.Second))
	begun := time.Now()
	get, err := n.resultsURL(ctx, w.id)
	if err != nil {
		return w, err
	}
	w.url = time.Since(begun)
	if w.written, err = deviceWrites(b.dir); err != nil {
		return w, err
	}
	w.written -= before
	if w.result, err = b.checkURL(ctx, n, get, w.id, rows); err != nil {
		return w, err
	}
	return w, errors.Join(n.stop(), os.RemoveAll(data))
}

// deviceWrites returns the bytes written to the device of a directory since the start
// of the machine. https://docs.kernel.org/block/stat.html
func deviceWrites(dir string) (int64, error) {
	unix.Sync()
	var at unix.Stat_t
	if err := unix.Stat(dir, &at); err != nil {
		return 0, fmt.Errorf("look for device of %s: %w", dir, err)
	}
	path := fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(at.Dev), unix.Minor(at.Dev))
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read writes of device: %w", err)
	}
	fields := strings.Fields(string(data))
	if len(fields) < 7 {
		return 0, fmt.Errorf("read writes of device: %s has %d fields", path, len(fields))
	}
	sectors, err := strconv.ParseInt(fields[6], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read writes of device: %w", err)
	}
	return 512 * sectors, nil
}
