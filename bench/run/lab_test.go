package main

import (
	"maps"
	"testing"
	"time"
)

// The last row counts as committed at the first reading that shows it, not at the
// reading that shows the job's end.
func TestCommitted(t *testing.T) {
	t.Parallel()
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	for _, test := range []struct {
		name   string
		course []progressReading
		want   time.Time
	}{
		{"job goes on after the last row", []progressReading{{at(1), 0}, {at(2), 50}, {at(3), 100}, {at(4), 100}, {at(5), 100}}, at(3)},
		{"last row at the end", []progressReading{{at(1), 0}, {at(2), 100}}, at(2)},
		{"one look", []progressReading{{at(1), 100}}, at(1)},
	} {
		if got := committed(test.course); !got.Equal(test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestCourseBefore(t *testing.T) {
	t.Parallel()
	var c course
	for i := range 5 {
		c = append(c, reading{at: time.Unix(int64(i), 0), done: float64(i)})
	}
	if got := c.before(time.Unix(2, 1)); len(got) != 3 {
		t.Errorf("%d readings until second 2, want 3", len(got))
	}
	if got := c.before(time.Unix(9, 0)); len(got) != 5 {
		t.Errorf("%d readings until after the last, want all 5", len(got))
	}
}

func TestTallyMinus(t *testing.T) {
	t.Parallel()
	before := tally{"S3: GetObject": 2, "S3: PutObject": 5}
	after := tally{"S3: GetObject": 6, "S3: PutObject": 5, "S3: DeleteObject": 1, "nodes: report": 3}
	used := after.minus(before)
	if want := (tally{"S3: GetObject": 4, "S3: DeleteObject": 1, "nodes: report": 3}); !maps.Equal(used, want) {
		t.Errorf("used %v, want %v", used, want)
	}
	if got := used.sum("S3: "); got != 5 {
		t.Errorf("%v requests to S3, want 5", got)
	}
	if got := label(`direction="out",kind="report",outcome="ok"}`, "kind"); got != "report" {
		t.Errorf("label kind is %q", got)
	}
}
