package jobs

import (
	"fmt"
	"testing"
	"time"
)

// A track keeps a limited number of samples and jobs.
func TestTrack_IsBounded(t *testing.T) {
	t.Parallel()
	var track sampleTracker
	now := time.Unix(1_700_000_000, 0)
	for i := range 3 * int(samplesKept/samplesEvery) {
		now = now.Add(samplesEvery / 2)
		track.addSample("one", progressSample{at: now, rows: int64(i)})
	}
	if n := len(track.samples["one"]); n > int(samplesKept/samplesEvery)+1 || n < int(samplesKept/samplesEvery)-1 {
		t.Errorf("%d samples", n)
	}
	for i := range 2 * maxSampled {
		now = now.Add(time.Millisecond)
		track.addSample(fmt.Sprint(i), progressSample{at: now})
	}
	if n := len(track.samples); n != maxSampled {
		t.Errorf("%d jobs", n)
	}
	if _, kept := track.samples[fmt.Sprint(2*maxSampled-1)]; !kept {
		t.Error("the last was forgotten")
	}
}
