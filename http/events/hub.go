// Package events owns who listens to what, and what is new for whom: a hub for all
// streams of a node. It looks at the store once a second for all of them together,
// since jobs live on other nodes too, and not at all while nobody listens. It knows
// ids and versions; what an event shows, to whom, and how it is written is not its
// matter.
//
//	Join ── look at what nobody listened to ──► Initial: what there is, or what
//	                                            changed since a position
//	each second: Active, Marks ── compare ────► pending of each listener ──► Take
//
// Pending is a set of ids, not a queue: whoever reads slowly gets the latest state
// of each job once, and costs no more memory than the jobs that changed.
package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

const (
	// pollEvery is the time between two looks at the store: as often as people
	// want to see progress. No job has more than one event in it.
	pollEvery = time.Second
	// pollPatience bounds one look, for which all listeners wait together.
	pollPatience = 10 * time.Second
	// keepFor is how long it is known what changed while nobody listened or a job
	// was over: longer than a browser or a proxy takes to connect again.
	keepFor = time.Minute
	// newFor is how far back a look asks for new jobs: one that was over before
	// the next look is seen all the same, also where the clock of the node that
	// took it is off by a little.
	newFor = 10 * time.Second
	// maxWaiting is how many jobs of an account are looked at that nobody runs:
	// more than a page shows. Others are seen from the moment that a node takes
	// them.
	maxWaiting = 1000
	// maxShared bounds the jobs that are held for other listeners between two
	// looks.
	maxShared = 1000
)

// ErrFull says that as many listen as may.
var ErrFull = errors.New("as many listen as may")

// A Topic is what can be listened to: the jobs of an account, one of them, or, where
// both are empty, the nodes.
type Topic struct{ Account, Job string }

// Nodes is the topic of the nodes.
var Nodes Topic

// Source is what a hub needs of a store.
type Source interface {
	Active(ctx context.Context, accounts []string, since time.Time, limit int) ([][]string, error)
	Marks(ctx context.Context, jobIDs []string, writer string) ([]store.Mark, error)
	Get(ctx context.Context, jobID string) (store.Record, error)
}

// Config is what a Hub is made of.
type Config struct {
	Store Source
	// Nodes are the nodes as they are shown.
	Nodes func(ctx context.Context) string
	// Waiting says what a job of an account waits for where its record cannot. It
	// is asked with id and status alone, of jobs that are topics of their own.
	Waiting func(job *rowmill.Job, account string) string
	Logger  *slog.Logger
	Now     func() time.Time
	Most    int // listeners at once
}

// A Hub tells listeners what has changed.
type Hub struct {
	cfg     Config
	start   string        // of this process; leads the ids of events
	looking chan struct{} // full while somebody looks at the store

	mu        sync.Mutex
	seq       int64 // grows with each change
	topics    map[Topic]*topic
	listeners map[*Listener]struct{}
	stop      context.CancelFunc // ends the looks; nil while nobody listens
	shared    map[string]*reading
}

// A topic is what is known of one.
type topic struct {
	items  map[string]item // by job id; the empty one stands for the nodes
	floor  int64           // of changes up to here not all are known
	looked time.Time       // when the last look that succeeded began
	left   time.Time       // when the last listener left
	by     map[*Listener]struct{}
}

// An item is a job, or the list of nodes, as it was last seen.
type item struct {
	state
	seq int64     // of its last change
	at  time.Time // of its last change
}

// A state differs when there is something to tell.
type state struct {
	mark  store.Mark
	shown string // what clients see beside the record: the nodes, what one job waits for
}

func (i item) over() bool { return i.mark.Status.Terminal() }

// New returns a hub that nobody listens to.
func New(cfg Config) *Hub {
	return &Hub{
		cfg: cfg, start: strings.ReplaceAll(uuid.NewString(), "-", "")[:12], looking: make(chan struct{}, 1),
		topics: map[Topic]*topic{}, listeners: map[*Listener]struct{}{}, shared: map[string]*reading{},
	}
}

// A Change is that of a job, or of the nodes.
type Change struct {
	Job   string // id; empty for the nodes
	Nodes string // what they are shown as
	Seq   int64  // 0: part of all there is
}

// A Listener is one stream. One goroutine uses it.
type Listener struct {
	hub    *Hub
	topics []Topic

	// Wake has an element when there is something to Take.
	Wake chan struct{}
	// Initial comes before all that is taken. Whole says that it is what there is,
	// and not what changed since the position asked for; Lost, that it would have
	// been the latter if that were known.
	Initial     []Change
	Whole, Lost bool
	// Position is the id of an event that says that all of Initial was seen.
	Position string

	pending map[string]int64 // job ids to sequence; Hub.mu guards it
}

