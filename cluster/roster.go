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
	ID      string    // Node and a random suffix; each process has its own ID, which is never reused
	Node    string    // name that the operator gave the node
	Peer    string    // address of the server for requests of other nodes
	API     string    // address of the HTTP API
	Engines bool      // the node runs rows
	Owns    bool      // the node owns jobs
	Started time.Time // start of the process, by the member's clock

	// Protocol is the version of requests that the member answers.
	Protocol int

	// State is the last state that the member published; nil if it has not published
	// any. Do not modify it, because other callers share the slice.
	State []byte

	Self bool // this process
}

// roster holds what this node knows about members: which are alive, their last states,
// and which are missing. It has no network access and is not safe for concurrent use.
type roster struct {
	self        string
	forgetAfter time.Duration
	alive       map[string]aliveMember
	docs        map[string]stateDocument      // by member ID; also of members that are gone or have not joined yet
	gone        map[netip.AddrPort]goneMember // by gossip address without an alive member
	leavers     map[string]time.Time          // by ID of a member that has said goodbye: when the goodbye arrived
}

// aliveMember is a member that counts as alive.
type aliveMember struct {
	id string
	profile
	at netip.AddrPort // gossip address
}

// goneMember is the member that was last at a gossip address, if no member is alive
// there now.
type goneMember struct {
	id    string
	left  bool      // true: the member said goodbye; false: it vanished
	since time.Time // when this node removed the member
}

// stateDocument is the state that a member published.
type stateDocument struct {
	version uint64
	text    []byte
	since   time.Time // when the document arrived, or when its member was removed
}

const (
	// strayTTL is how long a document is stored if its member is not alive. A document
	// may arrive before its member joins, and a member that was declared dead by
	// mistake soon returns without sending its document again.
	strayTTL = 2 * time.Minute

	// maxStrays is the largest number of documents, and of goodbyes, that are stored
	// for unknown members.
	maxStrays = 1024
)

func newRoster(self aliveMember, forgetAfter time.Duration) *roster {
	return &roster{
		self: self.id, forgetAfter: forgetAfter,
		alive:   map[string]aliveMember{self.id: self},
		docs:    make(map[string]stateDocument),
		gone:    make(map[netip.AddrPort]goneMember),
		leavers: make(map[string]time.Time),
	}
}

// join adds a member or updates its profile. It returns false if nothing has changed.
func (r *roster) join(p aliveMember) bool {
	if _, goodbye := r.leavers[p.id]; goodbye || p.id == r.self || r.alive[p.id] == p {
		return false
	}
	r.alive[p.id] = p
	delete(r.gone, p.at)
	return true
}

// removeVanished removes a member that no longer answers. It returns false if the member was not
// alive.
func (r *roster) removeVanished(id string, now time.Time) bool {
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
			return // another member is alive at this address, so no member is missing there
		}
	}
	r.gone[p.at] = goneMember{id: p.id, left: left, since: now}
}

// applyUpdate applies a message of another member. It returns true if the message was new.
func (r *roster) applyUpdate(n memberUpdate, now time.Time) bool {
	if n.id == r.self {
		return false // only this node publishes its own state
	}
	if n.leaving {
		return r.recordGoodbye(n.id, now)
	}
	known, ok := r.docs[n.id]
	if ok && n.version <= known.version {
		return false
	}
	if _, here := r.alive[n.id]; !here && !ok && len(r.docs) >= len(r.alive)+maxStrays {
		return false
	}
	r.docs[n.id] = stateDocument{version: n.version, text: n.doc, since: now}
	return true
}

// recordGoodbye records that a member leaves. It returns false if the goodbye was known, or
// if there are too many goodbyes.
func (r *roster) recordGoodbye(id string, now time.Time) bool {
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

// publish sets this node's own document, and returns the message that carries the
// document.
func (r *roster) publish(text []byte, now time.Time) memberUpdate {
	doc := stateDocument{version: r.docs[r.self].version + 1, text: text, since: now}
	r.docs[r.self] = doc
	return memberUpdate{id: r.self, version: doc.version, doc: text}
}

// currentMembers returns the alive members. If two members have the same address, only the one
// that started later can be alive; currentMembers leaves the other out.
func (r *roster) currentMembers() []aliveMember {
	at := make(map[netip.AddrPort]aliveMember, len(r.alive))
	for _, p := range r.alive {
		if former, taken := at[p.at]; !taken || r.startedAfter(p, former) {
			at[p.at] = p
		}
	}
	return slices.SortedFunc(maps.Values(at), func(a, b aliveMember) int { return cmp.Compare(a.id, b.id) })
}

// startedAfter reports whether member a started after member b. This node counts as started
// last.
func (r *roster) startedAfter(a, b aliveMember) bool {
	if a.id == r.self || b.id == r.self {
		return a.id == r.self
	}
	return cmp.Or(cmp.Compare(a.Started, b.Started), cmp.Compare(a.id, b.id)) > 0
}

// members returns the current members in their public form.
func (r *roster) members() []Member {
	var list []Member
	for _, p := range r.currentMembers() {
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

// messages returns the documents of all alive members as messages for a full exchange.
func (r *roster) messages() []memberUpdate {
	var all []memberUpdate
	for id := range r.alive {
		if doc, ok := r.docs[id]; ok {
			all = append(all, memberUpdate{id: id, version: doc.version, doc: doc.text})
		}
	}
	return all
}

// isOccupied reports whether an alive member has this gossip address.
func (r *roster) isOccupied(at netip.AddrPort) bool {
	for _, p := range r.alive {
		if p.at == at {
			return true
		}
	}
	return false
}

// missing returns the gossip addresses of members that vanished without leaving.
func (r *roster) missing() []netip.AddrPort {
	var list []netip.AddrPort
	for at, a := range r.gone {
		if !a.left {
			list = append(list, at)
		}
	}
	return list
}

// count returns how many members are alive, how many have left, and how many vanished
// (dead).
func (r *roster) count() (alive, left, dead int) {
	dead = len(r.missing())
	return len(r.currentMembers()), len(r.gone) - dead, dead
}

// forgetExpired drops old entries: of gone members after forgetAfter, of documents without an
// alive member after strayTTL.
func (r *roster) forgetExpired(now time.Time) {
	maps.DeleteFunc(r.gone, func(_ netip.AddrPort, a goneMember) bool { return now.Sub(a.since) > r.forgetAfter })
	maps.DeleteFunc(r.leavers, func(_ string, since time.Time) bool { return now.Sub(since) > r.forgetAfter })
	maps.DeleteFunc(r.docs, func(id string, doc stateDocument) bool {
		_, here := r.alive[id]
		return !here && now.Sub(doc.since) > strayTTL
	})
}
