package submission

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/rowmill/rowmill/input/function"
)

// rowFacts has facts about the rows of a submission, for checks after all fields were
// read. The model decides whether rows may be objects, and with which fields, but the
// body may contain the model after the rows. So rowFacts keeps the facts that are
// needed to check the rows for any Function. Its memory is limited by the size of the
// first object.
type rowFacts struct {
	bad  []badRow // first rows that are invalid for every model, at most maxReported
	more int      // number of further invalid rows

	objects      int64            // number of rows that are objects
	first        []int64          // indexes of the first rows that are objects, at most maxReported
	all          map[string]bool  // names of the fields that all objects so far have
	firstLacking map[string]int64 // other fields of the first object 	 index of the first row without the field
}

type badRow struct {
	index   int64
	problem string
}

// addBad adds a row that is invalid for every model.
func (r *rowFacts) addBad(index int64, format string, args ...any) {
	if len(r.bad) < maxReported {
		r.bad = append(r.bad, badRow{index, fmt.Sprintf(format, args...)})
	} else {
		r.more++
	}
}

// addObject adds the facts about a row that is an object.
func (r *rowFacts) addObject(index int64, raw []byte) error {
	row, err := function.ParseRow(raw)
	if err != nil {
		return fmt.Errorf("decode an object that the scanner has checked: %w", err)
	}
	if r.objects == 0 {
		r.all, r.firstLacking = make(map[string]bool, len(row)), map[string]int64{}
		for name := range row {
			r.all[name] = true
		}
	}
	for name := range r.all {
		if _, there := row[name]; !there {
			delete(r.all, name)
			r.firstLacking[name] = index
		}
	}
	if len(r.first) < maxReported {
		r.first = append(r.first, index)
	}
	r.objects++
	return nil
}

// firstRowLacking returns the index of the first row that is an object without the field.
// found is false if there is no such row.
func (r *rowFacts) firstRowLacking(field string) (row int64, found bool) {
	if r.objects == 0 || r.all[field] {
		return 0, false
	}
	if row, known := r.firstLacking[field]; known {
		return row, true
	}
	return r.first[0], true
}

// checkRows adds the invalid rows to the problems of the submission. Rows may be objects only
// if they fill a prompt. A row that is a string is a prompt already; with the field prompt
// it is probably a mistake.
func (sub *Submission) checkRows(job *CheckedJob) {
	bad, more := slices.Clone(sub.seen.bad), sub.seen.more
	_, hasPrompt := sub.fields[fieldPrompt]
	if job.prompt == nil && !hasPrompt && job.Spec.Model.ID != "" { // an unknown model may be the misspelt name of a Function
		for _, index := range sub.seen.first {
			bad = append(bad, badRow{index, "is an object; every row must be a string (only prompt and a Function accept objects)"})
		}
		more += int(sub.seen.objects) - len(sub.seen.first)
	}
	if job.prompt != nil {
		for _, in := range job.prompt.Inputs() {
			if row, lacks := sub.seen.firstRowLacking(in.Name); in.Required && lacks {
				bad = append(bad, badRow{row, fmt.Sprintf("has no field %q, which the prompt requires", in.Name)})
			}
		}
	}
	if job.prompt != nil && job.call == nil && sub.inline && sub.seen.objects < sub.rows.count {
		sub.problems.Add(fieldInputs, "has rows that are strings; with prompt each row must be an object with the columns that prompt names")
	}
	slices.SortStableFunc(bad, func(a, b badRow) int { return cmp.Compare(a.index, b.index) })
	more += max(0, len(bad)-maxReported)
	for _, row := range bad[:min(len(bad), maxReported)] {
		sub.problems.Add(fmt.Sprintf("%s[%d]", fieldInputs, row.index), "%s", row.problem)
	}
	if more > 0 {
		sub.problems.Add(fieldInputs, "has %d further bad rows", more)
	}
}

// readRows reads the array of rows after its opening bracket, and stores the rows.
func (sub *Submission) readRows(s *jsonScanner) error {
	refuse := func(index int64, format string, args ...any) {
		sub.seen.addBad(index, format, args...)
		sub.rows.discardRows() // no job will be created, so its rows are not needed
	}
	index := int64(0)
	for ; ; index++ {
		b, err := s.nextNonSpace()
		if err != nil {
			return err
		}
		if b == ']' {
			break
		}
		if index > 0 {
			if b != ',' {
				return s.syntaxError("a comma or ] must follow row %d", index-1)
			}
			if b, err = s.nextNonSpace(); err != nil {
				return err
			}
		}
		switch b {
		case '"':
			err = sub.readStringRow(s, index)
		case '{':
			err = sub.readObjectRow(s, index)
		default:
			if _, err = s.readValue(b, maxFieldBytes); err == nil || errors.Is(err, errTooLong) {
				err = nil
				refuse(index, "is %s; every row must be a string, or for a Function an object", jsonTypeName(b))
			}
		}
		if errors.Is(err, errTooLong) {
			err = nil
			refuse(index, "is longer than %d bytes; shorten or split the row", sub.rows.maxRow)
		}
		if err != nil {
			return err
		}
	}
	if index == 0 {
		sub.problems.Add(fieldInputs, "is empty; send at least one row")
	}
	return nil
}

// readStringRow reads a row that is a string, after its opening quote.
func (sub *Submission) readStringRow(s *jsonScanner, index int64) error {
	raw, err := s.readString(sub.rows.maxRow)
	if err != nil {
		return err
	}
	if err := sub.rows.addStringRow(raw); err != nil {
		return fmt.Errorf("store row %d of a submission: %w", index, err)
	}
	return nil
}

// readObjectRow reads a row that is an object, after its opening brace. The size limit of rows
// applies to the JSON text of the object.
func (sub *Submission) readObjectRow(s *jsonScanner, index int64) error {
	raw, err := s.readValue('{', sub.rows.maxRow)
	if err != nil {
		return err
	}
	if err := sub.seen.addObject(index, raw); err != nil {
		return err
	}
	if bytes.IndexByte(raw, '\n') >= 0 { // a line end between values; JSON strings cannot contain it
		var line bytes.Buffer
		if err := json.Compact(&line, raw); err != nil {
			return fmt.Errorf("remove line ends from an object that the scanner has checked: %w", err)
		}
		raw = line.Bytes()
	}
	if err := sub.rows.addJSONRow(raw); err != nil {
		return fmt.Errorf("store row %d of a submission: %w", index, err)
	}
	return nil
}

// jsonTypeName returns the name of a JSON value's type for an error message. first is the
// first byte of the value.
func jsonTypeName(first byte) string {
	switch first {
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}
