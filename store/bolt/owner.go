package bolt

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// fenced reads the header of a job that f owns and that is not over.
func (s *Store) fenced(t *tx, f store.Fence) (header, error) {
	h, err := t.ours(f.JobID)
	switch {
	case err != nil:
		return h, err
	case f.Session == "" || h.Session != f.Session || h.Epoch != f.Epoch || !s.sessions.alive(f.Session):
		return h, fmt.Errorf("job %s, session %q, epoch %d: %w", f.JobID, f.Session, f.Epoch, rowmill.ErrLeaseLost)
	case h.Job.Status.Terminal():
		return h, fmt.Errorf("job %s is %s: %w", f.JobID, h.Job.Status, rowmill.ErrTerminal)
	}
	return h, t.writer.Check(f.JobID, t.holds)
}

// Claim makes session the owner of an orphan.
func (s *Store) Claim(ctx context.Context, jobID, session string, by store.Adopter) (store.Record, error) {
	var claimed store.Record
	err := s.write(ctx, func(t *tx) error {
		before, err := t.writable(jobID)
		if err != nil {
			return err
		}
		switch {
		case !s.sessions.alive(session):
			return fmt.Errorf("claim job %s for session %q: %w", jobID, session, rowmill.ErrLeaseLost)
		case before.Job.Status.Terminal():
			return fmt.Errorf("claim job %s, which is %s: %w", jobID, before.Job.Status, rowmill.ErrTerminal)
		case before.Session != "" && s.sessions.alive(before.Session):
			return fmt.Errorf("claim job %s: it has a live owner: %w", jobID, rowmill.ErrConflict)
		}
		after := before
		after.Adopt(session, store.NextEpoch(before.Epoch, s.config.Clock()), by)
		after.Version++
		if after.Job.Status == rowmill.StatusPending {
			if err := after.Job.Become(rowmill.StatusSubmitted, s.config.Clock()); err != nil {
				return fmt.Errorf("claim job %s: %w", jobID, err)
			}
		}
		if err := t.saveHeader(before, after); err != nil {
			return err
		}
		turn, err := t.Bucket(bucketTurns).NextSequence()
		if err != nil {
			return err
		}
		if err := t.put(bucketTurns, []byte(after.Account), binary.BigEndian.AppendUint64(nil, turn)); err != nil {
			return err
		}
		claimed, err = t.record(after)
		return err
	})
	if err != nil {
		return store.Record{}, err
	}
	return claimed, nil
}

// Release gives a job back.
func (s *Store) Release(ctx context.Context, f store.Fence) error {
	return s.write(ctx, func(t *tx) error {
		before, err := s.fenced(t, f)
		if err != nil {
			return fmt.Errorf("release: %w", err)
		}
		after := before
		after.Session = ""
		after.Note(store.Event{At: s.config.Clock().UnixMilli(), What: store.EventReleased})
		after.Version++
		return t.saveHeader(before, after)
	})
}

// An applicant is an account with orphans.
type applicant struct {
	account string
	taken   int           // its jobs with a live owner, and those listed so far
	turn    int64         // when a job of it was last claimed; 0 for never
	dead    []place       // its orphans of dead sessions, oldest first
	waiting *bbolt.Cursor // walks the account's jobs without a session
	next    *place        // where waiting stands; nil at its end
}

// A place is one open job in the order of creation.
type place struct {
	key []byte
	store.Orphan
}

// Orphans lists jobs without a live owner. Whoever has the fewest jobs with an
// owner comes first, then whoever's last turn is longest ago: so that accounts
// take turns also across calls and with a single slot.
//
// The cost grows with the jobs that have an owner, the accounts that wait and
// the limit, not with the jobs that are over or wait.
func (s *Store) Orphans(ctx context.Context, limit int) ([]store.Orphan, error) {
	var orphans []store.Orphan
	err := s.view(ctx, func(t *tx) error {
		applicants, err := s.applicants(t)
		if err != nil {
			return err
		}
		for len(orphans) < limit && len(applicants) > 0 {
			i := first(applicants)
			orphan, more := applicants[i].pop()
			h, err := t.writable(orphan.JobID)
			orphan.Priority, orphan.Tried = h.Job.Priority, h.Tried()
			if !errors.Is(err, store.ErrNewer) {
				orphans = append(orphans, orphan)
			}
			if !more {
				applicants = slices.Delete(applicants, i, i+1)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find orphans: %w", err)
	}
	return orphans, nil
}

// first is the index of the account whose turn it is.
func first(applicants []*applicant) int {
	best := 0
	for i, a := range applicants {
		b := applicants[best]
		if cmp.Or(cmp.Compare(a.taken, b.taken), cmp.Compare(a.turn, b.turn), strings.Compare(a.account, b.account)) < 0 {
			best = i
		}
	}
	return best
}

// applicants returns the accounts that have orphans.
func (s *Store) applicants(t *tx) ([]*applicant, error) {
	known := map[string]*applicant{}
	account := func(name string) *applicant {
		a := known[name]
		if a == nil {
			a = &applicant{account: name}
			known[name] = a
		}
		return a
	}
	owned := t.Bucket(bucketOwned).Cursor()
	for key, value := owned.First(); key != nil; key, value = owned.Next() {
		status, session, _ := strings.Cut(string(value), "\x00")
		name, _, id, ok := splitOrderKey(key)
		if !ok {
			return nil, fmt.Errorf("index of owned jobs holds a key of %d bytes that is none", len(key))
		}
		if s.sessions.alive(session) {
			account(name).taken++
			continue
		}
		a := account(name)
		a.dead = append(a.dead, place{key: bytes.Clone(key), Orphan: store.Orphan{JobID: id, Account: name, Status: rowmill.Status(status)}})
	}
	waiting := t.Bucket(bucketWaiting).Cursor()
	for key, _ := waiting.First(); key != nil; {
		name, _, _, ok := splitOrderKey(key)
		if !ok {
			return nil, fmt.Errorf("index of waiting jobs holds a key of %d bytes that is none", len(key))
		}
		a := account(name)
		a.waiting = t.Bucket(bucketWaiting).Cursor()
		a.stand(a.waiting.Seek(key))
		key, _ = waiting.Seek([]byte(name + "\x01"))
	}
	var applicants []*applicant
	for _, a := range known {
		if len(a.dead) == 0 && a.next == nil {
			continue
		}
		if raw := t.get(bucketTurns, []byte(a.account)); raw != nil {
			turn, err := number(raw)
			if err != nil {
				return nil, fmt.Errorf("read the last turn of an account: %w", err)
			}
			a.turn = turn
		}
		applicants = append(applicants, a)
	}
	return applicants, nil
}

// stand notes where the cursor is.
func (a *applicant) stand(key, value []byte) {
	a.next = nil
	if key == nil {
		return
	}
	if account, _, id, ok := splitOrderKey(key); ok && account == a.account {
		a.next = &place{key: bytes.Clone(key), Orphan: store.Orphan{JobID: id, Account: account, Status: rowmill.Status(value)}}
	}
}

// pop takes the account's oldest orphan.
func (a *applicant) pop() (orphan store.Orphan, more bool) {
	a.taken++
	if a.next == nil || len(a.dead) > 0 && bytes.Compare(a.dead[0].key, a.next.key) < 0 {
		orphan, a.dead = a.dead[0].Orphan, a.dead[1:]
	} else {
		orphan = a.next.Orphan
		a.stand(a.waiting.Next())
	}
	return orphan, len(a.dead) > 0 || a.next != nil
}
