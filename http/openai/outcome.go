package openai

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/spelling"
	"github.com/rowmill/rowmill/store"
)

// A batch that is over leaves two files: the answers, and what has none. Both are
// artifacts of its job, made when somebody first looks at it, with records by
// which they are listed. The artifact finalName is recorded when all that is done.
const (
	outcomeOutput = "output.jsonl"
	outcomeErrors = "errors.jsonl"
	finalName     = "files-of-batch"
)

// outcomeID is the id of a file of a batch: whoever makes it comes to the same. It
// sorts by the time of the batch.
func outcomeID(jobID, name string) string {
	hexID := strings.ReplaceAll(strings.TrimPrefix(jobID, prefixJob), "-", "")
	sum := sha256.Sum256([]byte(jobID + "/" + name))
	return prefixFile + hexID[:12] + hex.EncodeToString(sum[:])[:digits-12]
}

func finalized(record store.Record) bool {
	_, made := record.Artifacts[finalName]
	return made || record.DataRemoved != nil
}

// left says which files a batch that is over leaves.
type left struct{ output, errors bool }

func leftOf(record store.Record) left {
	job := record.Job
	if record.DataRemoved != nil || job.NumRows == nil || !record.Counted() {
		return left{}
	}
	return left{output: job.RowsDone > job.FailedRows, errors: job.FailedRows > 0 || *job.NumRows > job.RowsDone}
}

// finalize has the files of a batch made, and returns its record as it is then.
// Whoever asks meanwhile waits for the same.
func (d *Dialect) finalize(ctx context.Context, record store.Record) (store.Record, error) {
	made, err := d.make(context.WithoutCancel(ctx), record)
	switch {
	case errors.Is(err, archive.ErrRemoved):
		now := d.Now()
		record.DataRemoved = &now
		return record, nil
	case errors.Is(err, archive.ErrBusy):
		return record, nil // it is finalizing
	}
	return made, err
}

// make makes the files of a batch and the records of them.
func (d *Dialect) make(ctx context.Context, record store.Record) (store.Record, error) {
	leaves := leftOf(record)
	until, err := d.expiry(ctx, record)
	if err != nil {
		return record, err
	}
	final := store.Artifact{Key: layout.Spooled(record.Job.ID)}
	for _, one := range []struct {
		name  string
		there bool
		write func(*lineWriter, *rowmill.Row, *rowmill.Output) error
	}{
		{outcomeOutput, leaves.output, (*lineWriter).answered},
		{outcomeErrors, leaves.errors, (*lineWriter).unanswered},
	} {
		if !one.there {
			continue
		}
		made, err := d.Archive.Lines(ctx, record, one.name, func(w io.Writer, each func(results.Visit) error) error {
			lines := newLineWriter(w, record)
			return errors.Join(each(func(row *rowmill.Row, out *rowmill.Output) error { return one.write(lines, row, out) }), lines.w.Flush())
		})
		if err != nil {
			return record, err
		}
		f := store.File{
			ID: outcomeID(record.Job.ID, one.name), Account: record.Spec.Account, Purpose: purposeOutput,
			Name: batchID(record.Job.ID) + "_" + one.name, Size: made.Size, Created: *record.Job.Completed, Expires: until, Key: made.Key, Job: record.Job.ID,
		}
		// Who began this before may have found another retention: its record stands.
		if err := d.record(ctx, f); err != nil && !errors.Is(err, rowmill.ErrConflict) {
			return record, err
		}
		final = made
	}
	return d.Store.AddArtifact(ctx, record.Job.ID, finalName, final)
}

// expiry is when the files of a batch expire: as was asked, else with the results of
// its job as its account keeps them now; nil for never.
func (d *Dialect) expiry(ctx context.Context, record store.Record) (*time.Time, error) {
	ended := record.Job.Completed.UTC().Truncate(time.Second)
	if seconds := record.Spec.Raw.OutputSeconds; seconds > 0 {
		ended = ended.Add(time.Duration(seconds) * time.Second)
		return &ended, nil
	}
	settings, _, err := store.LoadSettings(ctx, d.Store, record.Spec.Account)
	if err != nil || settings.RetentionDays == nil {
		return nil, err
	}
	ended = ended.AddDate(0, 0, *settings.RetentionDays)
	return &ended, nil
}

// A lineWriter writes the lines of a batch's files, their requests in the order of
// the input.
type lineWriter struct {
	w      *bufio.Writer
	batch  string // hexadecimal digits
	why    notRun
	buffer []byte
}