// Join adds a listener, who must Leave. last is the id of the last event that it saw,
// or empty.
func (h *Hub) Join(ctx context.Context, topics []Topic, last string) (*Listener, error) {
	l := &Listener{hub: h, topics: topics, Wake: make(chan struct{}, 1), pending: map[string]int64{}}
	if err := h.enter(l); err != nil {
		return nil, err
	}
	if err := h.look(ctx, func() []Topic { return h.stale(topics) }); err != nil {
		l.Leave()
		return nil, err
	}
	h.begin(l, last)
	return l, nil
}

// enter registers a listener.
func (h *Hub) enter(l *Listener) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.listeners) >= h.cfg.Most {
		return ErrFull
	}
	h.expire()
	h.listeners[l] = struct{}{}
	for _, name := range l.topics {
		t := h.topics[name]
		if t == nil {
			t = &topic{items: map[string]item{}, by: map[*Listener]struct{}{}}
			h.topics[name] = t
		}
		t.by[l] = struct{}{}
	}
	if h.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		h.stop = stop
		go h.watch(ctx)
	}
	return nil
}

// expire forgets topics that nobody has listened to for long: h.mu is held.
func (h *Hub) expire() {
	now := h.cfg.Now()
	maps.DeleteFunc(h.topics, func(_ Topic, t *topic) bool {
		return len(t.by) == 0 && (t.looked.IsZero() || now.Sub(t.left) > keepFor)
	})
}

// Leave ends listening. The last one ends the looks at the store.
func (l *Listener) Leave() {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.listeners, l)
	for _, name := range l.topics {
		if t := h.topics[name]; t != nil {
			delete(t.by, l)
			t.left = h.cfg.Now()
		}
	}
	if len(h.listeners) == 0 && h.stop != nil {
		h.stop()
		h.stop = nil
		clear(h.shared)
	}
}

// begin says what a listener gets first.
func (h *Hub) begin(l *Listener, last string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen, known := h.position(l, last)
	l.Whole, l.Lost, l.Position = !known, !known && last != "", h.ID(h.seq)
	clear(l.pending)
	for _, name := range l.topics {
		for id, i := range h.topics[name].items {
			if known && i.seq > seen || !known && (name.Job != "" || !i.over()) {
				l.pending[id] = i.seq
			}
		}
	}
	l.Initial = l.take()
	if !known {
		for i := range l.Initial {
			l.Initial[i].Seq = 0
		}
	}
}

// position reads the id of an event, and reports whether all is known that changed
// for a listener since: h.mu is held.
func (h *Hub) position(l *Listener, id string) (seen int64, known bool) {
	start, number, _ := strings.Cut(id, "-")
	seen, err := strconv.ParseInt(number, 10, 64)
	known = err == nil && start == h.start && seen <= h.seq
	for _, name := range l.topics {
		known = known && seen >= h.topics[name].floor
	}
	return seen, known
}

// ID is that of an event: from it on a listener of this process need not be told
// anything again. Sequence 0 is that of all there is.
func (h *Hub) ID(seq int64) string { return fmt.Sprintf("%s-%d", h.start, seq) }

// Take returns what has changed since it was last called, the latest change last.
func (l *Listener) Take() []Change {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	return l.take()
}

func (l *Listener) take() []Change {
	changes := make([]Change, 0, len(l.pending))
	for id, seq := range l.pending {
		c := Change{Job: id, Seq: seq}
		if id == "" {
			c.Nodes = l.hub.topics[Nodes].items[""].shown
		}
		changes = append(changes, c)
	}
	clear(l.pending)
	slices.SortFunc(changes, func(a, b Change) int { return cmp.Compare(a.Seq, b.Seq) })
	return changes
}

// Again puts back what was taken and could not be told.
func (l *Listener) Again(changes []Change) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	for _, c := range changes {
		l.pending[c.Job] = max(l.pending[c.Job], c.Seq)
	}
}

// watch looks each second until ctx ends.
func (h *Hub) watch(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for failed := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := h.look(ctx, h.listened)
		if err != nil && ctx.Err() == nil && !failed {
			h.cfg.Logger.Warn("looking for changes of jobs failed, will be tried again", "err", err)
		}
		failed = err != nil
	}
}

// listened are the topics of all listeners.
func (h *Hub) listened() []Topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expire()
	topics := slices.Collect(maps.Keys(h.topics))
	return slices.DeleteFunc(topics, func(name Topic) bool { return len(h.topics[name].by) == 0 })
}

