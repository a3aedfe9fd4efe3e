package redis

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/document"
	"github.com/rowmill/rowmill/store"
)

// Fields are the fields of a job's hash that make its record. Numbers are
// decimals.
type fields map[string]string

var (
	// jobFields make the public record.
	jobFields = []string{"head", "system", "schema", "status", "rows", "failed", "cut_inputs", "cut_outputs", "input", "output", "copied"}
	// endFields are set as the job ends.
	endFields = []string{"ended"}
	// trialFields are set by claims, and taken away once more of the job is done.
	trialFields = []string{"adopters"}
	// eventFields tell what happened to a job: a line of JSON for each event.
	eventFields = []string{"events"}
	// stateFields are further ones that scripts change.
	stateFields = []string{"version", "session", "epoch", "reserved"}
	// specFields make the specification, which changes with its job's data alone.
	specFields = []string{"spec", "spec_system", "spec_schema", "inline"}

	recordFields = slices.Concat(jobFields, endFields, trialFields, eventFields, stateFields, specFields)
	// headFields make what clients see of the record.
	headFields = append(slices.Clip(jobFields), "account")
)

// A head is what is left of a record in its field "head".
type head struct {
	store.Record
	Spec *struct{} `json:"spec,omitempty"` // hides the record's
}

// encode takes a record apart. What it does not know of the fields before, nil
// for none, stays.
func encode(rec store.Record, before fields) (fields, error) {
	j := rec.Job
	f := fields{
		"status": string(j.Status), "session": rec.Session, "schema": string(j.Schema),
		"version": decimal(rec.Version), "epoch": decimal(rec.Epoch), "reserved": decimal(int64(rec.Reserved)),
		"rows": decimal(j.RowsDone), "failed": decimal(j.FailedRows),
		"cut_inputs": decimal(j.TruncatedRows), "cut_outputs": decimal(j.TruncatedOutputs), "copied": decimal(j.DeduplicatedRows),
		"spec_system": rec.Spec.System, "spec_schema": string(rec.Spec.Schema), "inline": writeRows(rec.Spec.Inline),
	}
	if j.System != nil {
		f["system"] = "=" + *j.System // empty is not null
	}
	if j.InputTokens != nil {
		f["input"] = decimal(*j.InputTokens)
	}
	if j.OutputTokens != nil {
		f["output"] = decimal(*j.OutputTokens)
	}
	if rec.Ended != nil {
		f["ended"] = decimal(rec.Ended.UnixNano())
	}
	if len(rec.Adopters) > 0 {
		raw, err := document.Rewrite([]byte(before["adopters"]), rec.Adopters)
		if err != nil {
			return nil, fmt.Errorf("encode the adopters: %w", err)
		}
		f["adopters"] = string(raw)
	}
	events, err := writeEvents(rec.Events, before["events"])
	if err != nil {
		return nil, fmt.Errorf("encode the events: %w", err)
	}
	if events != "" {
		f["events"] = events
	}
	small := rec.Spec
	small.System, small.Schema, small.Inline = "", nil, nil
	spec, err := document.Rewrite([]byte(before["spec"]), small)
	if err != nil {
		return nil, fmt.Errorf("encode the specification: %w", err)
	}
	f["spec"] = string(spec)
	rec.Job.Status, rec.Job.System, rec.Job.Schema = "", nil, nil
	rec.Job.RowsDone, rec.Job.FailedRows, rec.Job.TruncatedRows, rec.Job.TruncatedOutputs = 0, 0, 0, 0
	rec.Job.DeduplicatedRows, rec.Job.InputTokens, rec.Job.OutputTokens = 0, nil, nil
	rec.Version, rec.Session, rec.Epoch, rec.Reserved, rec.Ended, rec.Adopters, rec.Events = 0, "", 0, 0, nil, nil, nil
	raw, err := document.Rewrite([]byte(before["head"]), head{Record: rec})
	if err != nil {
		return nil, fmt.Errorf("encode the record: %w", err)
	}
	f["head"] = string(raw)
	return f, nil
}

// whole returns store.ErrForgotten where the fields lack what was acknowledged to
// the writer of a context.
func (f fields) whole(ctx context.Context, jobID string) error {
	w := store.WriterOf(ctx)
	n, err := strconv.ParseInt(cmp.Or(f[writerField+w.Name()], "0"), 10, 64)
	if err != nil {
		return fmt.Errorf("the number of writes of %s: %w", w.Name(), err)
	}
	return w.Check(jobID, n)
}

// record puts the whole record together.
func (f fields) record() (store.Record, error) {
	rec, err := f.header()
	if err != nil {
		return rec, err
	}
	if err := document.Decode(f["spec"], &rec.Spec); err != nil {
		return rec, fmt.Errorf("decode the specification of job %s: %w", rec.Job.ID, err)
	}
	rec.Spec.System = f["spec_system"]
	if schema := f["spec_schema"]; schema != "" {
		rec.Spec.Schema = json.RawMessage(schema)
	}
	if rec.Spec.Inline, err = readRows(f["inline"]); err != nil {
		return rec, fmt.Errorf("decode the rows of job %s: %w", rec.Job.ID, err)
	}
	return rec, nil
}

