// Package events finds changes of jobs and of the node list, and reports the changes to
// listeners, one for each event stream of a client. One hub serves all streams of a node.
// Other nodes change jobs too, so the hub polls the store once per second for all listeners
// together. Without listeners the hub does not poll. The hub handles only ids and versions;
// package streams decides which events a client may see, and writes the events.
//
//	Join ── poll topics without a listener ──► Initial: all current states, or the
//	                                           changes since a position
//	each second: ListActiveJobs, Revisions ── applyPoll ──► pending of each listener
//	                                                        ──► TakeChanges
//
// pending is a set of ids and not a queue: a slow listener gets the latest state of each
// job once. So the memory of pending is limited by the number of changed jobs.
package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/cache"
	"github.com/rowmill/rowmill/store"
)

const (
	// pollEvery is the time between two polls: as often as people want to see progress. A
	// job has at most one event per poll.
	pollEvery = time.Second
	// pollTimeout is the timeout of each poll. All listeners wait for the same poll.
	pollTimeout = 10 * time.Second
	// keepFor is how long the hub remembers a topic without listeners, and the last change
	// of an ended job. It is longer than a browser or a proxy needs to reconnect.
	keepFor = time.Minute
	// newFor is how far each poll looks back beyond the last poll when it asks for new jobs.
	// So a poll finds jobs that start and end between two polls, even if the clock of the
	// node that stored the job is slightly wrong.
	newFor = 10 * time.Second
	// maxWaiting limits how many waiting jobs of an account a poll reads. It is more than a
	// page of the job list shows. Listeners get the first event of each further waiting job
	// when a node starts the job.
	maxWaiting = 1000
	// maxShared limits how many jobs are cached between two polls, for all listeners.
	maxShared = 1000
)

// ErrFull means that the hub has Config.Most listeners.
var ErrFull = errors.New("the node has its greatest number of event streams")

// A Topic selects the changes that a listener receives: of all jobs of an account (Job
// is empty), of one job, or of the list of nodes (both fields are empty).
type Topic struct{ Account, Job string }

// Nodes is the topic of the list of nodes.
var Nodes Topic

// JobSource is the part of a store that a hub uses.
type JobSource interface {
	ListActiveJobs(ctx context.Context, accounts []string, since time.Time, limit int) ([][]string, error)
	Revisions(ctx context.Context, jobIDs []string, writer string) ([]store.Revision, error)
	Get(ctx context.Context, jobID string) (store.Record, error)
}

// Config configures a Hub. All fields are required.
type Config struct {
	Store JobSource
	// Nodes returns the list of nodes as JSON, for an event.
	Nodes func(ctx context.Context) string
	// Waiting returns the reason why a job of an account waits, if the job's record does
	// not contain this reason. The hub calls Waiting only for topics of a single job, with
	// the job's id and status.
	Waiting func(job *rowmill.Job, account string) string
	Logger  *slog.Logger
	Now     func() time.Time
	Most    int // greatest number of listeners
}

// A Hub finds changes of jobs and nodes, and reports them to its listeners.
type Hub struct {
	cfg     Config
	start   string        // random text of this process, the beginning of all its event ids
	polling chan struct{} // holds one element while a poll runs, so that only one poll runs at a time

	mu        sync.Mutex
	seq       int64 // sequence number of the latest change
	topics    map[Topic]*topicState
	listeners map[*Listener]struct{}
	stop      context.CancelFunc            // stops the polling; nil while there are no listeners
	readings  *cache.TTL[string, cachedJob] // cache of the jobs that were read since the last poll, by job id
}

// A topicState has the last known states of the items that a Topic selects.
type topicState struct {
	items         map[string]trackedItem // last known states by job id; the list of nodes has an empty id
	completeAfter int64                  // items may lack changes up to this sequence number
	polled        time.Time              // start of the last successful poll
	leftAt        time.Time              // when a listener of the topic last left
	listeners     map[*Listener]struct{}
}

// A trackedItem is the last known state of a job or of the list of nodes.
type trackedItem struct {
	itemState
	seq int64     // sequence number of the item's last change
	at  time.Time // time of the item's last change
}

// An itemState identifies a version of an item. If a poll finds another state, listeners get an
// event.
type itemState struct {
	revision store.Revision
	shown    string // text for clients that is in no record: the list of nodes, or the reason why a job waits
}

