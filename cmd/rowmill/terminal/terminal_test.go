package terminal

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds int, done, total int64) ProgressSnapshot {
	return ProgressSnapshot{
		Now: start.Add(time.Duration(seconds) * time.Second), Phase: "running", Unit: "rows",
		Done: done, Total: total, Tokens: done * 50,
	}
}

func TestRender(t *testing.T) {
	t.Parallel()
	failed := at(10, 2_000, 10_000)
	failed.Failed = 3
	for _, test := range []struct {
		name  string
		s     ProgressSnapshot
		since ProgressSnapshot
		width int
		want  string
	}{
		{
			"waiting",
			ProgressSnapshot{Phase: "starting", Note: "waiting for a server of gpt-oss-20b", Total: -1},
			ProgressSnapshot{},
			80,
			"starting  waiting for a server of gpt-oss-20b",
		},
		{"waiting, narrow", ProgressSnapshot{Phase: "starting", Note: "waiting for a server", Total: -1}, ProgressSnapshot{}, 15, "starting  wait…"},
		{"first", at(0, 0, 10_000), at(0, 0, 10_000), 60, "running  [>                           ]    0%  0/10,000 rows"},
		{
			"halfway", at(10, 5_000, 10_000), at(0, 0, 10_000), 100,
			"running  [==============>             ]   50%  5,000/10,000 rows  500 rows/s  25k tok/s  0:10 left",
		},
		{"done", at(10, 10_000, 10_000), at(0, 0, 10_000), 80, "running  [===================]  100%  10,000/10,000 rows  1.0k rows/s  50k tok/s"},
		{"failed rows, no bar", failed, at(0, 0, 10_000), 0, "running   20%  2,000/10,000 rows  200 rows/s  10k tok/s  0:40 left  3 failed"},
		{"nearly all is not all", at(0, 99_999, 100_000), at(0, 99_999, 100_000), 0, "running   99%  99,999/100,000 rows"},
		{"nothing to do", at(0, 0, 0), at(0, 0, 0), 0, "running  100%  0/0 rows"},
		{"too narrow", at(10, 5_000, 10_000), at(0, 0, 10_000), 20, "running   50%  5,00…"},
		{
			"bytes",
			ProgressSnapshot{Now: start.Add(2 * time.Second), Phase: "download", Done: 3e6, Total: 12e6, Size: true},
			ProgressSnapshot{Now: start},
			0, "download   25%  3.0 MB/12.0 MB  1.5 MB/s  0:06 left",
		},
		{"bytes of unknown total", ProgressSnapshot{Now: start, Phase: "download", Done: 1500, Total: -1, Size: true}, ProgressSnapshot{Now: start}, 0, "download  1.5 kB"},
	} {
		got := renderLine(test.s, test.since, test.width, false)
		if got != test.want {
			t.Errorf("%s:\n got %q\nwant %q", test.name, got, test.want)
		}
		if n := utf8.RuneCountInString(got); test.width > 0 && n > test.width {
			t.Errorf("%s: %d columns of %d", test.name, n, test.width)
		}
	}
}

func TestProgressOnATerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := NewProgress(&IO{Err: &out, Live: true, Colour: true, Width: func() int { return 100 }})
	for i := range 5 {
		p.Update(at(i, int64(i)*100, 400))
	}
	p.Clear()
	p.Clear()
	text := out.String()
	if strings.Count(text, "\r\x1b[K") != 6 || strings.Contains(text, "\n") || !strings.HasSuffix(text, "\r\x1b[K") {
		t.Errorf("%q", text)
	}
	if !strings.Contains(text, "\x1b[32m") {
		t.Error("no colour")
	}
}

