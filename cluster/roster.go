package cluster

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Member is one process of the cluster, as this node sees it.
type Member struct {
	ID      string    // Node and a random suffix: one per process, never reused
	Node    string    // the operator's name
	Peer    string    // address of the peer server
	API     string    // address of the API
	Engines bool      // runs rows
	Owns    bool      // owns jobs
	Started time.Time // by the member's clock

	// Protocol is the version of requests that the member answers.
	Protocol int

	// State is the last state that the member published, nil before the first. It is
	// shared: do not modify it.
	State []byte

	Self bool
}

// roster holds this node's knowledge of members: which are alive, their last states,
// and which are missing. It has no network access and is not safe for concurrent use.
type roster struct {
	self        string
	forgetAfter time.Duration
	alive       map[string]aliveMember
	docs        map[string]document // by ID, also of members that have gone or have not joined yet
	gone        map[netip.AddrPort]goneMember
	leavers     map[string]time.Time // IDs of members that announced that they leave, and when
}

// aliveMember is a member that counts as alive.
type aliveMember struct {
	id string
	profile
	at netip.AddrPort // address of its gossip
}

// goneMember is the last member at a gossip address without an alive member.
type goneMember struct {
	id    string
	left  bool // the member announced that it leaves
	since time.Time
}

// document is the state that a member published.
type document struct {
	version uint64
	text    []byte
	since   time.Time // when the document arrived, or when its member was removed
}

const (
	// strayTTL is how long a document without an alive member is kept. A document may
	// arrive before its member joins, and a member that was declared dead by mistake
	// soon returns without sending its document again.
	strayTTL = 2 * time.Minute

	// maxStrays limits the documents and goodbyes of unknown members.
	maxStrays = 1024
)

func newRoster(self aliveMember, forgetAfter time.Duration) *roster {
	return &roster{
		self: self.id, forgetAfter: forgetAfter,
		alive:   map[string]aliveMember{self.id: self},
		docs:    make(map[string]document),
		gone:    make(map[netip.AddrPort]goneMember),
		leavers: make(map[string]time.Time),
	}
}

// join adds a member or updates its profile. It reports whether anything changed.
func (r *roster) join(p aliveMember) bool {
	if _, goodbye := r.leavers[p.id]; goodbye || p.id == r.self || r.alive[p.id] == p {
		return false
	}
	r.alive[p.id] = p
	delete(r.gone, p.at)
	return true
}

// lose removes a member that no longer answers.
func (r *roster) lose(id string, now time.Time) bool {
	p, here := r.alive[id]
	if !here || id == r.self {
		return false
	}
	r.remove(p, false, now)
	return true
}

func (r *roster) remove(p aliveMember, left bool, now time.Time) {
	delete(r.alive, p.id)
	if doc, ok := r.docs[p.id]; ok {
		doc.since = now
		r.docs[p.id] = doc
	}
	for _, other := range r.alive {
		if other.at == p.at {
			return // another member has this address: none is missing there
		}
	}
	r.gone[p.at] = goneMember{id: p.id, left: left, since: now}
}

// learn applies a message. It returns true if the message was new.
func (r *roster) learn(n update, now time.Time) bool {
	if n.id == r.self {
		return false // only this node publishes its own state
	}
	if n.leaving {
		return r.goodbye(n.id, now)
	}
	known, ok := r.docs[n.id]
	if ok && n.version <= known.version {
		return false
	}
	if _, here := r.alive[n.id]; !here && !ok && len(r.docs) >= len(r.alive)+maxStrays {
		return false
	}
	r.docs[n.id] = document{version: n.version, text: n.doc, since: now}
	return true
}

// goodbye records that a member leaves. It returns false if this was known.
func (r *roster) goodbye(id string, now time.Time) bool {
	if _, known := r.leavers[id]; known || len(r.leavers) >= maxStrays {
		return false
	}
	r.leavers[id] = now
	if p, here := r.alive[id]; here {
		r.remove(p, true, now)
		return true
	}
	for at, a := range r.gone {
		if a.id == id { // this node noticed the silence of the member before its goodbye arrived
			a.left = true
			r.gone[at] = a
		}
	}
	return true
}

// publish sets this node's own document and returns the message with it.
func (r *roster) publish(text []byte, now time.Time) update {
	doc := document{version: r.docs[r.self].version + 1, text: text, since: now}
	r.docs[r.self] = doc
	return update{id: r.self, version: doc.version, doc: text}
}

// current returns the alive members. If two members have the same address, only the one
// that started later can be alive; current leaves the other out.
func (r *roster) current() []aliveMember {
	at := make(map[netip.AddrPort]aliveMember, len(r.alive))
	for _, p := range r.alive {
		if former, taken := at[p.at]; !taken || r.later(p, former) {
			at[p.at] = p
		}
	}
	return slices.SortedFunc(maps.Values(at), func(a, b aliveMember) int { return cmp.Compare(a.id, b.id) })
}

// later reports whether a started after b. This node counts as started last.
func (r *roster) later(a, b aliveMember) bool {
	if a.id == r.self || b.id == r.self {
		return a.id == r.self
	}
	return cmp.Or(cmp.Compare(a.Started, b.Started), cmp.Compare(a.id, b.id)) > 0
}

// members returns the current members in their public form.
func (r *roster) members() []Member {
	var list []Member
	for _, p := range r.current() {
		list = append(list, r.member(p))
	}
	return list
}

func (r *roster) member(p aliveMember) Member {
	return Member{
		ID: p.id, Node: p.Node, Peer: p.Peer, API: p.API, Engines: p.Engines, Owns: p.Owns,
		Started: p.started(), Protocol: p.Protocol, State: r.docs[p.id].text, Self: p.id == r.self,
	}
}

// messages returns the documents of all alive members, for a full exchange.
func (r *roster) messages() []update {
	var all []update
	for id := range r.alive {
		if doc, ok := r.docs[id]; ok {
			all = append(all, update{id: id, version: doc.version, doc: doc.text})
		}
	}
	return all
}

// occupied reports whether an alive member has an address.
func (r *roster) occupied(at netip.AddrPort) bool {
	for _, p := range r.alive {
		if p.at == at {
			return true
		}
	}
	return false
}

// missing returns the addresses of members that vanished without leaving.
func (r *roster) missing() []netip.AddrPort {
	var list []netip.AddrPort
	for at, a := range r.gone {
		if !a.left {
			list = append(list, at)
		}
	}
	return list
}

// count returns how many members are alive, have left and are missing.
func (r *roster) count() (alive, left, dead int) {
	dead = len(r.missing())
	return len(r.current()), len(r.gone) - dead, dead
}

// forget drops entries that are too old.
func (r *roster) forget(now time.Time) {
	maps.DeleteFunc(r.gone, func(_ netip.AddrPort, a goneMember) bool { return now.Sub(a.since) > r.forgetAfter })
	maps.DeleteFunc(r.leavers, func(_ string, since time.Time) bool { return now.Sub(since) > r.forgetAfter })
	maps.DeleteFunc(r.docs, func(id string, doc document) bool {
		_, here := r.alive[id]
		return !here && now.Sub(doc.since) > strayTTL
	})
}