func (i trackedItem) hasEnded() bool { return i.revision.Status.IsTerminal() }

// New returns a hub without listeners. The hub polls the store only while it has
// listeners.
func New(cfg Config) *Hub {
	h := &Hub{
		cfg: cfg, start: strings.ReplaceAll(uuid.NewString(), "-", "")[:12], polling: make(chan struct{}, 1),
		topics: map[Topic]*topicState{}, listeners: map[*Listener]struct{}{},
	}
	h.readings = h.newJobCache()
	return h
}

// Join adds a listener for topics. The caller must call Leave when it no longer needs the
// listener. lastEventID is the id of the last event that the client received, or empty.
func (h *Hub) Join(ctx context.Context, topics []Topic, lastEventID string) (*Listener, error) {
	l := &Listener{hub: h, topics: topics, Wake: make(chan struct{}, 1), pending: map[string]int64{}}
	if err := h.register(l); err != nil {
		return nil, err
	}
	if err := h.poll(ctx, func() []Topic { return h.unpolledTopics(topics) }); err != nil {
		l.Leave()
		return nil, err
	}
	h.setInitial(l, lastEventID)
	return l, nil
}

// register adds a listener to the hub and to its topics, and starts the polling if the
// listener is the first. It returns ErrFull if there are too many listeners.
func (h *Hub) register(l *Listener) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.listeners) >= h.cfg.Most {
		return ErrFull
	}
	h.dropIdleTopics()
	h.listeners[l] = struct{}{}
	for _, name := range l.topics {
		t := h.topics[name]
		if t == nil {
			t = &topicState{items: map[string]trackedItem{}, listeners: map[*Listener]struct{}{}}
			h.topics[name] = t
		}
		t.listeners[l] = struct{}{}
	}
	if h.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		h.stop = stop
		go h.pollUntilDone(ctx)
	}
	return nil
}

// dropIdleTopics drops topics that have had no listener for keepFor, or that were never polled.
// The caller must hold h.mu.
func (h *Hub) dropIdleTopics() {
	now := h.cfg.Now()
	maps.DeleteFunc(h.topics, func(_ Topic, t *topicState) bool {
		return len(t.listeners) == 0 && (t.polled.IsZero() || now.Sub(t.leftAt) > keepFor)
	})
}

// EventID returns the id of the event with a sequence number. A client that reconnects with this
// id gets only later changes.
func (h *Hub) EventID(seq int64) string { return fmt.Sprintf("%s-%d", h.start, seq) }

// pollUntilDone polls the store each second until ctx ends.
func (h *Hub) pollUntilDone(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for failed := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := h.poll(ctx, h.activeTopics)
		if err != nil && ctx.Err() == nil && !failed {
			h.cfg.Logger.Warn("polling the store for changes of jobs failed, retrying", "err", err)
		}
		failed = err != nil
	}
}

// activeTopics returns the topics that have listeners.
func (h *Hub) activeTopics() []Topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropIdleTopics()
	topics := slices.Collect(maps.Keys(h.topics))
	return slices.DeleteFunc(topics, func(name Topic) bool { return len(h.topics[name].listeners) == 0 })
}

// unpolledTopics returns those of the topics that the regular polls have not read lately,
// because the topics had no listeners.
func (h *Hub) unpolledTopics(topics []Topic) []Topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.cfg.Now()
	return slices.DeleteFunc(slices.Clone(topics), func(name Topic) bool {
		return now.Sub(h.topics[name].polled) < 2*pollEvery
	})
}

// A pollTarget has the ids of jobs that a poll must read for a topic.
type pollTarget struct {
	topic Topic
	ids   []string
}