func TestProgressInALog(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		snaps []ProgressSnapshot
		want  int
	}{
		{"every 5 %", []ProgressSnapshot{at(0, 0, 1000), at(1, 49, 1000), at(2, 50, 1000), at(3, 99, 1000), at(4, 100, 1000)}, 3},
		{"every 10 s", []ProgressSnapshot{at(0, 0, 1000), at(9, 1, 1000), at(10, 1, 1000), at(19, 1, 1000), at(21, 1, 1000)}, 3},
		{"the end", []ProgressSnapshot{at(0, 990, 1000), at(1, 1000, 1000), at(2, 1000, 1000)}, 2},
		{"a change of phase", []ProgressSnapshot{{Now: start, Phase: "pending", Total: -1}, {Now: start, Phase: "starting", Total: -1}, at(0, 0, 9)}, 3},
	} {
		var out bytes.Buffer
		p := NewProgress(&IO{Err: &out})
		for _, s := range test.snaps {
			p.Update(s)
		}
		p.Clear()
		if got := strings.Count(out.String(), "\n"); got != test.want {
			t.Errorf("%s: %d lines, want %d:\n%s", test.name, got, test.want, out.String())
		}
		if strings.ContainsAny(out.String(), "\x1b\r") {
			t.Errorf("%s: control characters in a log: %q", test.name, out.String())
		}
	}
	var out bytes.Buffer
	NewProgress(&IO{Err: &out, Quiet: true}).Update(at(0, 1, 2))
	if out.Len() > 0 {
		t.Error("quiet said", out.String())
	}
}

// The speed is that of the last half minute, not of the whole run.
func TestSpeedIsRecent(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := NewProgress(&IO{Err: &out, Live: true, Width: func() int { return 200 }})
	for i := range 100 {
		p.Update(at(i, int64(i), 1_000_000)) // 1 row/s
	}
	for i := range 31 {
		p.Update(at(100+i, 100+1000*int64(i), 1_000_000))
	}
	if !strings.HasSuffix(strings.TrimSpace(out.String()), "left") || !strings.Contains(out.String()[out.Len()-60:], "1.0k rows/s") {
		t.Errorf("%q", out.String()[out.Len()-100:])
	}
	if len(p.samples) > 40 {
		t.Errorf("%d samples are kept", len(p.samples))
	}
}

func TestFigures(t *testing.T) {
	t.Parallel()
	for _, test := range [][2]string{
		{FormatCount(0), "0"},
		{FormatCount(999), "999"},
		{FormatCount(1000), "1,000"},
		{FormatCount(-1234567), "-1,234,567"},
		{FormatCount(-123), "-123"},
		{formatShort(0), "0"},
		{formatShort(0.25), "0.2"},
		{formatShort(9.94), "9.9"},
		{formatShort(12.4), "12"},
		{formatShort(999.4), "999"},
		{formatShort(999.6), "1.0k"},
		{formatShort(1234), "1.2k"},
		{formatShort(34_567), "35k"},
		{formatShort(999_999), "1.0M"},
		{formatShort(4.56e9), "4.6G"},
		{FormatDuration(-time.Second), "0:00"},
		{FormatDuration(67 * time.Second), "1:07"},
		{FormatDuration(3*time.Hour + 5*time.Minute), "3:05:00"},
		{FormatDuration(123 * time.Hour), "5d 3h"},
		{FormatAge(-1), "0s"},
		{FormatAge(59 * time.Second), "59s"},
		{FormatAge(time.Hour - 1), "59m"},
		{FormatAge(47 * time.Hour), "47h"},
		{FormatAge(200 * time.Hour), "8d"},
	} {
		if test[0] != test[1] {
			t.Errorf("%q, want %q", test[0], test[1])
		}
	}
}

func TestGetenv(t *testing.T) {
	t.Parallel()
	term := &IO{Environ: []string{"A=1", "AB=2", "A=3=4"}}
	if term.Getenv("A") != "3=4" || term.Getenv("AB") != "2" || term.Getenv("B") != "" {
		t.Error("wrong")
	}
}

func TestWriteColumns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		width int
		texts []string
		want  string
	}{
		{80, []string{"one"}, "one\n"},
		{21, []string{"a word and another", "x\n\ny"}, "a word    │ x\nand       │\nanother   │ y\n"},
		{8, []string{"unbreakable\t\x1b[2J"}, "unbreaka\nble  [2J\n"},
		{8, []string{strings.Repeat("é", 8*7), strings.Repeat("é", 8*9)}, strings.Repeat("éééééééé │ éééééééé\n", 7) + "         │ …\n"},
	} {
		var out strings.Builder
		WriteColumns(&out, test.width, test.texts...)
		if out.String() != test.want {
			t.Errorf("%d %q:\n%s\nwant\n%s", test.width, test.texts, out.String(), test.want)
		}
	}
}
