package poison_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/actors/poison"
	"github.com/rowmill/rowmill/store"
)

func TestSuspectsOfTwoEndsAreTakenAlone(t *testing.T) {
	t.Parallel()
	now, trials := time.Now(), poison.New()
	admits := func(job string, stage poison.Stage, want bool) {
		t.Helper()
		if ok := trials.Admits(job, stage, now); ok != want {
			t.Fatalf("%s is admitted: %v, want %v", job, ok, want)
		} else if ok {
			trials.Begin(job, stage)
		}
	}
	admits("a", poison.Free, true)
	admits("b", poison.Group, true)
	admits("s", poison.Alone, false) // a and b may not be harmless
	admits("c", poison.Free, false)
	admits("d", poison.Group, false)
	if trials.End("a") {
		t.Error("no job waits for the end of a")
	}
	if !trials.End("b") {
		t.Error("s has waited for the end of b")
	}
	admits("c", poison.Free, false) // s goes first
	admits("s", poison.Alone, true)
	admits("r", poison.Alone, false)
	admits("c", poison.Free, false)
	if !trials.End("s") {
		t.Error("others have waited for s")
	}
	admits("c", poison.Free, true)
	for range 2 {
		if trials.End("c") {
			t.Error("no job has waited for c")
		}
	}

	admits("d", poison.Free, true)
	admits("s", poison.Alone, false)
	now = now.Add(6 * time.Second) // another node has taken s
	admits("e", poison.Free, true)
}

func TestSuspectsOfOneEndAreTakenInGroups(t *testing.T) {
	t.Parallel()
	now, trials := time.Now(), poison.New()
	trials.Begin("fresh", poison.Free)
	taken := 0
	for i := range 300 {
		if job := fmt.Sprint(i); trials.Admits(job, poison.Group, now) {
			taken++
			trials.Begin(job, poison.Group)
		}
	}
	if taken != 16 {
		t.Errorf("%d of many suspects are taken at a time, want 16", taken)
	}
	if !trials.Admits("other", poison.Free, now) {
		t.Error("other jobs wait for a group")
	}
	if !trials.End("3") {
		t.Error("the next suspect has waited")
	}
}

func TestStagesAndParking(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		owners string // lower case: still alive; followed by !: the job ran alone
		stage  poison.Stage
		parks  bool
	}{
		{"", poison.Free, false},
		{"a b! c!", poison.Free, false},
		{"A", poison.Group, false},
		{"A!", poison.Group, false},
		{"A A! A!", poison.Group, false}, // one process has lost its sessions, then ended
		{"A B", poison.Alone, false},
		{"A B!", poison.Alone, false},
		{"A B C! D", poison.Alone, false},
		{"a B! c!", poison.Group, false},
		{"A B C D E F G", poison.Alone, false}, // machines that die often prove nothing
		{"A! B!", poison.Alone, true},
		{"A B! C D! e", poison.Alone, true},
	} {
		var tried []store.Claim
		for i, name := range strings.Fields(c.owners) {
			process, alone := strings.CutSuffix(name, "!")
			tried = append(tried, store.Claim{Process: process, Alone: alone, Epoch: int64(i + 1)})
		}
		ended := poison.FilterEnded(tried, func(a store.Claim) bool { return strings.ToUpper(a.Process) == a.Process })
		if stage, parks := poison.StageOf(ended), poison.MustPark(ended); stage != c.stage || parks != c.parks {
			t.Errorf("%q: stage %d, parks %v, want %d and %v", c.owners, stage, parks, c.stage, c.parks)
		}
	}
}
