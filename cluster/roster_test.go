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

// somebody is a member with that ID, at a port, started then.
func somebody(id string, port uint16, started int64) present {
	return present{id: id, at: at(port), profile: profile{Node: id, Started: started}}
}

func ids(r *roster) string {
	var list []string
	for _, m := range r.members() {
		list = append(list, m.ID)
	}
	return strings.Join(list, " ")
}

// wantRoster compares who is here, who left and who is missing.
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
	r := newRoster(somebody("me", 1, 0), time.Hour)
	for _, p := range []present{somebody("a", 2, 0), somebody("b", 3, 0), somebody("c", 4, 0)} {
		if !r.join(p) || r.join(p) {
			t.Errorf("%s is new once", p.id)
		}
	}
	wantRoster(t, r, "a b c me", 0)

	if !r.lose("a", now) || r.lose("a", now) || r.lose("nobody", now) || r.lose("me", now) {
		t.Error("a is lost once, strangers and this node never")
	}
	wantRoster(t, r, "b c me", 0, 2)
	r.join(somebody("a", 2, 0))
	wantRoster(t, r, "a b c me", 0)

	if !r.learn(news{id: "b", leaving: true}, now) || r.learn(news{id: "b", leaving: true}, now) {
		t.Error("a goodbye is new once")
	}
	wantRoster(t, r, "a c me", 1)
	r.lose("b", now)                      // memberlist notices later
	r.join(somebody("b", 3, 0))           // and old news about it goes round
	wantRoster(t, r, "a c me", 1)         // it stays away
	r.lose("c", now)                      // its silence is noticed
	wantRoster(t, r, "a me", 1, 4)        // before
	r.learn(news{"c", true, 0, nil}, now) // its goodbye comes
	wantRoster(t, r, "a me", 2)
	if r.learn(news{id: "me", leaving: true}, now) {
		t.Error("somebody says that this node leaves")
	}

	r.lose("a", now.Add(time.Minute))
	r.forget(now.Add(time.Hour + time.Second))
	wantRoster(t, r, "me", 0, 2)
	r.forget(now.Add(time.Hour + time.Minute + time.Second))
	wantRoster(t, r, "me", 0)
}

func TestRosterSuccessors(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	r := newRoster(somebody("me", 1, 5), time.Hour)
	r.join(somebody("new", 2, 9))
	r.join(somebody("old", 2, 7)) // heard of afterwards
	wantRoster(t, r, "me new", 0)
	r.lose("old", now)
	wantRoster(t, r, "me new", 0) // nobody is missing there
	r.join(somebody("newer", 2, 9))
	wantRoster(t, r, "me newer", 0) // of the same microsecond: the IDs decide, everywhere alike
	r.lose("new", now)
	r.lose("newer", now)
	wantRoster(t, r, "me", 0, 2)
	r.join(somebody("back", 2, 3)) // with its clock set back
	wantRoster(t, r, "back me", 0)
	r.join(somebody("thief", 1, 99))
	wantRoster(t, r, "back me", 0) // this node is where it is
}

func TestRosterDocuments(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	r := newRoster(somebody("me", 1, 0), time.Hour)
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
		if r.learn(news{id: id, version: version, doc: []byte(text)}, now) != fresh {
			t.Errorf("version %d of %s: new is %v, want %v", version, id, !fresh, fresh)
		}
	}
	learn("a", 2, "two", true) // overtakes the news that there is an a
	r.join(somebody("a", 2, 0))
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
		t.Errorf("%d messages for an exchange, want those of a and me", n)
	}

	// Given up and soon back, it need not repeat itself.
	r.lose("a", now)
	r.forget(now.Add(strayTime))
	r.join(somebody("a", 2, 0))
	if state("a") != "three" {
		t.Errorf("a said %q after its return, want three", state("a"))
	}
	r.lose("a", now)
	r.forget(now.Add(strayTime + time.Second))
	r.join(somebody("a", 2, 0))
	if state("a") != "" {
		t.Errorf("a said %q after a long time, want nothing", state("a"))
	}
}

func TestRosterBounds(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	r := newRoster(somebody("me", 1, 0), time.Hour)
	for i := range 2 * maxStrays {
		r.learn(news{id: fmt.Sprint("stranger-", i), version: 1}, now)
		r.learn(news{id: fmt.Sprint("leaver-", i), leaving: true}, now)
	}
	if len(r.docs) > maxStrays+1 || len(r.leavers) > maxStrays {
		t.Errorf("%d documents and %d goodbyes of strangers, want at most %d", len(r.docs), len(r.leavers), maxStrays)
	}
	r.join(somebody("a", 2, 0))
	if !r.learn(news{id: "a", version: 1}, now) {
		t.Error("strangers keep out a member's document")
	}
}
