package virtual

import (
	"maps"
	"sync"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/store"
	recordstore "github.com/rowmill/rowmill/store/records"
)

// leases tracks the sessions of the store, and whether each still lives and may write.
type leases struct {
	mu    sync.Mutex
	ttl   map[string]time.Duration
	until map[string]time.Time
}

func newLeases() *leases {
	return &leases{ttl: make(map[string]time.Duration), until: make(map[string]time.Time)}
}

// opened notes a new session and its lifetime.
func (l *leases) opened(session string, ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ttl[session], l.until[session] = ttl, time.Now().Add(ttl)
}

func (l *leases) renewed(session string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until[session] = time.Now().Add(l.ttl[session])
}

func (l *leases) closed(session string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until[session] = time.Now()
}

// copied returns the same sessions for a copy of the store.
func (l *leases) copied() *leases {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &leases{ttl: maps.Clone(l.ttl), until: maps.Clone(l.until)}
}

func (l *leases) alive(session string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.until[session])
}

// claimed checks that a claimed job did not belong to a live session.
func (r *records) claimed(s *recordstore.Store, jobID string, do func() (store.Record, error)) (store.Record, error) {
	before, _ := s.Get(background, jobID)
	rec, err := do()
	if err == nil && before.Session != "" && r.side().leases.alive(before.Session) {
		r.wrong("job %s is claimed from a session that lives", short(jobID))
	}
	return rec, err
}

// fenced checks that an accepted write came from the owner of the job, with a live session.
func (r *records) fenced(s *recordstore.Store, f store.Fence, kind string, do func() error) error {
	before, looked := s.Get(background, f.JobID)
	err := do()
	if err == nil && looked == nil && (before.Session != f.Session || before.Epoch != f.Epoch || !r.side().leases.alive(f.Session)) {
		r.wrong("%s of job %s is taken, which is not its owner's", kind, short(f.JobID))
	}
	return err
}

func (r *records) wrong(format string, args ...any) {
	if r.world.account != nil { // a test without an account checks by itself
		r.world.account.wrong(format, args...)
	}
}

// overlap returns a part that has a row of another part of its shard, if there is one.
func overlap(parts []store.Part) (key string, found bool) {
	rows := make(map[int]*roaring.Bitmap)
	for _, p := range parts {
		mine := roaring.New()
		if p.Complete {
			mine.AddRange(0, uint64(p.Rows))
		} else if mine.UnmarshalBinary(p.Accepted) != nil {
			continue // see committed
		}
		if rows[p.Shard] == nil {
			rows[p.Shard] = mine
			continue
		}
		if rows[p.Shard].Intersects(mine) {
			return p.Key, true
		}
		rows[p.Shard].Or(mine)
	}
	return "", false
}
