package http

import (
	"bufio"
	"context"
	"fmt"

	"github.com/rowmill/rowmill/blob"
)

// spoolBuffer gathers rows before they are written to the bucket.
const spoolBuffer = 64 << 10

// inputKey is where the rows of a larger submission are kept: one JSON string
// per line.
func inputKey(jobID string) string { return "jobs/" + jobID + "/input/rows.jsonl" }

// A rowSink takes the rows of a submission while it is decoded: the first
// maxInline bytes into memory, all of them into an object once there are
// more. Exactly one of commit and abort ends it.
type rowSink struct {
	ctx       context.Context
	bucket    blob.Bucket
	key       string
	maxRow    int // bytes of a decoded row
	maxInline int // bytes of JSON kept in memory

	rows    []string // JSON strings without their quotes
	size    int      // bytes of rows as lines
	writer  blob.Writer
	buffer  *bufio.Writer
	dropped bool
}

// add takes a row as the inside of a JSON string, and copies it.
func (k *rowSink) add(raw []byte) error {
	if k.dropped {
		return nil
	}
	k.size += len(raw) + 3 // quotes and line end, or comma
	if k.writer == nil && k.size <= k.maxInline {
		k.rows = append(k.rows, string(raw))
		return nil
	}
	if k.writer == nil {
		if err := k.spill(); err != nil {
			return err
		}
	}
	return k.write(raw)
}

// spill moves what is in memory to a new object.
func (k *rowSink) spill() error {
	writer, err := k.bucket.Create(k.ctx, k.key, "application/x-ndjson")
	if err != nil {
		return fmt.Errorf("create the object of its rows: %w", err)
	}
	k.writer, k.buffer = writer, bufio.NewWriterSize(writer, spoolBuffer)
	for _, row := range k.rows {
		if err := k.write([]byte(row)); err != nil {
			return err
		}
	}
	k.rows = nil
	return nil
}

func (k *rowSink) write(raw []byte) error {
	_ = k.buffer.WriteByte('"') // a bufio.Writer repeats its first error
	_, _ = k.buffer.Write(raw)
	_, err := k.buffer.WriteString("\"\n")
	return err
}

// drop forgets the rows: the submission will be refused.
func (k *rowSink) drop() {
	k.dropped = true
	k.abort()
}

// abort removes what was written and not committed.
func (k *rowSink) abort() {
	if k.writer != nil {
		k.writer.Abort()
	}
	k.rows = nil
}

// commit returns the rows where they are few, or makes their object durable
// and returns its key.
func (k *rowSink) commit() (inline []string, spooled string, err error) {
	if k.writer == nil {
		inline = make([]string, len(k.rows))
		for i, raw := range k.rows {
			if inline[i], err = unquote([]byte(raw)); err != nil {
				return nil, "", err
			}
		}
		return inline, "", nil
	}
	if err := k.buffer.Flush(); err != nil {
		return nil, "", fmt.Errorf("write the rows of a submission: %w", err)
	}
	if _, err := k.writer.Commit(); err != nil {
		return nil, "", fmt.Errorf("commit the rows of a submission: %w", err)
	}
	return nil, k.key, nil
}
