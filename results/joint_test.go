package results

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill/internal/columnar"
	"github.com/rowmill/rowmill/internal/must"
)

// TestWriteJoint joins the results of jobs on one input, for all kinds of results: the input once,
// and the output of each job under a name of its own.
func TestWriteJoint(t *testing.T) {
	t.Parallel()
	const rows = 3000
	for name, s := range schemas() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entries := sampleEntries(s, 0, rows)
			kept, columns := keptOf(t, rows)
			var wide bytes.Buffer
			must.Succeed(t, WriteWide(t.Context(), &wide, WideSource{Full: fullOf(t, s, entries), Rows: rowsOf(t, s, entries), Kept: kept}))
			second, third := s, Schema{JobID: "job-3", Model: s.Model, Output: "inputs of 3"}
			second.JobID = "job-2" // may have the output column of the first job
			texts := sampleEntries(third, 0, rows)
			var out bytes.Buffer
			must.Succeed(t, WriteJoint(t.Context(), &out, []JointFile{
				{s.JobID, bytes.NewReader(wide.Bytes())}, {second.JobID, fullOf(t, second, entries)}, {third.JobID, fullOf(t, third, texts)},
			}))
			file := bytes.NewReader(out.Bytes())
			table := must.Get(columnar.OpenTable(file, file.Size()))(t)
			var want []string
			for _, c := range columns {
				if c.Name != s.IDColumn {
					want = append(want, c.Name)
				}
			}
			if s.IDColumn != "" {
				want = append(want, s.IDColumn)
			}
			want = append(append(want, columnInputs), s.Fields...)
			outputs := []string{s.OutputName(), second.OutputName(), "inputs of 3"}
			if s.Output != "" {
				outputs = []string{s.JobID, second.JobID, "inputs of 3"}
			}
			if diff := cmp.Diff(append(want, outputs...), namesOf(table.Columns())); diff != "" {
				t.Fatalf("the columns (-want +got):\n%s", diff)
			}
			check := func(column string, from Source, of Schema) {
				t.Helper()
				shown := of
				shown.JobID, shown.Output, shown.IDColumn, shown.IDType, shown.Fields = column, "", "", Schema{}.IDType, nil
				shown.Kept = nil
				got, want := rowsOfJSON(t, file, shown, FileVariant{}), rowsOfJSON(t, from, of, FileVariant{})
				if _, found := want[0][of.OutputName()]; !found || len(got) != rows {
					t.Fatalf("%d rows, the first is %v", len(got), want[0])
				}
				for i := range want {
					if !reflect.DeepEqual(got[i][column], want[i][of.OutputName()]) {
						t.Fatalf("row %d of %s is %v, want %v", i, column, got[i][column], want[i][of.OutputName()])
					}
				}
			}
			check(outputs[0], fullOf(t, s, entries), s)
			check(outputs[1], fullOf(t, second, entries), second)
			check(outputs[2], fullOf(t, third, texts), third)

			err := WriteJoint(t.Context(), &out, []JointFile{{s.JobID, fullOf(t, s, entries)}, {"job-3", fullOf(t, third, texts[:7])}})
			if err == nil || !strings.Contains(err.Error(), "3000 rows and job job-3 has 7") {
				t.Errorf("files of different lengths give %v", err)
			}
		})
	}
}
