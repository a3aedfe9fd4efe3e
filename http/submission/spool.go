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

// spoolBuffer is the size of the buffer for writes to the bucket, in bytes.
const spoolBuffer = 64 << 10

// A rowSpool stores the rows of a submission while the body is decoded. If all rows
// together have up to maxInline bytes, they stay in memory. If they have more, all rows
// go to an object in the bucket: one row per line, as a JSON string, or as a JSON
// object for a Function's prompt. The caller must call finishRows or abort. A call of abort
// after finishRows or abort does nothing.
type rowSpool struct {
	ctx       context.Context
	bucket    blob.Bucket
	job       string // id of the job to create
	maxRow    int    // limit of a decoded row, in bytes
	maxInline int    // limit of the JSON in memory, in bytes

	run     bool     // the only row is the input of a Function's run; clients do not download the results of a run
	count   int64    // number of rows
	rows    []string // rows in memory, as JSON strings and objects
	size    int      // size of the rows as lines, in bytes
	writer  blob.Writer
	buffer  *bufio.Writer
	dropped bool // discardRows was called; later rows are not stored

	objectOnly bool // finishRows writes the rows to an object, also if they fit into the record
}

// addStringRow adds a row that is a JSON string. raw is the text between the quotes; addStringRow
// copies it.
func (k *rowSpool) addStringRow(raw []byte) error { return k.addRow(`"`, raw, `"`) }

// addJSONRow adds a row that is JSON in one line. addJSONRow copies raw.
func (k *rowSpool) addJSONRow(raw []byte) error { return k.addRow("", raw, "") }

func (k *rowSpool) addRow(before string, raw []byte, after string) error {
	if k.dropped {
		return nil
	}
	k.count++
	k.size += len(before) + len(raw) + len(after) + 1 // 1 for the line end or the comma
	if k.writer == nil && k.size <= k.maxInline {
		k.rows = append(k.rows, before+string(raw)+after)
		return nil
	}
	if k.writer == nil {
		if err := k.spill(); err != nil {
			return err
		}
	}
	_, _ = k.buffer.WriteString(before) // no check: a bufio.Writer returns its first error again below
	_, _ = k.buffer.Write(raw)
	_, _ = k.buffer.WriteString(after)
	return k.buffer.WriteByte('\n')
}

// spill creates the object in the bucket and moves the rows in memory to it.
func (k *rowSpool) spill() error {
	writer, err := k.bucket.Create(k.ctx, layout.SpooledRowsKey(k.job), layout.NDJSON)
	if err != nil {
		return fmt.Errorf("create the object for the rows: %w", err)
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

// discardRows removes all rows, because the submission will be refused. Rows that are added
// later are not stored.
func (k *rowSpool) discardRows() {
	k.dropped = true
	k.abort()
}

// abort removes the rows in memory, and the object in the bucket if it was not
// committed.
func (k *rowSpool) abort() {
	if k.writer != nil {
		k.writer.Abort()
	}
	k.rows = nil
}

// finishRows stores the rows. If they fit into the job's record and objectOnly is not set, it returns them as texts
// in inline. Otherwise it commits the object with the rows and returns the object's key in
// objectKey. prompt renders rows that are JSON objects; it is nil if there are no such
// rows. If a row in memory is too long, the error is a *rowmill.InvalidError. Rows in an
// object of the bucket are checked when the job reads them.
func (k *rowSpool) finishRows(prompt *function.Prompt) (inline []string, objectKey string, err error) {
	if k.writer == nil {
		inline, err = k.renderRows(prompt)
		if inline != nil && !k.objectOnly || err != nil {
			return inline, "", err
		}
		if err := k.spill(); err != nil {
			return nil, "", err
		}
	}
	if err := k.buffer.Flush(); err != nil {
		return nil, "", fmt.Errorf("write the rows of a submission: %w", err)
	}
	if err := MarkSpooling(k.ctx, k.bucket, k.job); err != nil {
		return nil, "", fmt.Errorf("mark the rows of a submission: %w", err)
	}
	if _, err := k.writer.Commit(); err != nil {
		return nil, "", fmt.Errorf("commit the rows of a submission: %w", err)
	}
	return nil, layout.SpooledRowsKey(k.job), nil
}

// copyObject copies an object of the bucket to the input object of the job, and returns
// the key of the copy.
func (k *rowSpool) copyObject(from string) (string, error) {
	if err := MarkSpooling(k.ctx, k.bucket, k.job); err != nil {
		return "", fmt.Errorf("mark the input of a submission: %w", err)
	}
	if err := k.bucket.Copy(k.ctx, from, layout.SpooledRowsKey(k.job)); err != nil {
		return "", fmt.Errorf("copy the input of a submission: %w", err)
	}
	return layout.SpooledRowsKey(k.job), nil
}

// MarkSpooling creates a small object in the bucket that marks the rows of a job as rows
// without a record. It is called before the rows are stored. If the record is never
// stored, retention finds the rows by this mark and removes them.
func MarkSpooling(ctx context.Context, bucket blob.Bucket, job string) error {
	w, err := bucket.Create(ctx, layout.SpoolingKey(job), layout.Bytes)
	if err == nil {
		_, err = w.Commit()
	}
	return err
}

// renderRows returns the rows in memory as texts, and rows that are objects as rendered prompts.
// It returns nil if the prompts are too large for the record. It also returns nil if a row
// is an object and the results must contain the object's values.
func (k *rowSpool) renderRows(prompt *function.Prompt) ([]string, error) {
	texts, size, objects := make([]string, len(k.rows)), int64(0), false
	for i, row := range k.rows {
		if row[0] == '"' {
			if err := json.Unmarshal([]byte(row), &texts[i]); err != nil {
				return nil, fmt.Errorf("decode a string that the scanner has checked: %w", err)
			}
			continue
		}
		objects = true
		fields, err := function.ParseRow([]byte(row))
		if err != nil {
			return nil, err
		}
		values, _ := prompt.Values(fields)
		length := prompt.Size(values)
		if length > int64(k.maxRow) {
			return nil, rowmill.Invalid(fmt.Sprintf("%s[%d]", fieldInputs, i), "makes a prompt of %d bytes; a prompt may have at most %d, so shorten the values", length, k.maxRow)
		}
		if size += length; size <= int64(k.maxInline) {
			texts[i] = prompt.Render(values)
		}
	}
	if size > int64(k.maxInline) || objects && !k.run {
		return nil, nil
	}
	return texts, nil
}
