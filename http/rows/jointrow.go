package rows

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/results"
)

// A jointRow is one row of all jobs of a comparison.
type jointRow struct {
	row       int64
	input     *results.PreviewRow // row of the first job that has the row, or nil
	sameInput bool
	outcomes  []outcome // in the order of the jobs
}

// An outcome is what one job made of a row.
type outcome struct {
	status string
	code   string // error code of a failed row
	output any    // whole text without reasoning, or embedding; nil unless the status is done
	value  any    // output to compare: the decoded text if it is JSON
}

// join returns row n of all jobs. columns has rows of each job, and n is at position i.
func (a *comparison) join(ctx context.Context, n int64, columns [][]*results.PreviewRow, i int64) (*jointRow, error) {
	row := &jointRow{row: n, sameInput: true, outcomes: make([]outcome, len(columns))}
	for j, column := range columns {
		found := column[i]
		if found != nil && row.input == nil {
			row.input = found
		} else if found != nil && found.Input != row.input.Input {
			row.sameInput = false
		}
		o, err := a.readOutcome(ctx, j, found)
		if err != nil {
			return nil, err
		}
		o.value = o.output
		if text, isText := o.output.(string); isText && j > 0 && row.outcomes[0].output == o.output {
			o.value = row.outcomes[0].value
		} else if isText {
			o.value = decodeText(text)
		}
		row.outcomes[j] = o
	}
	return row, nil
}

// readOutcome returns the outcome of a row in job j, without a value. It reads the row again if
// the preview shortened the output.
func (a *comparison) readOutcome(ctx context.Context, j int, found *results.PreviewRow) (o outcome, err error) {
	switch {
	case found == nil:
		return outcome{status: rowPending}, nil
	case found.Code != "":
		return outcome{status: rowFailed, code: found.Code}, nil
	}
	o = outcome{status: rowDone, output: found.Output}
	text, isText := found.Output.(string)
	if isText && isShortened(found, text) {
		a.extraReads++
		whole, err := a.ReadRow(ctx, a.records[j], found.Row)
		if err != nil {
			return o, err
		}
		text, _ = whole.Output.(string)
	}
	if isText {
		o.output = results.WithoutReasoning(text)
	}
	return o, nil
}

// isShortened reports whether a preview shortened one of its texts.
func isShortened(row *results.PreviewRow, text string) bool {
	return row.Cut && len(text) > results.PreviewText-utf8.UTFMax
}

// decodeText returns the decoded JSON value of a text, or the text if it is not JSON.
func decodeText(text string) any {
	in := json.NewDecoder(strings.NewReader(text))
	in.UseNumber()
	var value any
	if in.Decode(&value) != nil {
		return text
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) { // more text follows the value
		return text
	}
	return unifyNumbers(value)
}

// unifyNumbers replaces the numbers in a decoded JSON value, so that equal numbers have equal
// Go values: an int64 if the number is whole, else a float64.
func unifyNumbers(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			value[name] = unifyNumbers(member)
		}
	case []any:
		for i, element := range value {
			value[i] = unifyNumbers(element)
		}
	case json.Number:
		if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
			return n
		}
		f, err := strconv.ParseFloat(string(value), 64)
		switch {
		case err != nil: // the number is too large
			return value
		case f == math.Trunc(f) && math.Abs(f) <= 1<<53:
			return int64(f)
		}
		return f
	}
	return value
}

// isDifferent reports whether two jobs have different outputs. A failed row has no output. Jobs
// in which the row is pending do not count.
func (r *jointRow) isDifferent() bool {
	var first *outcome
	for i := range r.outcomes {
		o := &r.outcomes[i]
		switch {
		case o.status == rowPending:
		case first == nil:
			first = o
		case o.status != first.status || !reflect.DeepEqual(o.value, first.value):
			return true
		}
	}
	return false
}

// view returns the row for an answer, and the size of its texts in bytes.
func (r *jointRow) view(different bool) (view comparedRow, size int) {
	view = comparedRow{Row: r.row, SameInput: r.sameInput, Different: different, Outputs: make([]comparedOutput, len(r.outcomes))}
	if r.input != nil {
		view.Input, view.Cut = &r.input.Input, isShortened(r.input, r.input.Input)
		size += len(r.input.Input)
	}
	for i, o := range r.outcomes {
		shown := comparedOutput{Status: o.status}
		switch output := o.output.(type) {
		case string:
			var short results.PreviewRow
			text := short.ShortenText(output)
			shown.Output, shown.Cut = text, short.Cut
			size += len(text)
		case []float32:
			shown.Output = exchange.ToDecimals(output)
			size += decimalSize * len(output)
		}
		if o.status == rowFailed {
			shown.Code = &r.outcomes[i].code
		}
		view.Outputs[i] = shown
	}
	return view, size
}
