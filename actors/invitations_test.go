package actors

import (
	"slices"
	"testing"
	"time"
)

func TestANodeIsInvitedAgain(t *testing.T) {
	t.Parallel()
	i, began := newInvitations(), time.Now()
	if !i.due("a", began) || i.due("a", began.Add(inviteAgain-1)) {
		t.Error("it is asked again at once, or never")
	}
	if !i.due("b", began) || !i.due("a", began.Add(inviteAgain)) {
		t.Error("it is not asked in time")
	}
	i.answered("a", false, codeBusy)
	if !i.due("a", began.Add(inviteAgain+1)) {
		t.Error("one that was busy is not asked at the next look")
	}
	i.answered("a", false, codeFull)
	if !i.full["a"] || !i.due("a", began.Add(inviteAgain+2)) {
		t.Error("one that has no place is not asked at the next look")
	}
	i.answered("a", false, "")
	if i.full["a"] {
		t.Error("it has a place and counts as full")
	}
	i.ban("b", began)
	if i.due("b", began.Add(banTime-1)) || !i.due("b", began.Add(banTime)) {
		t.Error("one that could not go on is asked too early, or never")
	}
	if got := slices.Sorted(slices.Values(i.nodes())); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("to be dismissed: %q", got)
	}
}

func TestEarlierWorkersAreHeardFirst(t *testing.T) {
	t.Parallel()
	i, now := newInvitations(), time.Now()
	if !i.gathered() {
		t.Error("somebody is waited for before anybody was asked")
	}
	for _, address := range []string{"", "a", "b"} {
		i.due(address, now)
	}
	i.answered("", false, "")
	i.answered("a", true, "")
	if i.gathered() {
		t.Error("b has not answered")
	}
	i.answered("b", false, codeBusy)
	if i.gathered() {
		t.Error("the worker at a was not heard")
	}
	i.heard("b")
	i.heard("a")
	if !i.gathered() {
		t.Error("everybody was heard")
	}
}
