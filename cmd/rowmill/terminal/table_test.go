package terminal

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

// A table on a terminal never wraps, keeps its first column and no part of a number.
func TestPrintTable(t *testing.T) {
	t.Parallel()
	rows := [][]string{
		{"JOB", "STATUS", "ROWS", "MODEL", "NAME"},
		{"job-0123456789", "failed", "1,000,000/1,000,000", "llama-3.1-8b-instruct", "東京の町"},
		{"job-1", "running", "7/8", "own\x1b[31m", "failed"},
	}
	print := func(width int, colour bool, least ...string) string {
		var out bytes.Buffer
		term := &IO{Out: &out, OutWidth: width, OutColour: colour}
		must.Succeed(t, term.PrintTable(func(row RowWriter) {
			for _, r := range rows {
				row(r...)
			}
		}, least...))
		return out.String()
	}
	for _, test := range []struct {
		name  string
		width int
		least []string
		want  string
	}{
		{"no terminal", 0, nil, `
JOB             STATUS   ROWS                 MODEL                  NAME
job-0123456789  failed   1,000,000/1,000,000  llama-3.1-8b-instruct  東京の町
job-1           running  7/8                  own [31m               failed
`},
		{"wide", 100, nil, `
JOB             STATUS   ROWS                 MODEL                  NAME
job-0123456789  failed   1,000,000/1,000,000  llama-3.1-8b-instruct  東京の町
job-1           running  7/8                  own [31m               failed
`},
		{"shortened", 72, nil, `
JOB             STATUS   ROWS                 MODEL             NAME
job-0123456789  failed   1,000,000/1,000,000  llama-3.1-8b-in…  東京の町
job-1           running  7/8                  own [31m          failed
`},
		{"less important columns", 60, []string{"ABSENT", "MODEL"}, `
JOB             STATUS   ROWS                 NAME
job-0123456789  failed   1,000,000/1,000,000  東京の町
job-1           running  7/8                  failed
`},
		{"last columns", 44, nil, `
JOB             STATUS   ROWS
job-0123456789  failed   1,000,000/1,000,000
job-1           running  7/8
`},
		{"very narrow", 10, nil, `
JOB
job-01234…
job-1
`},
	} {
		if got := print(test.width, false, test.least...); got != test.want[1:] {
			t.Errorf("%s: got\n%s", test.name, got)
		}
	}
	coloured := print(100, true)
	for _, want := range []string{"  \x1b[31mfailed\x1b[0m   1,0", "  \x1b[1;34mrunning\x1b[0m  7/8", "  failed\n"} {
		if !strings.Contains(coloured, want) {
			t.Errorf("no %q in %q", want, coloured)
		}
	}
}

func TestClipByColumns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text  string
		width int
		want  string
	}{{"東京", 4, "東京"}, {"東京", 3, "東…"}, {"東京", 2, "…"}, {"abc", 2, "a…"}, {"abc", 0, "abc"}} {
		if got := clip(test.text, test.width); got != test.want {
			t.Errorf("%q in %d columns: %q, want %q", test.text, test.width, got, test.want)
		}
	}
}
