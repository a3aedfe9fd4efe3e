package actors

import (
	"slices"
	"testing"
	"time"
)

func TestANodeIsInvitedAgain(t *testing.T) {
	t.Parallel()
	i, began := newInvitations(), time.Now()
	if !i.markInvitedIfDue("a", began) || i.markInvitedIfDue("a", began.Add(inviteAgain-1)) {
		t.Error("the node is invited again at once, or never")
	}
	if !i.markInvitedIfDue("b", began) || !i.markInvitedIfDue("a", began.Add(inviteAgain)) {
		t.Error("the node is not invited in time")
	}
	i.recordAnswer("a", false, codeBusy)
	if !i.markInvitedIfDue("a", began.Add(inviteAgain+1)) {
		t.Error("a busy node is not invited again at once")
	}
	i.recordAnswer("a", false, codeFull)
	if !i.full["a"] || !i.markInvitedIfDue("a", began.Add(inviteAgain+2)) {
		t.Error("a full node is not invited again at once")
	}
	i.recordAnswer("a", false, "")
	if i.full["a"] {
		t.Error("a node with a place counts as full")
	}
	i.ban("b", began)
	if i.markInvitedIfDue("b", began.Add(banTime-1)) || !i.markInvitedIfDue("b", began.Add(banTime)) {
		t.Error("a banned node is invited too early, or never")
	}
	if got := slices.Sorted(slices.Values(i.invitedNodes())); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the invited nodes are %q", got)
	}
}

func TestEarlierWorkersAreHeardFirst(t *testing.T) {
	t.Parallel()
	i, now := newInvitations(), time.Now()
	if !i.allReported() {
		t.Error("not gathered before the first invite")
	}
	for _, address := range []string{"", "a", "b"} {
		i.markInvitedIfDue(address, now)
	}
	i.recordAnswer("", false, "")
	i.recordAnswer("a", true, "")
	if i.allReported() {
		t.Error("gathered before b has answered")
	}
	i.recordAnswer("b", false, codeBusy)
	if i.allReported() {
		t.Error("gathered before the worker at a has reported")
	}
	i.recordHeartbeat("b")
	i.recordHeartbeat("a")
	if !i.allReported() {
		t.Error("not gathered, but all have reported")
	}
}