// poll compares some topics with the store, and notifies their listeners of changes.
// Only one poll runs at a time. poll waits for its turn, and then calls selectTopics to get
// the topics.
func (h *Hub) poll(ctx context.Context, selectTopics func() []Topic) error {
	select {
	case h.polling <- struct{}{}:
		defer func() { <-h.polling }()
	case <-ctx.Done():
		return ctx.Err()
	}
	topics := selectTopics()
	if len(topics) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	began := h.cfg.Now()
	seen, ids, err := h.findPollTargets(ctx, topics, began)
	if err != nil {
		return err
	}
	nodes := ""
	if slices.Contains(topics, Nodes) {
		nodes = h.cfg.Nodes(ctx)
	}
	marks := map[string]store.Revision{}
	if len(ids) > 0 {
		list, err := h.cfg.Store.Revisions(ctx, ids, "")
		if err != nil {
			return err
		}
		for i, id := range ids {
			marks[id] = list[i]
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readings = h.newJobCache()
	for _, s := range seen {
		if t := h.topics[s.topic]; t != nil {
			h.applyPoll(t, s, marks, nodes, began)
		}
	}
	return nil
}

// findPollTargets returns the jobs that may have changed: the job ids for each topic (targets), and
// the ids for all topics together without duplicates (ids). now is the start of the
// poll.
func (h *Hub) findPollTargets(ctx context.Context, topics []Topic, now time.Time) (targets []pollTarget, ids []string, err error) {
	since := now
	var accounts []string
	h.mu.Lock()
	for _, name := range topics {
		s := pollTarget{topic: name}
		t := h.topics[name]
		switch {
		case t == nil: // the topic's listener left, and the topic was dropped
			continue
		case name == Nodes:
		case name.Job != "":
			s.ids = []string{name.Job}
		default:
			accounts = append(accounts, name.Account)
			for id, i := range t.items {
				if !i.hasEnded() {
					s.ids = append(s.ids, id)
				}
			}
			if !t.polled.IsZero() && t.polled.Before(since) {
				since = t.polled
			}
		}
		targets = append(targets, s)
	}
	h.mu.Unlock()
	if len(accounts) > 0 {
		active, err := h.cfg.Store.ListActiveJobs(ctx, accounts, since.Add(-newFor), maxWaiting)
		if err != nil {
			return nil, nil, err
		}
		n := 0
		for i := range targets {
			if targets[i].topic != Nodes && targets[i].topic.Job == "" {
				targets[i].ids = append(targets[i].ids, active[n]...)
				n++
			}
		}
	}
	for i := range targets {
		slices.Sort(targets[i].ids)
		targets[i].ids = slices.Compact(targets[i].ids)
		ids = append(ids, targets[i].ids...)
	}
	slices.Sort(ids)
	return targets, slices.Compact(ids), nil
}

// applyPoll updates a topic with the result of a poll that started at the time began, and
// notifies the topic's listeners of changes. The caller must hold h.mu.
func (h *Hub) applyPoll(t *topicState, s pollTarget, revisions map[string]store.Revision, nodes string, began time.Time) {
	first := t.polled.IsZero()
	// After a pause the store may have more new jobs than one poll reads, so changes may
	// be missing.
	if first || len(s.ids) >= maxWaiting && began.Sub(t.polled) > 2*pollEvery {
		h.seq++
		t.completeAfter = h.seq
	}
	t.polled = began
	if s.topic == Nodes {
		h.updateItem(t, "", itemState{shown: nodes}, began, first)
		return
	}
	for _, id := range s.ids {
		mark := revisions[id]
		if mark == (store.Revision{}) { // the store no longer has the job
			delete(t.items, id)
			continue
		}
		now := itemState{revision: mark}
		if s.topic.Job != "" && !mark.Status.IsTerminal() { // only for the topic of a single job: the reasons of all jobs of an account would cause too many events
			now.shown = h.cfg.Waiting(&rowmill.Job{ID: id, Status: mark.Status}, s.topic.Account)
		}
		h.updateItem(t, id, now, began, first)
	}
	if s.topic.Job != "" {
		return
	}
	for id, i := range t.items {
		if i.hasEnded() && began.Sub(i.at) > keepFor {
			t.completeAfter = max(t.completeAfter, i.seq)
			delete(t.items, id)
		}
	}
}

// updateItem stores the state of an item, and notifies the topic's listeners if the state
// changed and this is not the first poll of the topic. The caller must hold h.mu.
func (h *Hub) updateItem(t *topicState, id string, state itemState, at time.Time, isFirstPoll bool) {
	if before, known := t.items[id]; known && before.itemState == state {
		return
	}
	if !isFirstPoll {
		h.seq++
	}
	t.items[id] = trackedItem{state, h.seq, at}
	if isFirstPoll {
		return
	}
	for l := range t.listeners {
		l.pending[id] = h.seq
		select {
		case l.Wake <- struct{}{}:
		default: // the listener has a wake-up that it has not read yet
		}
	}
}
