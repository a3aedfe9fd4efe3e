package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func at(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port)
}

// testMember returns a member with this ID, port and start time.
func testMember(id string, port uint16, started int64) aliveMember {
	return aliveMember{id: id, at: at(port), profile: profile{Node: id, Started: started}}
}

func ids(r *roster) string {
	var list []string
	for _, m := range r.members() {
		list = append(list, m.ID)
	}
	return strings.Join(list, " ")
}

// wantRoster compares the alive, left and missing members.
func wantRoster(t *testing.T, r *roster, here string, left int, missing ...uint16) {
	t.Helper()
	var ports []uint16
	for _, at := range r.missing() {
		ports = append(ports, at.Port())
	}
	slices.Sort(ports)
	_, gone, _ := r.count()
	if ids(r) != here || gone != left || !slices.Equal(ports, missing) {
		t.Errorf("here %q, %d left, missing at %v; want %q, %d, %v", ids(r), gone, ports, here, left, missing)
	}
}

func TestRosterComingAndGoing(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	r := newRoster(testMember("me", 1, 0), time.Hour)
	for _, p := range []aliveMember{testMember("a", 2, 0), testMember("b", 3, 0), testMember("c", 4, 0)} {
		if !r.join(p) || r.join(p) {
			t.Errorf("%s is new once", p.id)
		}
	}
	wantRoster(t, r, "a b c me", 0)

	if !r.removeVanished("a", now) || r.removeVanished("a", now) || r.removeVanished("nobody", now) || r.removeVanished("me", now) {
		t.Error("a is lost once, strangers and this node never")
	}
	wantRoster(t, r, "b c me", 0, 2)
	r.join(testMember("a", 2, 0))
	wantRoster(t, r, "a b c me", 0)

	if !r.applyUpdate(memberUpdate{id: "b", leaving: true}, now) || r.applyUpdate(memberUpdate{id: "b", leaving: true}, now) {
		t.Error("a goodbye is new once")
	}
	wantRoster(t, r, "a c me", 1)
	r.removeVanished("b", now)                          // memberlist notices later
	r.join(testMember("b", 3, 0))                       // and an old message about it arrives
	wantRoster(t, r, "a c me", 1)                       // it stays away
	r.removeVanished("c", now)                          // its silence is noticed
	wantRoster(t, r, "a me", 1, 4)                      // before
	r.applyUpdate(memberUpdate{"c", true, 0, nil}, now) // its goodbye comes
	wantRoster(t, r, "a me", 2)
	if r.applyUpdate(memberUpdate{id: "me", leaving: true}, now) {
		t.Error("a message of another member removes this node")
	}

	r.removeVanished("a", now.Add(time.Minute))
	r.forgetExpired(now.Add(time.Hour + time.Second))
	wantRoster(t, r, "me", 0, 2)
	r.forgetExpired(now.Add(time.Hour + time.Minute + time.Second))
	wantRoster(t, r, "me", 0)
}

func TestRosterSuccessors(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	r := newRoster(testMember("me", 1, 5), time.Hour)
	r.join(testMember("new", 2, 9))
	r.join(testMember("old", 2, 7)) // heard of afterwards
	wantRoster(t, r, "me new", 0)
	r.removeVanished("old", now)
	wantRoster(t, r, "me new", 0) // no member is missing there
	r.join(testMember("newer", 2, 9))
	wantRoster(t, r, "me newer", 0) // started in the same microsecond: the IDs decide, the same way on every node
	r.removeVanished("new", now)
	r.removeVanished("newer", now)
	wantRoster(t, r, "me", 0, 2)
	r.join(testMember("back", 2, 3)) // with its clock set back
	wantRoster(t, r, "back me", 0)
	r.join(testMember("thief", 1, 99))
	wantRoster(t, r, "back me", 0) // this node keeps its own address
}

func TestRosterDocuments(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	r := newRoster(testMember("me", 1, 0), time.Hour)
	state := func(id string) string {
		for _, m := range r.members() {
			if m.ID == id {
				return string(m.State)
			}
		}
		return ""
	}
	learn := func(id string, version uint64, text string, fresh bool) {
		t.Helper()
		if r.applyUpdate(memberUpdate{id: id, version: version, doc: []byte(text)}, now) != fresh {
			t.Errorf("version %d of %s: new is %v, want %v", version, id, !fresh, fresh)
		}
	}
	learn("a", 2, "two", true) // arrives before the message that a has joined
	r.join(testMember("a", 2, 0))
	learn("a", 2, "again", false)
	learn("a", 1, "one", false)
	if state("a") != "two" {
		t.Errorf("a said %q, want two", state("a"))
	}
	learn("a", 3, "three", true)
	learn("me", 9, "slander", false)
	if n := r.publish([]byte("mine"), now); n.version != 1 || state("me") != "mine" {
		t.Errorf("own message %+v, own state %q", n, state("me"))
	}
	if n := r.publish([]byte("mine"), now); n.version != 2 {
		t.Errorf("version %d, want 2: versions grow", n.version)
	}
	if n := len(r.messages()); n != 2 {
		t.Errorf("%d messages for an exchange, want the messages of a and me", n)
	}

	// A member that was declared dead and soon returns need not send its document
	// again.
	r.removeVanished("a", now)
	r.forgetExpired(now.Add(strayTTL))
	r.join(testMember("a", 2, 0))
	if state("a") != "three" {
		t.Errorf("a said %q after its return, want three", state("a"))
	}
	r.removeVanished("a", now)
	r.forgetExpired(now.Add(strayTTL + time.Second))
	r.join(testMember("a", 2, 0))
	if state("a") != "" {
		t.Errorf("a said %q after a long time, want nothing", state("a"))
	}
}

func TestRosterBounds(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	r := newRoster(testMember("me", 1, 0), time.Hour)
	for i := range 2 * maxStrays {
		r.applyUpdate(memberUpdate{id: fmt.Sprint("stranger-", i), version: 1}, now)
		r.applyUpdate(memberUpdate{id: fmt.Sprint("leaver-", i), leaving: true}, now)
	}
	if len(r.docs) > maxStrays+1 || len(r.leavers) > maxStrays {
		t.Errorf("%d documents and %d goodbyes of strangers, want at most %d", len(r.docs), len(r.leavers), maxStrays)
	}
	r.join(testMember("a", 2, 0))
	if !r.applyUpdate(memberUpdate{id: "a", version: 1}, now) {
		t.Error("strangers keep out a member's document")
	}
}
