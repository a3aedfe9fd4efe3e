package nodes

import (
	"testing"
	"time"
)

// A silence is reported once, after it has lasted. A node that answers now and then is
// busy. A node that refuses connections is gone.
func TestSilences(t *testing.T) {
	t.Parallel()
	var s SilenceTracker
	began := time.Now()
	for _, step := range []struct {
		at       time.Duration
		node     string
		answered bool
		gone     bool
		news     bool
	}{
		{at: 0, node: "a"},
		{at: minReportedSilence - 1, node: "a"},
		{at: minReportedSilence - 1, node: "a", answered: true},
		{at: minReportedSilence, node: "a"},
		{at: 2*minReportedSilence - 1, node: "b"},
		{at: 2 * minReportedSilence, node: "a", news: true},
		{at: 3 * minReportedSilence, node: "a"},
		{at: 3 * minReportedSilence, node: "c", gone: true, news: true},
		{at: 4 * minReportedSilence, node: "c", gone: true},
		{at: 4 * minReportedSilence, node: "a", answered: true},
		{at: 4 * minReportedSilence, node: "a"},
		{at: 5 * minReportedSilence, node: "a", news: true},
		{at: 5*minReportedSilence + 2*time.Minute, node: "a"}, // no request was sent to it meanwhile
	} {
		if step.answered {
			s.RecordAnswer(step.node)
			continue
		}
		if news := s.RecordUnanswered(step.node, step.gone, began.Add(step.at)); news != step.news {
			t.Errorf("%+v: news %v", step, news)
		}
	}
	if len(s.silent) != 1 {
		t.Errorf("%d nodes are kept that get no requests", len(s.silent)-1)
	}
}
