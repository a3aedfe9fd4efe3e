package batch

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// A ResultFile is a file of lines that is made when a batch has ended. It is an artifact of
// the batch's job.
type ResultFile struct {
	Name string // name of the file, such as "output.jsonl"
	// Line appends the line of a request to b: JSON without a line end. If Line appends
	// nothing, the file has no line for the request.
	Line func(b []byte, row *rowmill.Row, out *rowmill.RowOutput) ([]byte, error)
	// OnComplete is called when the file is complete. OnComplete may be nil.
	OnComplete func(ctx context.Context, made store.Artifact) error
}

// finalName is the name of the artifact that marks a batch as finalized: all of its
// files are made.
const finalName = "files-of-batch"

// IsFinalized reports whether all files of a batch are made, or can never be made because
// the data was removed.
func IsFinalized(record store.Record) bool {
	_, made := record.Artifacts[finalName]
	return made || record.DataRemoved != nil
}

// Finalize makes the files of an ended batch and returns the new record. Concurrent
// callers wait for the same work.
func (b *Batches) Finalize(ctx context.Context, record store.Record) (store.Record, error) {
	if !record.Job.Status.IsTerminal() || IsFinalized(record) {
		return record, nil
	}
	made, err := b.makeFiles(context.WithoutCancel(ctx), record)
	switch {
	case errors.Is(err, archive.ErrRemoved):
		now := b.Now()
		record.DataRemoved = &now
		return record, nil
	case errors.Is(err, archive.ErrBusy):
		return record, nil // the status stays finalizing; a later request tries again
	}
	return made, err
}

// makeFiles makes the files of an ended batch and marks them in the batch's record as
// made.
func (b *Batches) makeFiles(ctx context.Context, record store.Record) (store.Record, error) {
	outcomes, err := b.Outcomes(ctx, record)
	if err != nil {
		return record, err
	}
	final := store.Artifact{Key: layout.SpooledRowsKey(record.Job.ID)}
	for _, one := range outcomes {
		made, err := b.Archive.MakeLinesFile(ctx, record, one.Name, func(w io.Writer, each func(results.RowVisitor) error) error {
			lines := lineFileWriter{w: bufio.NewWriterSize(w, 64<<10)}
			return errors.Join(each(func(row *rowmill.Row, out *rowmill.RowOutput) error { return lines.writeRow(one, row, out) }), lines.w.Flush())
		})
		if err == nil && one.OnComplete != nil {
			err = one.OnComplete(ctx, made)
		}
		if err != nil {
			return record, err
		}
		final = made
	}
	return b.Store.AddArtifact(ctx, record.Job.ID, finalName, final)
}

// lineFileWriter writes the lines of a batch's file.
type lineFileWriter struct {
	w      *bufio.Writer
	buffer []byte
}

// writeRow writes the line of one request to the file that outcome describes. Some clients end a
// line at every character that Unicode calls a line break, also inside strings. So writeRow
// escapes these characters, which occur only in strings. CR and LF need no escape here,
// because JSON strings never contain them.
func (l *lineFileWriter) writeRow(outcome ResultFile, row *rowmill.Row, out *rowmill.RowOutput) (err error) {
	l.buffer, err = outcome.Line(l.buffer[:0], row, out)
	if err != nil {
		return fmt.Errorf("write the line of row %d: %w", row.Index, err)
	}
	line := l.buffer
	if len(line) == 0 {
		return nil
	}
	for {
		at := bytes.IndexAny(line, lineBreaks)
		if at < 0 {
			break
		}
		r, size := utf8.DecodeRune(line[at:])
		_, _ = l.w.Write(line[:at]) // no check: a bufio.Writer returns its first error again at the end
		_, _ = fmt.Fprintf(l.w, `\u%04x`, r)
		line = line[at+size:]
	}
	_, _ = l.w.Write(line)
	return l.w.WriteByte('\n')
}

// lineBreaks has the line breaks of Unicode that JSON strings may contain: NEL, LS and PS.
const lineBreaks = "\u0085\u2028\u2029"

// A NotRunCause is the reason why requests of a batch did not run.
type NotRunCause int

// Causes why requests of a batch did not run.
const (
	Failed    NotRunCause = iota // the job failed; see its failure_reason
	Cancelled                    // a client cancelled the job
	Expired                      // the completion window passed
)

// NotRunCauseOf returns why requests of an ended job did not run.
func NotRunCauseOf(job rowmill.Job) NotRunCause {
	switch {
	case job.Status == rowmill.StatusCancelled:
		return Cancelled
	case job.FailureReason != nil && job.FailureReason.Code == rowmill.CodeWindowExpired:
		return Expired
	}
	return Failed
}

// FailedBefore is the beginning of the error message of a request that did not run
// because its batch failed. The reason of the failure is appended.
const FailedBefore = "The batch failed before this request was run: "

// AppendID appends the custom_id of a request as JSON, or null if the request has none.
func AppendID(b []byte, id rowmill.ID) []byte {
	if id.Kind == rowmill.IDNull {
		return append(b, "null"...)
	}
	return textfmt.AppendString(b, []byte(id.Text))
}
