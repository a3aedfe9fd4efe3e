package events

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// A TopicChange says that a job or the list of nodes changed.
type TopicChange struct {
	Job   string // id of the job; empty for the list of nodes
	Nodes string // the list of nodes as JSON; empty for a job
	Seq   int64  // sequence number of the change; 0 if this is a current state and not a change
}

// A Listener receives the changes for one event stream. Only one goroutine may use it.
type Listener struct {
	hub    *Hub
	topics []Topic

	// Wake receives an element when new changes are ready for TakeChanges.
	Wake chan struct{}
	// Initial has the changes to send before all changes from TakeChanges. If Whole is
	// true, Initial has all current states; if false, it has the changes since the position
	// that the client asked for. Lost means that the client asked for a position that the
	// hub no longer knows.
	Initial     []TopicChange
	Whole, Lost bool
	// Position is the event id to send after Initial.
	Position string

	pending map[string]int64 // sequence numbers by job id; guarded by Hub.mu
}

// Leave removes the listener from the hub. The hub stops polling when no listener
// remains.
func (l *Listener) Leave() {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.listeners, l)
	for _, name := range l.topics {
		if t := h.topics[name]; t != nil {
			delete(t.listeners, l)
			t.leftAt = h.cfg.Now()
		}
	}
	if len(h.listeners) == 0 && h.stop != nil {
		h.stop()
		h.stop = nil
		h.readings = h.newJobCache()
	}
}

// setInitial sets Initial, Whole, Lost and Position of a listener. lastEventID is the id of
// the last event that the client received.
func (h *Hub) setInitial(l *Listener, lastEventID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen, known := h.parseEventID(l, lastEventID)
	l.Whole, l.Lost, l.Position = !known, !known && lastEventID != "", h.EventID(h.seq)
	clear(l.pending)
	for _, name := range l.topics {
		for id, i := range h.topics[name].items {
			if known && i.seq > seen || !known && (name.Job != "" || !i.hasEnded()) {
				l.pending[id] = i.seq
			}
		}
	}
	l.Initial = l.drainPending()
	if !known {
		for i := range l.Initial {
			l.Initial[i].Seq = 0
		}
	}
}

// parseEventID parses an event id and returns its sequence number. known is true if the hub
// has all changes since that event for the topics of the listener. The caller must hold
// h.mu.
func (h *Hub) parseEventID(l *Listener, id string) (seen int64, known bool) {
	start, number, _ := strings.Cut(id, "-")
	seen, err := strconv.ParseInt(number, 10, 64)
	known = err == nil && start == h.start && seen <= h.seq
	for _, name := range l.topics {
		known = known && seen >= h.topics[name].completeAfter
	}
	return seen, known
}

// TakeChanges returns the changes since the last call, oldest first. It does not wait; see Wake.
func (l *Listener) TakeChanges() []TopicChange {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	return l.drainPending()
}

func (l *Listener) drainPending() []TopicChange {
	changes := make([]TopicChange, 0, len(l.pending))
	for id, seq := range l.pending {
		c := TopicChange{Job: id, Seq: seq}
		if id == "" {
			c.Nodes = l.hub.topics[Nodes].items[""].shown
		}
		changes = append(changes, c)
	}
	clear(l.pending)
	slices.SortFunc(changes, func(a, b TopicChange) int { return cmp.Compare(a.Seq, b.Seq) })
	return changes
}

// PutBack takes back changes that could not be sent. The next TakeChanges returns these
// changes again.
func (l *Listener) PutBack(changes []TopicChange) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	for _, c := range changes {
		l.pending[c.Job] = max(l.pending[c.Job], c.Seq)
	}
}
