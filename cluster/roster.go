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
	ID      string    // Node and a random suffix: one per process, never used again
	Node    string    // the operator's name
	Peer    string    // address of its peer server
	API     string    // address of its API
	Engines bool      // runs rows
	Owns    bool      // owns jobs
	Started time.Time // by its own clock

	// Protocol is the version of the requests that it answers.
	Protocol int

	// State is what the member said of itself last, nil before that. It is
	// shared: do not modify it.
	State []byte

	Self bool
}

// roster is what this node knows about members. It decides who is one, what
// each said last and who is missing; it knows no network and is not safe for
// concurrent use.
type roster struct {
	self        string
	forgetAfter time.Duration
	alive       map[string]present
	docs        map[string]document // by ID, also of members that are not, or no longer, here
	gone        map[netip.AddrPort]absent
	leavers     map[string]time.Time // IDs that said goodbye, and when
}

// present is a member that is here.
type present struct {
	id string
	profile
	at netip.AddrPort // of its gossip
}

// absent is who was at an address last.
type absent struct {
	id    string
	left  bool // said goodbye
	since time.Time
}

type document struct {
	version uint64
	text    []byte
	since   time.Time
}

const (
	// strayTime is how long a document outlives its member, or precedes it: a
	// document may overtake the news that there is such a member, and a member
	// that was given up wrongly is soon back without repeating itself.
	strayTime = 2 * time.Minute

	// maxStrays bounds the documents and goodbyes of unknown members.
	maxStrays = 1024
)

func newRoster(self present, forgetAfter time.Duration) *roster {
	return &roster{
		self: self.id, forgetAfter: forgetAfter,
		alive:   map[string]present{self.id: self},
		docs:    make(map[string]document),
		gone:    make(map[netip.AddrPort]absent),
		leavers: make(map[string]time.Time),
	}
}

// join adds a member, or what it tells of itself now, and reports whether
// anything is new.
func (r *roster) join(p present) bool {
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

func (r *roster) remove(p present, left bool, now time.Time) {
	delete(r.alive, p.id)
	if doc, ok := r.docs[p.id]; ok {
		doc.since = now
		r.docs[p.id] = doc
	}
	for _, other := range r.alive {
		if other.at == p.at {
			return // somebody took its place: nobody is missing there
		}
	}
	r.gone[p.at] = absent{id: p.id, left: left, since: now}
}

// learn takes in a message and reports whether it was new.
func (r *roster) learn(n news, now time.Time) bool {
	if n.id == r.self {
		return false // nobody knows better
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
		if a.id == id { // its silence was noticed before its goodbye came
			a.left = true
			r.gone[at] = a
		}
	}
	return true
}

// publish sets this node's own document and returns the message about it.
func (r *roster) publish(text []byte, now time.Time) news {
	doc := document{version: r.docs[r.self].version + 1, text: text, since: now}
	r.docs[r.self] = doc
	return news{id: r.self, version: doc.version, doc: text}
}

// current returns all members that are here. Where two were started at one
// address the later one has taken the other's place, which cannot be alive.
func (r *roster) current() []present {
	at := make(map[netip.AddrPort]present, len(r.alive))
	for _, p := range r.alive {
		if former, taken := at[p.at]; !taken || r.later(p, former) {
			at[p.at] = p
		}
	}
	return slices.SortedFunc(maps.Values(at), func(a, b present) int { return cmp.Compare(a.id, b.id) })
}

func (r *roster) later(a, b present) bool {
	if a.id == r.self || b.id == r.self {
		return a.id == r.self
	}
	return cmp.Or(cmp.Compare(a.Started, b.Started), cmp.Compare(a.id, b.id)) > 0
}

// members returns the current ones as others see them.
func (r *roster) members() []Member {
	var list []Member
	for _, p := range r.current() {
		list = append(list, r.member(p))
	}
	return list
}

func (r *roster) member(p present) Member {
	return Member{
		ID: p.id, Node: p.Node, Peer: p.Peer, API: p.API, Engines: p.Engines, Owns: p.Owns,
		Started: p.started(), Protocol: p.Protocol, State: r.docs[p.id].text, Self: p.id == r.self,
	}
}

// messages returns what is known of the members here, for a full exchange.
func (r *roster) messages() []news {
	var all []news
	for id := range r.alive {
		if doc, ok := r.docs[id]; ok {
			all = append(all, news{id: id, version: doc.version, doc: doc.text})
		}
	}
	return all
}

// occupied reports whether a member is at an address.
func (r *roster) occupied(at netip.AddrPort) bool {
	for _, p := range r.alive {
		if p.at == at {
			return true
		}
	}
	return false
}

// missing returns where members were that vanished without a goodbye.
func (r *roster) missing() []netip.AddrPort {
	var list []netip.AddrPort
	for at, a := range r.gone {
		if !a.left {
			list = append(list, at)
		}
	}
	return list
}

// count returns how many members are here, have left and are missing.
func (r *roster) count() (alive, left, dead int) {
	dead = len(r.missing())
	return len(r.current()), len(r.gone) - dead, dead
}

// forget drops what is too old to matter.
func (r *roster) forget(now time.Time) {
	maps.DeleteFunc(r.gone, func(_ netip.AddrPort, a absent) bool { return now.Sub(a.since) > r.forgetAfter })
	maps.DeleteFunc(r.leavers, func(_ string, since time.Time) bool { return now.Sub(since) > r.forgetAfter })
	maps.DeleteFunc(r.docs, func(id string, doc document) bool {
		_, here := r.alive[id]
		return !here && now.Sub(doc.since) > strayTime
	})
}
