package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// An equalLoad is a job of B5.
type equalLoad struct {
	name      string
	rows      int64
	different int64
	dedup     bool
	text      func(row, rows, different int64) int64 // returns the text number of a row

	wall, perRow, peak spread
}

// shuffled gives each text to the same number of rows in random order: most texts
// appear early, the last ones late.
func shuffled(row, rows, different int64) int64 {
	const step = 7_368_787 // a prime that divides no number of rows here
	return row * step % rows / (rows / different)
}

// tenths has new texts at equal distances up to the end; the rows between repeat any
// earlier text.
func tenths(row, rows, different int64) int64 {
	every := rows / different
	if row%every == 0 {
		return row / every
	}
	return int64(uint64(row) * 0x9E3779B97F4A7C15 >> 20 % uint64(row/every+1))
}

// makeRepeated writes a Parquet file with the rows of a load, with texts of 100 bytes,
// and returns its path.
func (b *bench) makeRepeated(l *equalLoad) (string, error) {
	rows, different := l.rows, l.different
	path := filepath.Join(b.dir, fmt.Sprintf("rows-%d-100b-of-%d-%t.parquet", rows, different, l.text(1, rows, different) == 0))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	words, err := readWords()
	if err != nil {
		return "", err
	}
	texts := make([][]byte, different)
	appendText := dataset{rows: different, bytes: 100, seed: 7}.texts(words)
	for i := range texts {
		texts[i] = appendText(nil, int64(i))
	}
	return path, writeRows(path, rows, func(text []byte, row int64) []byte {
		return append(text, texts[l.text(row, rows, different)]...)
	})
}

// equalRows is B5: the cost of rows with an equal earlier row, which are not run, and
// the cost of the search if there are no equal rows. It measures a job with different
// rows, the same job with dedup, and two jobs in which nine of ten rows are repeats;
// each runs on a new node.
func (b *bench) equalRows(ctx context.Context) error {
	different := b.rows
	null, address, err := b.startNull(ctx, "-tokens", "20", "-models", model, "-delay", b.delay.String(), "-slots", fmt.Sprint(b.slots))
	if err != nil {
		return err
	}
	defer null.end()
	loads := []*equalLoad{
		{name: "all different", rows: different, different: different, text: shuffled},
		{name: "the same, dedup", rows: different, different: different, dedup: true, text: shuffled},
		{name: "each ten times, dedup", rows: 10 * different, different: different, dedup: true, text: shuffled},
		{name: "every tenth is new, dedup", rows: 10 * different, different: different, dedup: true, text: tenths},
	}
	for range b.rounds {
		for _, l := range loads {
			m, err := b.runEqual(ctx, l, address)
			if err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			l.wall = append(l.wall, m.wall.Seconds())
			l.perRow = append(l.perRow, m.cpu.Seconds()*1e6/float64(l.rows))
			l.peak = append(l.peak, float64(m.peak)/(1<<20))
			b.log.Info("measured", "load", l.name, "wall", m.wall, "cpu", m.cpu, "peak_mib", m.peak>>20)
		}
	}
	t := table{head: []string{"rows", "requests", "job, s", "CPU µs/row", "peak anonymous memory, MiB"}}
	for _, l := range loads {
		t.add(fmt.Sprintf("%d, %s", l.rows, l.name), fmt.Sprint(l.different), l.wall.String(), l.perRow.String(), l.peak.String())
	}
	t.report("B5 equal rows: %d rounds, median (min–max)", b.rounds)
	return nil
}

// runEqual runs one load on a new node and checks the outcome.
func (b *bench) runEqual(ctx context.Context, l *equalLoad, address string) (m measured, err error) {
	in, err := b.makeRepeated(l)
	if err != nil {
		return m, err
	}
	s := b.fileOf(in)
	s.Dedup = l.dedup
	if m, err = b.onNewNode(ctx, b.rowmill, address, l.rows, s); err != nil {
		return m, err
	}
	if saved := l.rows - l.different; m.record.RowsDone != l.rows || m.record.Deduplicated != saved {
		return m, fmt.Errorf("%d of %d rows are done, %d without a run, want %d", m.record.RowsDone, l.rows, m.record.Deduplicated, saved)
	}
	return m, nil
}
