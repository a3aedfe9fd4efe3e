package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// ingest measures how fast a node reads a CSV file: from the submission of the URL
// until the rows are counted and in shards. No server has the job's model, so that the
// node does nothing else.
func (b *bench) ingest(ctx context.Context) error {
	rows := b.rows
	path, err := b.makeCSV(rows)
	if err != nil {
		return err
	}
	n, _, end, err := b.onNull(ctx, "-models", model)
	if err != nil {
		return err
	}
	defer end()

	var rate, cpu spread
	for range b.rounds {
		s := b.fileOf(path)
		s.Model = unserved
		id := ""
		used, err := costOf(n.cpu, func() (err error) {
			if id, err = n.submit(ctx, s); err == nil {
				err = n.counted(ctx, id, rows)
			}
			return err
		})
		if err != nil {
			return err
		}
		rate = append(rate, float64(rows)/used.wall.Seconds())
		cpu = append(cpu, used.cpu.Seconds()*1e6/float64(rows))
		b.log.Info("measured", "rows_per_s", short(rate[len(rate)-1]), "cpu_us_per_row", short(cpu[len(cpu)-1]))
		if err := n.cancel(ctx, id); err != nil {
			return err
		}
	}
	t := table{head: []string{"measure", "rows/s", "CPU µs/row"}}
	t.add(fmt.Sprintf("CSV of %d rows by URL, until cut into shards", rows), rate.String(), cpu.String())
	t.report("Ingest: %d rounds, median (min–max)", b.rounds)
	return n.stop()
}

// counted waits until the job's rows are counted.
func (n *node) counted(ctx context.Context, id string, rows int64) error {
	for {
		job, err := n.job(ctx, id)
		if err != nil {
			return err
		}
		switch {
		case job.Status == "failed":
			return fmt.Errorf("job %s failed: %s", id, job.FailureReason)
		case job.NumRows != nil && *job.NumRows != rows:
			return fmt.Errorf("job %s has %d rows, want %d", id, *job.NumRows, rows)
		case job.NumRows != nil:
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// makeCSV writes a CSV file with the columns id and text, with texts of 60 to 540
// bytes, every fourth with quotes and a line break. It returns the path.
func (b *bench) makeCSV(rows int64) (string, error) {
	random := rand.New(rand.NewPCG(3, 0))
	return b.csvFile(fmt.Sprintf("rows-%d.csv", rows), rows, func(words []string, text []byte, row int64) []byte {
		if row%4 == 0 {
			text = append(text, "He said \""...)
		}
		for size := 60 + random.IntN(480); len(text) < size; {
			text = append(append(text, words[random.IntN(len(words))]...), ' ')
		}
		if row%4 == 0 {
			text = append(text, "\",\nand left."...)
		}
		return text
	})
}

// makeShortCSV writes a CSV file with the columns id and text, with the rows of a
// dataset of 100 bytes. It returns the path.
func (b *bench) makeShortCSV(rows int64) (string, error) {
	var texts func([]byte, int64) []byte
	return b.csvFile(fmt.Sprintf("rows-%d-100b.csv", rows), rows, func(words []string, text []byte, row int64) []byte {
		if texts == nil {
			texts = dataset{rows: rows, bytes: 100, seed: 7}.texts(words)
		}
		return texts(text, row)
	})
}

// csvFile writes a CSV file with the columns id and text; text appends the text of a
// row to an empty slice. It returns the path.
func (b *bench) csvFile(name string, rows int64, text func(words []string, to []byte, row int64) []byte) (string, error) {
	path := filepath.Join(b.dir, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("look for data set: %w", err)
	}
	words, err := readWords()
	if err != nil {
		return "", err
	}
	file, err := os.Create(path + ".part")
	if err != nil {
		return "", fmt.Errorf("create data set: %w", err)
	}
	defer file.Close()
	out := csv.NewWriter(file)
	err = out.Write([]string{"id", "text"})
	var line []byte
	for row := int64(0); row < rows && err == nil; row++ {
		line = text(words, line[:0], row)
		err = out.Write([]string{strconv.FormatInt(row, 10), string(line)})
	}
	out.Flush()
	if err = errors.Join(err, out.Error(), file.Close()); err != nil {
		return "", fmt.Errorf("write data set: %w", err)
	}
	return path, os.Rename(path+".part", path)
}
