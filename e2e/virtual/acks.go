package virtual

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/store"
)

// acks collects the parts that owners acknowledged to workers on other nodes. An
// acknowledged part must be recorded, or another part must have one of its rows. Otherwise
// the rows are lost with the owner and run again.
type acks struct {
	now func() time.Duration

	mu    sync.Mutex
	parts map[string]*written // by key
	early []ack
}

// written is a stored part.
type written struct {
	since    time.Duration
	rows     *roaring.Bitmap // rows of the shard; nil: unknown
	recorded bool            // at any time
}

// An ack is the acknowledgement of a part without a record.
type ack struct {
	at  time.Duration
	key string
}

func newAcks(now func() time.Duration) *acks {
	return &acks{now: now, parts: make(map[string]*written)}
}

// part returns the entry of a part. The caller holds a.mu.
func (a *acks) part(key string) *written {
	p := a.parts[key]
	if p == nil {
		p = &written{since: a.now()}
		a.parts[key] = p
	}
	return p
}

// stored notes a new object.
func (a *acks) stored(key string) {
	if !strings.Contains(key, "/parts/") {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.part(key)
}

// recorded notes that the records of parts were written.
func (a *acks) recorded(parts ...store.Part) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range parts {
		known := a.part(short(p.Key))
		if known.recorded = true; known.rows == nil && !p.Complete {
			rows := roaring.New()
			if rows.UnmarshalBinary(p.Accepted) == nil {
				known.rows = rows
			}
		}
	}
}

// said notes a request from one node to another.
func (a *acks) said(request any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch r := request.(type) {
	case *peerv1.ReportRequest:
		for _, p := range r.GetParts() {
			if rows, err := assign.DecodeRowSet(p.GetRows()); err == nil {
				a.part(short(p.GetKey())).rows = rows.Bitmap
			}
		}
	case *peerv1.AssignRequest:
		for _, key := range r.GetAcked() {
			if key = short(key); !a.part(key).recorded {
				a.early = append(a.early, ack{a.now(), key})
			}
		}
	}
}

// unfounded returns the parts that were acknowledged too early.
func (a *acks) unfounded() (wrong []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.early {
		if !slices.Contains(wrong, e.key) && !a.needless(e) {
			wrong = append(wrong, e.key)
		}
	}
	return wrong
}

// needless reports whether another part may have a row of an acknowledged part. The caller
// holds a.mu.
func (a *acks) needless(e ack) bool {
	of, rows := shardOf(e.key), a.parts[e.key].rows
	for _, key := range slices.Sorted(maps.Keys(a.parts)) {
		other := a.parts[key]
		if key == e.key || shardOf(key) != of || other.since > e.at {
			continue
		}
		if other.rows == nil || rows == nil || other.rows.Intersects(rows) {
			return true
		}
	}
	return false
}

// shardOf returns the common prefix of the keys of all parts of a shard.
func shardOf(key string) string {
	head, rest, _ := strings.Cut(key, "/parts/")
	shard, _, _ := strings.Cut(rest, "-")
	return head + "/" + shard
}

// judgeAcks checks that no part was acknowledged too early.
func (a *account) judgeAcks() {
	for _, key := range a.acks.unfounded() {
		a.wrong("a worker was to let go of part %s, which was not recorded", plain(key))
	}
}
