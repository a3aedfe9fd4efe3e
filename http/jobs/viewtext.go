package jobs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/internal/spelling"
)

// append appends exactly the JSON that exchange.Encode writes, without the line end. It
// exists because encoding/json took most of the time of a page with 100 jobs.
func (v *View) append(to []byte) ([]byte, error) {
	w := textWriter{to: append(to, '{')}
	w.string("job_id", v.ID)
	w.string("status", string(v.Status))
	w.string("run_type", string(v.RunType))
	w.string("model", v.Model)
	w.int("job_priority", int64(v.Priority))
	w.text("name", v.Name)
	w.text("description", v.Description)
	w.text("system_prompt", v.System)
	w.rare("json_schema", v.Schema, v.Schema != nil)
	w.members("sampling_params", v.Sampling)
	w.time("datetime_created", &v.Created)
	w.time("datetime_started", v.Started)
	w.time("datetime_completed", v.Completed)
	w.count("num_rows", v.NumRows)
	w.count("input_tokens", v.InputTokens)
	w.count("output_tokens", v.OutputTokens)
	w.rare("failure_reason", v.FailureReason, v.FailureReason != nil)
	w.int("rows_done", v.RowsDone)
	w.int("failed_rows", v.FailedRows)
	w.int("truncated_rows", v.TruncatedRows)
	w.int("truncated_outputs", v.TruncatedOutputs)
	w.int("rows_taken_over", v.RowsTakenOver)
	w.int("deduplicated_rows", v.DeduplicatedRows)
	w.texts("warnings", v.Warnings)
	w.string("message", v.Message)
	if v.ParkedUntil != nil {
		w.time("parked_until", v.ParkedUntil)
	}
	w.text("continues", v.Continues)
	w.text("continued_by", v.ContinuedBy)
	w.text("key_id", v.KeyID)
	w.rare("function", v.Function, v.Function != nil)
	w.decimal("job_cost", v.JobCost)
	w.decimal("cost_estimate", v.CostEstimate)
	w.rare("estimate", v.Estimate, v.Estimate != nil)
	w.to[len(w.to)-1] = '}' // replaces the last comma
	return w.to, w.err
}

// A textWriter appends members of an object, each followed by a comma. Names must not
// need escapes.
type textWriter struct {
	to  []byte
	err error // the first error
}

func (w *textWriter) name(name string) {
	w.to = append(append(append(w.to, '"'), name...), `":`...)
}

func (w *textWriter) end() { w.to = append(w.to, ',') }

func (w *textWriter) string(name, value string) { w.text(name, &value) }

func (w *textWriter) text(name string, value *string) {
	w.name(name)
	w.to = appendText(w.to, value)
	w.end()
}

func (w *textWriter) texts(name string, values []string) {
	w.name(name)
	if values == nil {
		w.to = append(w.to, "null,"...)
		return
	}
	w.to = append(w.to, '[')
	for i := range values {
		if i > 0 {
			w.to = append(w.to, ',')
		}
		w.to = appendText(w.to, &values[i])
	}
	w.to = append(w.to, "],"...)
}

func (w *textWriter) int(name string, value int64) { w.count(name, &value) }

func (w *textWriter) count(name string, value *int64) {
	w.name(name)
	if value == nil {
		w.to = append(w.to, "null"...)
	} else {
		w.to = strconv.AppendInt(w.to, *value, 10)
	}
	w.end()
}

func (w *textWriter) decimal(name string, value *exchange.Decimal) {
	w.name(name)
	if value == nil {
		w.to = append(w.to, "null"...)
	} else {
		w.to = spelling.AppendDecimal(w.to, float64(*value), 64)
	}
	w.end()
}

// time writes a time. Years with more than four digits have no form in JSON.
func (w *textWriter) time(name string, at *time.Time) {
	w.name(name)
	if at == nil {
		w.to = append(w.to, "null"...)
	} else {
		w.to = append(at.AppendFormat(append(w.to, '"'), time.RFC3339Nano), '"')
	}
	w.end()
}

// members writes a map, sorted by name.
func (w *textWriter) members(name string, values map[string]any) {
	w.name(name)
	if values == nil {
		w.to = append(w.to, "null,"...)
		return
	}
	w.to = append(w.to, '{')
	var room [16]string
	names := slices.AppendSeq(room[:0], maps.Keys(values))
	slices.Sort(names)
	for i, name := range names {
		if i > 0 {
			w.to = append(w.to, ',')
		}
		w.to = append(appendText(w.to, &name), ':')
		switch v := values[name].(type) {
		case json.Number:
			w.to = append(w.to, v...)
		case string:
			w.to = appendText(w.to, &v)
		case bool:
			w.to = strconv.AppendBool(w.to, v)
		default:
			w.any(v)
		}
	}
	w.to = append(w.to, "},"...)
}

// rare writes a member that is null for most jobs.
func (w *textWriter) rare(name string, value any, there bool) {
	w.name(name)
	if there {
		w.any(value)
	} else {
		w.to = append(w.to, "null"...)
	}
	w.end()
}

func (w *textWriter) any(value any) {
	var err error
	if w.to, err = appendAny(w.to, value); err != nil && w.err == nil {
		w.err = fmt.Errorf("encode a job: %w", err)
	}
}

// appendText appends a text as JSON; nil becomes null.
func appendText(to []byte, text *string) []byte {
	if text == nil {
		return append(to, "null"...)
	}
	return spelling.AppendString(to, []byte(*text))
}

// appendAny appends the JSON that exchange.Encode writes, without the line end.
func appendAny(to []byte, value any) ([]byte, error) {
	text, err := exchange.Encode(value)
	return append(to, bytes.TrimSuffix(text, []byte("\n"))...), err
}
