package submission

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/input/function"
)

// spoolBuffer gathers rows before they are written to the bucket.
const spoolBuffer = 64 << 10

// A spool takes the rows of a submission while it is decoded: the first
// maxInline bytes into memory, all of them into an object once there are
// more: one JSON string, or one object where a Function is to make a prompt of
// it, a line. commit or abort end it; to abort after either is harmless.
type spool struct {
	ctx       context.Context
	bucket    blob.Bucket
	job       string // of the rows
	maxRow    int    // bytes of a decoded row
	maxInline int    // bytes of JSON kept in memory

	run     bool     // the only row is that of a run, whose result nobody downloads
	count   int64    // of rows
	rows    []string // JSON strings and objects
	size    int      // bytes of rows as lines
	writer  blob.Writer
	buffer  *bufio.Writer
	dropped bool
}

// addText takes a row as the inside of a JSON string, and copies it.
func (k *spool) addText(raw []byte) error { return k.add(`"`, raw, `"`) }

// addLine takes a row as JSON in one line, and copies it.
func (k *spool) addLine(raw []byte) error { return k.add("", raw, "") }

func (k *spool) add(before string, raw []byte, after string) error {
	if k.dropped {
		return nil
	}
	k.count++
	k.size += len(before) + len(raw) + len(after) + 1 // line end, or comma
	if k.writer == nil && k.size <= k.maxInline {
		k.rows = append(k.rows, before+string(raw)+after)
		return nil
	}
	if k.writer == nil {
		if err := k.spill(); err != nil {
			return err
		}
	}
	_, _ = k.buffer.WriteString(before) // a bufio.Writer repeats its first error
	_, _ = k.buffer.Write(raw)
	_, _ = k.buffer.WriteString(after)
	return k.buffer.WriteByte('\n')
}

// spill moves what is in memory to a new object.
func (k *spool) spill() error {
	writer, err := k.bucket.Create(k.ctx, layout.Spooled(k.job), layout.NDJSON)
	if err != nil {
		return fmt.Errorf("create the object of its rows: %w", err)
	}
	k.writer, k.buffer = writer, bufio.NewWriterSize(writer, spoolBuffer)
	for _, row := range k.rows {
		_, _ = k.buffer.WriteString(row)
		if err := k.buffer.WriteByte('\n'); err != nil {
			return err
		}
	}
	k.rows = nil
	return nil
}

// drop forgets the rows: the submission will be refused.
func (k *spool) drop() {
	k.dropped = true
	k.abort()
}

// abort removes what was written and not committed.
func (k *spool) abort() {
	if k.writer != nil {
		k.writer.Abort()
	}
	k.rows = nil
}

// commit returns the texts of the rows where they are few, or makes the object
// of the rows durable and returns its key. prompt makes texts of rows that are
// objects; nil where there are none. A row too long is a *rowmill.InvalidError;
// those of an object of rows are found out when it is read.
func (k *spool) commit(prompt *function.Prompt) (inline []string, spooled string, err error) {
	if k.writer == nil {
		inline, err = k.texts(prompt)
		if inline != nil || err != nil {
			return inline, "", err
		}
		if err := k.spill(); err != nil {
			return nil, "", err
		}
	}
	if err := k.buffer.Flush(); err != nil {
		return nil, "", fmt.Errorf("write the rows of a submission: %w", err)
	}
	if err := k.mark(); err != nil {
		return nil, "", fmt.Errorf("mark the rows of a submission: %w", err)
	}
	if _, err := k.writer.Commit(); err != nil {
		return nil, "", fmt.Errorf("commit the rows of a submission: %w", err)
	}
	return nil, layout.Spooled(k.job), nil
}

// copied makes a copy of another object durable and returns its key.
func (k *spool) copied(from string) (string, error) {
	if err := k.mark(); err != nil {
		return "", fmt.Errorf("mark the input of a submission: %w", err)
	}
	if err := k.bucket.Copy(k.ctx, from, layout.Spooled(k.job)); err != nil {
		return "", fmt.Errorf("copy the input of a submission: %w", err)
	}
	return layout.Spooled(k.job), nil
}

// mark says in the bucket that rows come whose job has no record yet. Without
// a mark nobody removes what no record knows.
func (k *spool) mark() error {
	w, err := k.bucket.Create(k.ctx, layout.Spooling(k.job), layout.Bytes)
	if err == nil {
		_, err = w.Commit()
	}
	return err
}

// texts returns the rows in memory as texts, or nil where the prompts made of
// them are too large for the record, or the values that they are made of are
// wanted beside them in the results.
func (k *spool) texts(prompt *function.Prompt) ([]string, error) {
	texts, size, objects := make([]string, len(k.rows)), int64(0), false
	for i, row := range k.rows {
		if row[0] == '"' {
			if err := json.Unmarshal([]byte(row), &texts[i]); err != nil {
				return nil, fmt.Errorf("decode a checked string: %w", err)
			}
			continue
		}
		objects = true
		fields, err := function.ParseRow([]byte(row))
		if err != nil {
			return nil, err
		}
		values, _ := prompt.Values(fields)
		made := prompt.Size(values)
		if made > int64(k.maxRow) {
			return nil, rowmill.Invalid(fmt.Sprintf("%s[%d]", fieldInputs, i), "makes a prompt of %d bytes, more than %d; shorten its values", made, k.maxRow)
		}
		if size += made; size <= int64(k.maxInline) {
			texts[i] = prompt.Render(values)
		}
	}
	if size > int64(k.maxInline) || objects && !k.run {
		return nil, nil
	}
	return texts, nil
}