// header is the record without its specification.
func (f fields) header() (store.Record, error) {
	var h head
	if err := document.Decode(f["head"], &h); err != nil {
		return h.Record, fmt.Errorf("decode a job's record: %w", err)
	}
	rec := h.Record
	rec.Job.Status, rec.Session = rowmill.Status(f["status"]), f["session"]
	if system, set := strings.CutPrefix(f["system"], "="); set {
		rec.Job.System = &system
	}
	if schema := f["schema"]; schema != "" {
		rec.Job.Schema = json.RawMessage(schema)
	}
	var broken error
	number := func(name string) int64 {
		n, err := strconv.ParseInt(f[name], 10, 64)
		if err != nil && f[name] != "" {
			broken = fmt.Errorf("decode the record of job %s: field %s: %w", rec.Job.ID, name, err)
		}
		return n
	}
	rec.Job.RowsDone, rec.Job.FailedRows = number("rows"), number("failed")
	rec.Job.TruncatedRows, rec.Job.TruncatedOutputs = number("cut_inputs"), number("cut_outputs")
	rec.Job.DeduplicatedRows = number("copied")
	if _, known := f["input"]; known {
		n := number("input")
		rec.Job.InputTokens = &n
	}
	if _, known := f["output"]; known {
		n := number("output")
		rec.Job.OutputTokens = &n
	}
	if _, known := f["ended"]; known {
		at := time.Unix(0, number("ended")).UTC()
		rec.Ended = &at
	}
	if text := f["adopters"]; text != "" {
		if err := document.Decode(text, &rec.Adopters); err != nil {
			return rec, fmt.Errorf("decode the adopters of job %s: %w", rec.Job.ID, err)
		}
	}
	if text := f["events"]; text != "" {
		if err := document.Decode(listed(text), &rec.Events); err != nil {
			return rec, fmt.Errorf("decode the events of job %s: %w", rec.Job.ID, err)
		}
	}
	rec.Version, rec.Epoch, rec.Reserved = number("version"), number("epoch"), rowmill.Money(number("reserved"))
	return rec, broken
}

// listed is a JSON list of what stands a line each.
func listed(lines string) string { return "[" + strings.ReplaceAll(lines, "\n", ",") + "]" }

// writeEvents writes events a line each, so that scripts need not read them, and
// keeps what it does not know of those before.
func writeEvents(events []store.Event, before string) (string, error) {
	if len(events) == 0 {
		return "", nil
	}
	raw, err := document.Rewrite([]byte(listed(before)), events)
	if err != nil {
		return "", err
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return "", err
	}
	lines := make([]string, len(list))
	for i, e := range list {
		lines[i] = string(e)
	}
	return strings.Join(lines, "\n"), nil
}

// collect pairs names with the values of an HMGET. It returns nil where there
// is no such hash.
func collect(names []string, values []any) fields {
	f := fields{}
	for i, name := range names {
		if i >= len(values) {
			break
		}
		if text, ok := values[i].(string); ok {
			f[name] = text
		}
	}
	if len(f) == 0 {
		return nil
	}
	return f
}

// pairs lists names and values for an HSET.
func (f fields) pairs() []any {
	var list []any
	for _, name := range recordFields {
		if value, set := f[name]; set {
			list = append(list, name, value)
		}
	}
	return list
}

// changes lists what differs of f from before, and must be taken out of it.
func (f fields) changes(before fields) (set []any, unset []any) {
	for _, name := range slices.Concat(jobFields, endFields, trialFields, eventFields, specFields) {
		value, has := f[name]
		old, had := before[name]
		switch {
		case has && (!had || old != value):
			set = append(set, name, value)
		case had && !has:
			unset = append(unset, name)
		}
	}
	return set, unset
}

// sameSpec reports whether both have the same specification.
func (f fields) sameSpec(before fields) (bool, error) {
	differs := func(name string) bool { return f[name] != before[name] }
	if !slices.ContainsFunc(specFields, differs) {
		return true, nil
	}
	// What another version wrote may say the same in another order.
	rec, err := before.record()
	if err != nil {
		return false, err
	}
	before, err = encode(rec, f)
	return err == nil && !slices.ContainsFunc(specFields, differs), err
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// writeRows puts rows one after the other, each behind its length as a
// uvarint: bytes as they came, and read back in one pass.
func writeRows(rows []string) string {
	var out bytes.Buffer
	var length [binary.MaxVarintLen64]byte
	for _, row := range rows {
		out.Write(length[:binary.PutUvarint(length[:], uint64(len(row)))])
		out.WriteString(row)
	}
	return out.String()
}

func readRows(raw string) ([]string, error) {
	var rows []string
	for raw != "" {
		length, n := binary.Uvarint([]byte(raw[:min(len(raw), binary.MaxVarintLen64)]))
		if n <= 0 || length > uint64(len(raw)-n) {
			return nil, errors.New("they are cut off")
		}
		end := n + int(length)
		rows = append(rows, raw[n:end])
		raw = raw[end:]
	}
	return rows, nil
}

// orderDigits is the length of a time in an order.
const orderDigits = 16

// order sorts an account's jobs by creation, then id: nanoseconds since 1970
// with the sign bit flipped, in hexadecimal, and the id.
func order(created time.Time, id string) string {
	return fmt.Sprintf("%0*x%s", orderDigits, uint64(created.UnixNano())^(1<<63), id)
}