// stale are those topics that are not looked at already.
func (h *Hub) stale(topics []Topic) []Topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.cfg.Now()
	return slices.DeleteFunc(slices.Clone(topics), func(name Topic) bool {
		return now.Sub(h.topics[name].looked) < 2*pollEvery
	})
}

// A sight is what a look found of a topic.
type sight struct {
	topic Topic
	ids   []string
}

// look compares topics with the store, one caller at a time, and tells listeners what
// has changed.
func (h *Hub) look(ctx context.Context, which func() []Topic) error {
	select {
	case h.looking <- struct{}{}:
		defer func() { <-h.looking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	topics := which()
	if len(topics) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pollPatience)
	defer cancel()
	began := h.cfg.Now()
	seen, ids, err := h.find(ctx, topics, began)
	if err != nil {
		return err
	}
	nodes := ""
	if slices.Contains(topics, Nodes) {
		nodes = h.cfg.Nodes(ctx)
	}
	marks := map[string]store.Mark{}
	if len(ids) > 0 {
		list, err := h.cfg.Store.Marks(ctx, ids, "")
		if err != nil {
			return err
		}
		for i, id := range ids {
			marks[id] = list[i]
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.shared)
	for _, s := range seen {
		if t := h.topics[s.topic]; t != nil {
			h.compare(t, s, marks, nodes, began)
		}
	}
	return nil
}

// find returns the jobs of topics that may have changed, and the ids of all.
func (h *Hub) find(ctx context.Context, topics []Topic, now time.Time) (seen []sight, ids []string, err error) {
	since := now
	var accounts []string
	h.mu.Lock()
	for _, name := range topics {
		s := sight{topic: name}
		t := h.topics[name]
		switch {
		case t == nil: // its listener has left
			continue
		case name == Nodes:
		case name.Job != "":
			s.ids = []string{name.Job}
		default:
			accounts = append(accounts, name.Account)
			for id, i := range t.items {
				if !i.over() {
					s.ids = append(s.ids, id)
				}
			}
			if !t.looked.IsZero() && t.looked.Before(since) {
				since = t.looked
			}
		}
		seen = append(seen, s)
	}
	h.mu.Unlock()
	if len(accounts) > 0 {
		active, err := h.cfg.Store.Active(ctx, accounts, since.Add(-newFor), maxWaiting)
		if err != nil {
			return nil, nil, err
		}
		n := 0
		for i := range seen {
			if seen[i].topic != Nodes && seen[i].topic.Job == "" {
				seen[i].ids = append(seen[i].ids, active[n]...)
				n++
			}
		}
	}
	for i := range seen {
		slices.Sort(seen[i].ids)
		seen[i].ids = slices.Compact(seen[i].ids)
		ids = append(ids, seen[i].ids...)
	}
	slices.Sort(ids)
	return seen, slices.Compact(ids), nil
}

// compare takes in what a look that began at a time found of a topic: h.mu is held.
func (h *Hub) compare(t *topic, s sight, marks map[string]store.Mark, nodes string, began time.Time) {
	first := t.looked.IsZero()
	// After a pause there may have been more new jobs than are looked at.
	if first || len(s.ids) >= maxWaiting && began.Sub(t.looked) > 2*pollEvery {
		h.seq++
		t.floor = h.seq
	}
	t.looked = began
	if s.topic == Nodes {
		h.note(t, "", state{shown: nodes}, began, first)
		return
	}
	for _, id := range s.ids {
		mark := marks[id]
		if mark == (store.Mark{}) { // the store has lost it
			delete(t.items, id)
			continue
		}
		now := state{mark: mark}
		if s.topic.Job != "" && !mark.Status.Terminal() { // of all at once it would change too often
			now.shown = h.cfg.Waiting(&rowmill.Job{ID: id, Status: mark.Status}, s.topic.Account)
		}
		h.note(t, id, now, began, first)
	}
	if s.topic.Job != "" {
		return
	}
	for id, i := range t.items {
		if i.over() && began.Sub(i.at) > keepFor {
			t.floor = max(t.floor, i.seq)
			delete(t.items, id)
		}
	}
}

// note takes in the state of an item, and tells the listeners of its topic where it is
// new: h.mu is held.
func (h *Hub) note(t *topic, id string, now state, at time.Time, first bool) {
	if before, known := t.items[id]; known && before.state == now {
		return
	}
	if !first {
		h.seq++
	}
	t.items[id] = item{now, h.seq, at}
	if first {
		return
	}
	for l := range t.by {
		l.pending[id] = h.seq
		select {
		case l.Wake <- struct{}{}:
		default: // it will wake anyway
		}
	}
}
