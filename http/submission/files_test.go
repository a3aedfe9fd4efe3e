package submission

import (
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/input/sources"
	"github.com/rowmill/rowmill/internal/must"
)

// TestCheck_Sources checks which inputs name files of a source. An account without sources gets the
// same error as on a node without sources.
func TestCheck_Sources(t *testing.T) {
	t.Parallel()
	some := sources.New([]sources.Source{
		{Name: "lake", Accounts: []string{"acme", "other"}, Prefixes: []string{"reviews/"}}, {Name: "archive", Accounts: []string{"acme"}},
	})
	const noURL = "the URL's scheme is not supported; give an http or https URL"
	for _, c := range []struct{ account, inputs, more, source, problem string }{
		{account: "acme", inputs: "lake:reviews/day=*/*.csv", source: "lake:reviews/day=*/*.csv"},
		{account: "acme", inputs: "lake:reviews//./**", source: "lake:reviews/**"},
		{account: "acme", inputs: "archive:a.csv", more: `, "prompt": "{{day}} {{b}}", "id_column_name": "id", "keep_columns": "*"`, source: "archive:a.csv"},
		{account: "acme", inputs: "archive:a", more: `, "column_name": "b", "input_format": "csv", "limit": 3`, source: "archive:a"},
		{account: "acme", inputs: "lake:secret/a.csv", problem: "names no files of the source lake: the pattern must begin with a folder that may be read: reviews/"},
		{account: "acme", inputs: "lake:reviews/../secret/a.csv", problem: "the folder .., which is not allowed"},
		{account: "acme", inputs: "pond:a.csv", problem: `names the source "pond", which does not exist; your account can read archive, lake`},
		{account: "other", inputs: "archive:a.csv", problem: `names the source "archive", which does not exist; your account can read lake`},
		{account: "none", inputs: "lake:reviews/a.csv", problem: noURL},
		{account: "acme", inputs: "s3://bucket/a.csv", problem: "s3:// addresses are not accepted"},
		{account: "acme", inputs: "lake://reviews/a.csv", problem: noURL},
		{account: "acme", inputs: "lake:reviews/a.csv", more: `, "where": "answer = 1"`, problem: "is only for inputs of the form job:JOB"},
	} {
		w := setup(t, func(in *Parser) { in.Sources = some })
		sub := must.Get(w.Read(t.Context(), strings.NewReader(`{"inputs": "`+c.inputs+`"`+c.more+`}`)))(t)
		job, err := sub.Check(t.Context(), c.account)
		switch {
		case c.problem != "":
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%s for %s: got %v, want %q", c.inputs, c.account, err, c.problem)
			}
		case err != nil || job.Spec.Source != c.source || job.Spec.URL != "" || job.ToRecord(time.Now()).Job.NumRows != nil:
			t.Errorf("%s: source %q, URL %q, %v", c.inputs, job.Spec.Source, job.Spec.URL, err)
		}
		sub.Close()
	}
	setup(t).wantField(`{"inputs": "lake:a.csv"}`, "inputs", noURL)
}

// TestCheck_Sink checks which folders may get the results, and which jobs may have one.
func TestCheck_Sink(t *testing.T) {
	t.Parallel()
	some := sources.New([]sources.Source{{Name: "lake", Accounts: []string{"acme"}, Writable: true}, {Name: "sea"}})
	for _, c := range []struct{ account, inputs, output, more, folder, base, column, problem string }{
		{account: "acme", inputs: `"sea:in/day=*/a.csv"`, output: "lake:out//x", folder: "lake:out/x/", base: "in/", column: "answer"},
		{account: "acme", inputs: `["a"]`, output: "lake:", more: `, "output_name": "label"`, folder: "lake:", column: "label"},
		{account: "acme", inputs: `["a"]`, output: "sea:out/", problem: "must be a folder of a source, such as lake:answers/; your account can write to lake"},
		{account: "acme", inputs: `["a"]`, output: "lake:../out/", problem: "the folder must be the path of a folder"},
		{account: "other", inputs: `["a"]`, output: "lake:out/", problem: "your account can write to no source"},
		{account: "acme", inputs: `["a"]`, output: "lake:out/", more: `, "limit": 1`, problem: "leave limit out"},
		{account: "acme", inputs: `["a"]`, output: "lake:out/", more: `, "cost_estimate": true`, problem: "is not for estimates"},
	} {
		w := setup(t, func(in *Parser) { in.Sources = some })
		sub := must.Get(w.Read(t.Context(), strings.NewReader(`{"inputs": `+c.inputs+`, "output": "`+c.output+`"`+c.more+`}`)))(t)
		job, err := sub.Check(t.Context(), c.account)
		switch {
		case c.problem != "":
			if err == nil || !strings.Contains(err.Error(), "output") || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%s for %s: got %v, want %q", c.output, c.account, err, c.problem)
			}
		case err != nil || *job.Spec.Sink != (rowmill.Sink{Folder: c.folder, Base: c.base}) || job.Spec.Output != c.column || job.ToRecord(time.Now()).Job.Output != c.folder:
			t.Errorf("%s: %v", c.output, err)
		}
		sub.Close()
	}
}
