package trial_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/actors/trial"
	"github.com/rowmill/rowmill/store"
)

func TestSuspectsAreTakenUpAlone(t *testing.T) {
	t.Parallel()
	began := time.Now()
	now, trials := began.Add(trial.Calm), trial.New(began)
	admits := func(job string, suspect, wantAlone, want bool) {
		t.Helper()
		alone, ok := trials.Admits(job, suspect, now)
		if ok != want || ok && alone != wantAlone {
			t.Fatalf("%s is admitted: %v, alone: %v, want %v and %v", job, ok, alone, want, wantAlone)
		}
		if ok {
			trials.Begin(job, suspect, alone)
		}
	}
	admits("a", false, false, true)
	admits("b", false, false, true)
	trials.Count(2)
	admits("s", true, false, false) // a and b may not be harmless
	admits("c", false, false, false)
	if trials.End("a") {
		t.Error("no job waits for the end of a")
	}
	if !trials.End("b") {
		t.Error("s has waited for the end of b")
	}
	admits("c", false, false, false) // s goes first
	admits("s", true, true, true)
	admits("r", true, false, false)
	admits("c", false, false, false)
	if !trials.End("s") {
		t.Error("others have waited for s")
	}
	admits("c", false, false, true)
	for range 2 {
		if trials.End("c") {
			t.Error("no job has waited for c")
		}
	}

	young := trial.New(now)
	if _, ok := young.Admits("s", true, now.Add(trial.Calm-1)); ok {
		t.Error("a process that has only begun takes up a suspect")
	}
	if _, ok := young.Admits("s", true, now.Add(trial.Calm)); !ok {
		t.Error("a process that has lived for a while takes up no suspect")
	}

	admits("d", false, false, true)
	admits("s", true, false, false)
	now = now.Add(6 * time.Second) // another node has taken s
	admits("e", false, false, true)
}

func TestManySuspectsAreTakenUpInGroups(t *testing.T) {
	t.Parallel()
	now, trials := time.Now(), trial.New(time.Now())
	trials.Begin("fresh", false, false)
	trials.Count(300)
	taken := 0
	for i := range 300 {
		job := fmt.Sprint(i)
		if alone, ok := trials.Admits(job, true, now); alone {
			t.Fatal("one of many is alone")
		} else if ok {
			taken++
			trials.Begin(job, true, false)
		}
	}
	if taken != 16 {
		t.Errorf("%d of many suspects are taken up at a time, want 16", taken)
	}
	if _, ok := trials.Admits("other", false, now); !ok {
		t.Error("others wait for a crowd")
	}
	if !trials.End("3") {
		t.Error("the next suspect has waited")
	}
}

func TestAtFault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		owners string // lower case: still alive; followed by !: the job ran alone
		want   bool
	}{
		{"", false},
		{"A", false},
		{"A!", false},
		{"A B", false},
		{"A B!", true},
		{"A! B", false},
		{"a B!", false},
		{"A b!", false},
		{"A B! c", false},
		{"A b! C!", true},
		{"A B C D", false},
		{"A B C D E", true},
		{"A B C D e", false},
	} {
		var tried []store.Adopter
		for i, name := range strings.Fields(c.owners) {
			process, alone := strings.CutSuffix(name, "!")
			tried = append(tried, store.Adopter{Process: process, Alone: alone, Epoch: int64(i + 1)})
		}
		ended := trial.Ended(tried, func(a store.Adopter) bool { return strings.ToUpper(a.Process) == a.Process })
		if got := trial.AtFault(tried, ended); got != c.want {
			t.Errorf("%q: at fault: %v, want %v", c.owners, got, c.want)
		}
	}
}