// notRun is what is said of a request that did not run.
type notRun struct{ code, message string }

func newLineWriter(w io.Writer, record store.Record) *lineWriter {
	l := &lineWriter{w: bufio.NewWriterSize(w, 64<<10), batch: strings.TrimPrefix(batchID(record.Job.ID), prefixBatch)}
	switch reason := record.Job.FailureReason; {
	case record.Job.Status == rowmill.StatusCancelled:
		l.why = notRun{"batch_cancelled", "The batch was cancelled before this request was run."}
	case reason != nil && reason.Code == rowmill.CodeWindowExpired:
		l.why = notRun{"batch_expired", "This request could not be executed before the completion window expired."}
	case reason != nil:
		l.why = notRun{reason.Code, "The batch failed before this request was run: " + reason.Message}
	}
	return l
}

// answered writes the line of a request that has an answer; others it passes over.
func (l *lineWriter) answered(row *rowmill.Row, out *rowmill.Output) error {
	if out.Failed() {
		return nil
	}
	l.begin(row)
	l.response(row, 200, out.Text)
	return l.end(append(l.buffer, `,"error":null}`...))
}

// unanswered writes the line of a request that has none; others it passes over.
func (l *lineWriter) unanswered(row *rowmill.Row, out *rowmill.Output) error {
	if !out.Failed() {
		return nil
	}
	l.begin(row)
	text, refused := strings.CutPrefix(out.Err.Code, rowmill.RowHTTP)
	if status, err := strconv.Atoi(text); refused && err == nil {
		body := out.Err.Raw
		if !json.Valid([]byte(body)) { // no JSON, or too long to be kept whole
			made, err := json.Marshal(map[string]any{"error": map[string]any{"message": out.Err.Message, "type": typeInvalid, "param": nil, "code": nil}})
			if err != nil {
				return fmt.Errorf("write the refusal of row %d: %w", row.Index, err)
			}
			body = string(made)
		}
		l.response(row, status, body)
		return l.end(append(l.buffer, `,"error":null}`...))
	}
	why := notRun{out.Err.Code, out.Err.Message}
	if out.Err.Code == rowmill.RowNotRun {
		why = l.why
	}
	b := append(l.buffer, `,"response":null,"error":{"code":`...)
	b = append(spelling.AppendString(b, []byte(why.code)), `,"message":`...)
	return l.end(append(spelling.AppendString(b, []byte(why.message)), `}}`...))
}

// begin begins a line with the ids of a request.
func (l *lineWriter) begin(row *rowmill.Row) {
	b := append(l.buffer[:0], `{"id":"batch_req_`...)
	b = l.number(b, row)
	b = append(b, `","custom_id":`...)
	if row.ID.Kind == rowmill.IDNull {
		b = append(b, "null"...)
	} else {
		b = spelling.AppendString(b, []byte(row.ID.Text))
	}
	l.buffer = b
}

func (l *lineWriter) number(b []byte, row *rowmill.Row) []byte {
	b = append(append(b, l.batch...), '_')
	return strconv.AppendInt(b, row.Index, 10)
}

// response adds a reply, whose body is JSON.
func (l *lineWriter) response(row *rowmill.Row, status int, body string) {
	b := append(l.buffer, `,"response":{"status_code":`...)
	b = append(strconv.AppendInt(b, int64(status), 10), `,"request_id":"req_`...)
	b = append(l.number(b, row), `","body":`...)
	b = append(append(b, body...), '}')
	l.buffer = b
}

// end writes the line. Clients cut files at every character that Unicode calls the
// end of a line, also within strings, where alone they can stand here: they are
// written as escapes. CR and LF do not occur there.
func (l *lineWriter) end(line []byte) error {
	l.buffer = line
	for len(line) > 0 {
		at := bytes.IndexAny(line, lineBreaks)
		if at < 0 {
			break
		}
		r, size := utf8.DecodeRune(line[at:])
		_, _ = l.w.Write(line[:at]) // a bufio.Writer repeats its first error
		_, _ = fmt.Fprintf(l.w, `\u%04x`, r)
		line = line[at+size:]
	}
	_, _ = l.w.Write(line)
	return l.w.WriteByte('\n')
}

// lineBreaks are NEL, LS and PS.
const lineBreaks = "\u0085\u2028\u2029"
