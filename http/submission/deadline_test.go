package submission

import (
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

// A deadline may leave the seconds out and have any time zone.
func TestDeadline_Forms(t *testing.T) {
	t.Parallel()
	w := setup(t)
	want := time.Date(2999, 11, 27, 6, 0, 0, 0, time.UTC)
	for _, text := range []string{"2999-11-27T06:00Z", "2999-11-27T06:00:00Z", "2999-11-27T08:00+02:00", "2999-11-27T08:00:00.000+02:00"} {
		sub := must.Get(w.Read(t.Context(), strings.NewReader(`{"inputs":["a"],"deadline":"`+text+`"}`)))(t)
		job := must.Get(sub.Check(t.Context(), "default"))(t)
		if made := job.ToRecord(time.Now()).Job.Deadline; made == nil || !made.Equal(want) || job.OnlyIfMet {
			t.Errorf("%s is %v, only if met: %v", text, made, job.OnlyIfMet)
		}
		sub.Close()
	}
}

// The jobs of a set have no deadline.
func TestDeadline_NotInASet(t *testing.T) {
	t.Parallel()
	w := setup(t)
	sub := must.Get(w.Read(t.Context(), strings.NewReader(`{"inputs":["a"],"deadline":"2999-01-01T00:00Z","admit":"only_if_met","variants":[{"model":"llama-3.1-8b"},{}]}`)))(t)
	defer sub.Close()
	if _, err := sub.CheckSet(t.Context(), "default"); err == nil || !strings.Contains(err.Error(), "deadline: cannot be used in a set") {
		t.Errorf("a set with a deadline: %v", err)
	}
}
