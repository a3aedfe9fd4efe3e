package results

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

// entry is a row with its outcome.
type entry struct {
	row rowmill.Row
	out rowmill.RowOutput
}

// testJob is a job id in the form that the service makes.
const testJob = "job-0190f5b2-7c3e-7d4a-9b1c-3f2e1d0c9b8a"

// writePart writes entries as a part.
func writePart(tb testing.TB, s Schema, entries []entry) *bytes.Reader {
	tb.Helper()
	var file bytes.Buffer
	w := must.Get(NewPartWriter(&file, s))(tb)
	for i := range entries {
		must.Succeed(tb, w.Add(&entries[i].row, &entries[i].out))
	}
	must.Succeed(tb, w.Close())
	return bytes.NewReader(file.Bytes())
}

// sampleEntries returns n rows from row first on, with answers, failures, IDs
// and texts of all kinds. It returns the same rows in every run.
func sampleEntries(s Schema, first int64, n int) []entry {
	texts := []string{
		"plain", "", "with, comma", "two\nlines", "CRLF\r\nkept", `"quoted"`, "tab\tand \x01 control",
		"åäö 漢字 🙂", " padded ", "\u2028", `back\slash`, "null", "=1+1",
	}
	entries := make([]entry, n)
	for i := range entries {
		index := first + int64(i)
		e := &entries[i]
		e.row = rowmill.Row{Index: index, Text: fmt.Sprintf("%s %d", texts[index%int64(len(texts))], index)}
		e.row.ID = sampleID(s.IDKind, index)
		e.out = rowmill.RowOutput{
			Finish: rowmill.FinishStop, InputTokens: index + 1, OutputTokens: 2*index + 1,
			Engine: fmt.Sprintf("127.0.0.1:%d", 8000+index%3), Seconds: float64(index%7) / 8, Attempts: int(1 + index%4),
		}
		if index%7 == 3 {
			e.out.Finish, e.out.Engine = "", ""
			e.out.Err = &rowmill.RowError{Code: rowmill.RowSchemaViolation, Message: fmt.Sprintf("row %d: no", index), Raw: texts[index%int64(len(texts))]}
			continue
		}
		if index%5 == 1 {
			e.out.Finish = rowmill.FinishLength
		}
		if index%4 != 2 {
			e.out.HasScore, e.out.Score = true, float64(index%101)
		}
		if s.Embedding {
			e.out.Embedding = []float32{float32(index), -0.5, 1e-9, float32(index) / 3}[:1+index%4]
			e.out.HasScore, e.out.Score = false, 0
		} else {
			e.out.Text = texts[(index+1)%int64(len(texts))]
		}
	}
	return entries
}

// sampleTries returns attempts at a row, which depend on salt. It returns nil
// for many rows.
func sampleTries(index, salt int64) *rowmill.RowAttempts {
	if (index+salt)%3 != 0 {
		return nil
	}
	began := time.Unix(1_790_000_000+index, salt*1_000_000).UTC()
	var t rowmill.RowAttempts
	for i := range 1 + (index+salt)%11 {
		t.Add(rowmill.Attempt{
			At: began.Add(time.Duration(i) * time.Second), Took: time.Duration(salt+i) * time.Microsecond, Node: "node-1", Engine: fmt.Sprint("gpu", i%2),
			Status: []int{0, 503}[i%2], Code: []string{"timeout", "http_503"}[i%2], Message: strings.Repeat("why ", int(index%100)),
		})
	}
	if index%2 == 0 {
		t.Add(rowmill.Attempt{At: began.Add(time.Minute), Took: time.Second, Node: "node-1", Engine: "gpu0"})
	}
	return &t
}

func sampleID(kind rowmill.IDKind, index int64) rowmill.ID {
	if index%11 == 5 {
		return rowmill.ID{}
	}
	switch kind {
	case rowmill.IDString:
		return rowmill.ID{Kind: kind, Text: []string{"007", "", "a,b"}[index%3] + fmt.Sprint(index)[:min(1, int(index%3))]}
	case rowmill.IDInt:
		return rowmill.ID{Kind: kind, Int: (index - 3) * 1_000_000_007}
	case rowmill.IDUint:
		return rowmill.ID{Kind: kind, Int: -1 - index} // the upper half of uint64
	case rowmill.IDFloat:
		return rowmill.ID{Kind: kind, Real: float64(index) / 4}
	case rowmill.IDBool:
		return rowmill.ID{Kind: kind, Int: index % 2}
	}
	return rowmill.ID{}
}

// schemas returns all combinations of output and ID.
func schemas() map[string]Schema {
	kinds := map[string]rowmill.IDKind{
		"none": rowmill.IDNull, "string": rowmill.IDString, "int": rowmill.IDInt,
		"uint": rowmill.IDUint, "float": rowmill.IDFloat, "bool": rowmill.IDBool,
	}
	all := map[string]Schema{}
	for name, kind := range kinds {
		for _, embedding := range []bool{false, true} {
			s := Schema{JobID: testJob, Model: "gpt-oss-20b", IDType: rowmill.IDType{IDKind: kind}, Embedding: embedding}
			if kind != rowmill.IDNull {
				s.IDColumn = "my id"
			}
			if embedding {
				all[name+"/embedding"] = s
			} else {
				all[name+"/generation"] = s
			}
		}
	}
	return all
}

// variants returns all variants that a client can choose.
func variants() []FileVariant {
	return []FileVariant{{}, {Inputs: true}, {Logprobs: true}, Full}
}
