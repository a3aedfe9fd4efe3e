package trial_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/actors/trial"
	"github.com/rowmill/rowmill/store"
)

func TestSuspectsOfTwoEndsAreTakenAlone(t *testing.T) {
	t.Parallel()
	now, trials := time.Now(), trial.New()
	admits := func(job string, stage trial.Stage, want bool) {
		t.Helper()
		if ok := trials.Admits(job, stage, now); ok != want {
			t.Fatalf("%s is admitted: %v, want %v", job, ok, want)
		} else if ok {
			trials.Begin(job, stage)
		}
	}
	admits("a", trial.Free, true)
	admits("b", trial.Group, true)
	admits("s", trial.Alone, false) // a and b may not be harmless
	admits("c", trial.Free, false)
	admits("d", trial.Group, false)
	if trials.End("a") {
		t.Error("no job waits for the end of a")
	}
	if !trials.End("b") {
		t.Error("s has waited for the end of b")
	}
	admits("c", trial.Free, false) // s goes first
	admits("s", trial.Alone, true)
	admits("r", trial.Alone, false)
	admits("c", trial.Free, false)
	if !trials.End("s") {
		t.Error("others have waited for s")
	}
	admits("c", trial.Free, true)
	for range 2 {
		if trials.End("c") {
			t.Error("no job has waited for c")
		}
	}

	admits("d", trial.Free, true)
	admits("s", trial.Alone, false)
	now = now.Add(6 * time.Second) // another node has taken s
	admits("e", trial.Free, true)
}

func TestSuspectsOfOneEndAreTakenInGroups(t *testing.T) {
	t.Parallel()
	now, trials := time.Now(), trial.New()
	trials.Begin("fresh", trial.Free)
	taken := 0
	for i := range 300 {
		if job := fmt.Sprint(i); trials.Admits(job, trial.Group, now) {
			taken++
			trials.Begin(job, trial.Group)
		}
	}
	if taken != 16 {
		t.Errorf("%d of many suspects are taken at a time, want 16", taken)
	}
	if !trials.Admits("other", trial.Free, now) {
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
		stage  trial.Stage
		parks  bool
	}{
		{"", trial.Free, false},
		{"a b! c!", trial.Free, false},
		{"A", trial.Group, false},
		{"A!", trial.Group, false},
		{"A A! A!", trial.Group, false}, // one process has lost its sessions, then ended
		{"A B", trial.Alone, false},
		{"A B!", trial.Alone, false},
		{"A B C! D", trial.Alone, false},
		{"a B! c!", trial.Group, false},
		{"A B C D E F G", trial.Alone, false}, // machines that die often prove nothing
		{"A! B!", trial.Alone, true},
		{"A B! C D! e", trial.Alone, true},
	} {
		var tried []store.Adopter
		for i, name := range strings.Fields(c.owners) {
			process, alone := strings.CutSuffix(name, "!")
			tried = append(tried, store.Adopter{Process: process, Alone: alone, Epoch: int64(i + 1)})
		}
		ended := trial.Ended(tried, func(a store.Adopter) bool { return strings.ToUpper(a.Process) == a.Process })
		if stage, parks := trial.StageOf(ended), trial.Parks(ended); stage != c.stage || parks != c.parks {
			t.Errorf("%q: stage %d, parks %v, want %d and %v", c.owners, stage, parks, c.stage, c.parks)
		}
	}
}
