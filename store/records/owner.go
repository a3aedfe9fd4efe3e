package records

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv"
)

// readOwnedHeader reads the header of a job and checks that f owns the job. If f does not own it,
// the error is rowmill.ErrLeaseLost; if the job has ended, rowmill.ErrTerminal.
func (t *tx) readOwnedHeader(f store.Fence) (jobHeader, error) {
	h, err := t.readCheckedHeader(f.JobID)
	if err != nil {
		return h, err
	}
	owns := f.Session != "" && h.Session == f.Session && h.Epoch == f.Epoch
	if owns {
		owns, err = t.isAlive(f.Session)
	}
	switch {
	case err != nil:
		return h, err
	case !owns:
		return h, fmt.Errorf("job %s, session %q, epoch %d: %w", f.JobID, f.Session, f.Epoch, rowmill.ErrLeaseLost)
	case h.Job.Status.IsTerminal():
		return h, fmt.Errorf("job %s is %s: %w", f.JobID, h.Job.Status, rowmill.ErrTerminal)
	}
	return h, t.writer.CheckLostWrites(f.JobID, t.recorded)
}

// isAlive reports whether a session is alive.
func (t *tx) isAlive(session string) (bool, error) {
	alive, err := t.AreAlive(session)
	return err == nil && alive[0], err
}

// Claim makes session the owner of a job without a live owner.
func (s *Store) Claim(ctx context.Context, jobID, session string, by store.Claim) (store.Record, error) {
	var claimed store.Record
	var damaged error
	err := s.write(ctx, func(t *tx) error {
		damaged = nil
		t.prefetchRecord(jobID)
		before, err := t.readHeaderForWrite(jobID)
		if err != nil {
			return err
		}
		alive, err := t.AreAlive(session, before.Session)
		if err != nil {
			return err
		}
		owned := alive[1]
		switch {
		case !alive[0]:
			return fmt.Errorf("claim job %s for session %q: %w", jobID, session, rowmill.ErrLeaseLost)
		case before.Job.Status.IsTerminal():
			return fmt.Errorf("claim job %s, which is %s: %w", jobID, before.Job.Status, rowmill.ErrTerminal)
		case owned:
			return fmt.Errorf("claim job %s: it has a live owner: %w", jobID, rowmill.ErrConflict)
		case before.Job.ParkedUntil != nil && before.Job.ParkedUntil.After(t.Now()):
			return fmt.Errorf("claim job %s: it is parked: %w", jobID, rowmill.ErrConflict)
		case before.Job.Paused:
			return fmt.Errorf("claim job %s: it is paused: %w", jobID, rowmill.ErrConflict)
		}
		after := before
		after.AddClaim(session, store.NextEpoch(before.Epoch, t.Now()), by)
		if after.Job.Status == rowmill.StatusPending {
			if err := after.Job.Become(rowmill.StatusSubmitted, t.Now()); err != nil {
				return fmt.Errorf("claim job %s: %w", jobID, err)
			}
		}
		if err := t.saveHeader(before, &after); err != nil {
			return err
		}
		t.Put(tableTurns, []byte(after.Account), nil) // the id of this transaction is the account's turn
		if claimed, err = t.completeRecord(after); errors.Is(err, store.ErrDamaged) {
			damaged, err = fmt.Errorf("claim job %s: it was ended as failed, because its record is damaged: %w", jobID, err), t.failRuined(after)
		}
		return err
	})
	if err = cmp.Or(err, damaged); err != nil {
		return store.Record{}, err
	}
	return claimed, nil
}

// Release ends the ownership of a job, so that another session can claim the job.
func (s *Store) Release(ctx context.Context, f store.Fence) error {
	return s.write(ctx, func(t *tx) error {
		before, err := t.readOwnedHeader(f)
		if err != nil {
			return fmt.Errorf("release: %w", err)
		}
		after := before
		after.Session = ""
		after.RemoveOwnersClaim()
		after.AddEvent(store.JobEvent{At: t.Now().UnixMilli(), What: store.EventReleased})
		return t.saveHeader(before, &after)
	})
}

// Park releases a job. No node can claim the job for the time pause.
func (s *Store) Park(ctx context.Context, f store.Fence, pause time.Duration, message string) error {
	return s.write(ctx, func(t *tx) error {
		before, err := t.readOwnedHeader(f)
		if err != nil {
			return fmt.Errorf("park: %w", err)
		}
		after := before
		after.Park(pause, t.Now(), message)
		return t.saveHeader(before, &after)
	})
}

// Unpark ends the parking of a job at once, so that a node can claim the job.
func (s *Store) Unpark(ctx context.Context, jobID string) error {
	return s.changeHeader(ctx, jobID, func(h *jobHeader, now time.Time) (bool, error) { return h.Unpark(now) })
}

// Reschedule changes the priority of an open job, pauses the job, or ends its pause.
func (s *Store) Reschedule(ctx context.Context, jobID string, change store.Schedule) (store.Record, error) {
	return s.changeUnfenced(ctx, jobID, func(rec *store.Record, now time.Time) (bool, error) { return rec.Reschedule(change, now) })
}

// An accountQueue is an account whose orphans Orphans may list.
type accountQueue struct {
	account string
	taken   int         // number of the account's jobs with a live owner, plus its orphans that Orphans has listed already
	turn    uint64      // id of the transaction of the account's last claim; 0 for never
	dead    []orphanJob // the account's jobs whose session has ended, oldest first
	waiting []orphanJob // the account's next jobs without a session, oldest first
	more    bool        // table waiting may hold more jobs than the field waiting
}

// An orphanJob is an open job with its accountTimeKey, which sorts jobs by creation.
type orphanJob struct {
	key []byte
	store.OrphanJob
}

// Orphans lists jobs without a live owner. The account with the fewest owned jobs comes
// first, then the account with the oldest last turn. The accounts therefore take turns
// across calls, even when each call asks for one job.
//
// The cost grows with the number of owned jobs, of waiting accounts and with the limit.
// It does not grow with the number of ended or waiting jobs.
func (s *Store) Orphans(ctx context.Context, limit int) ([]store.OrphanJob, error) {
	return viewList(ctx, s, "find orphans", func(t *tx) (orphans []store.OrphanJob, err error) {
		known := map[string]*accountQueue{}
		if err := t.readOwnedJobs(known); err != nil {
			return nil, err
		}
		waiting, err := t.scanAccounts(tableWaiting)
		if err != nil {
			return nil, err
		}
		for _, l := range waiting {
			a := accountQueueFor(known, l.account)
			a.more = l.more
			if err := a.addWaiting(l.first); err != nil {
				return nil, err
			}
		}
		candidates, err := t.collectCandidates(known)
		for err == nil && len(orphans) < limit && len(candidates) > 0 {
			var taken []store.OrphanJob
			taken, candidates, err = t.takeOrphans(candidates, limit-len(orphans))
			orphans = append(orphans, taken...)
		}
		return orphans, err
	})
}

// takeOrphans returns up to n orphans, each the oldest of the account whose turn it is. rest are
// the candidates that have more orphans. takeOrphans skips a job that this program must not
// write or cannot read.
func (t *tx) takeOrphans(candidates []*accountQueue, n int) (taken []store.OrphanJob, rest []*accountQueue, err error) {
	var found []store.OrphanJob
	for len(found) < n && len(candidates) > 0 {
		i := indexOfNextTurn(candidates)
		orphan, more, err := candidates[i].pop(t)
		if err != nil {
			return nil, nil, err
		}
		if !more {
			candidates = slices.Delete(candidates, i, i+1)
		}
		found = append(found, orphan)
		t.prefetchIDs([]string{orphan.JobID}, tableJobs)
	}
	for _, orphan := range found {
		h, err := t.readHeaderForWrite(orphan.JobID)
		switch {
		case err == nil:
			orphan.Priority, orphan.Claims = h.Job.Priority, h.Claims
			taken = append(taken, orphan)
		case t.logIfDamaged(err), errors.Is(err, store.ErrNewer), errors.Is(err, rowmill.ErrNotFound):
		default:
			return nil, nil, err
		}
	}
	return taken, candidates, nil
}

// indexOfNextTurn returns the index of the account whose turn is next: the account with the fewest
// taken jobs, then with the oldest last turn.
func indexOfNextTurn(candidates []*accountQueue) int {
	best := 0
	for i, a := range candidates {
		b := candidates[best]
		if cmp.Or(cmp.Compare(a.taken, b.taken), cmp.Compare(a.turn, b.turn), strings.Compare(a.account, b.account)) < 0 {
			best = i
		}
	}
	return best
}

// accountQueueFor returns the candidate of an account, and adds it to known if it is missing.
func accountQueueFor(known map[string]*accountQueue, account string) *accountQueue {
	a := known[account]
	if a == nil {
		a = &accountQueue{account: account}
		known[account] = a
	}
	return a
}

// readOwnedJobs reads table owned. For each account it counts the jobs with a live owner, and
// collects the jobs with a dead owner and the jobs that are not parked any more.
func (t *tx) readOwnedJobs(known map[string]*accountQueue) error {
	var jobs []orphanJob
	var sessions []string // session of each job in jobs, at the same index
	now := encodeTime(t.Now())
	for e, err := range t.scanUndamaged(kv.Range{Table: tableOwned}) {
		if err != nil {
			return err
		}
		status, session, _ := strings.Cut(string(e.Value), "\x00")
		account, _, id, ok := splitAccountTimeKey(e.Key)
		if !ok {
			return fmt.Errorf("a key of table %s is cut off", tableOwned)
		}
		if until, parked := strings.CutPrefix(session, "\x00"); parked {
			if until > string(now) {
				continue
			}
			session = ""
		}
		jobs = append(jobs, orphanJob{bytes.Clone(e.Key), store.OrphanJob{JobID: id, Account: account, Status: rowmill.Status(status)}})
		sessions = append(sessions, session)
	}
	unique := slices.Compact(slices.Sorted(slices.Values(sessions)))
	alive, err := t.AreAlive(unique...)
	if err != nil {
		return err
	}
	for i, p := range jobs {
		a := accountQueueFor(known, p.Account)
		if n, _ := slices.BinarySearch(unique, sessions[i]); alive[n] {
			a.taken++
		} else {
			a.dead = append(a.dead, p)
		}
	}
	return nil
}

// collectCandidates returns the accounts that have orphans, and sets the last turn of each.
func (t *tx) collectCandidates(known map[string]*accountQueue) (candidates []*accountQueue, err error) {
	var ranges []kv.Range
	for _, a := range known {
		if len(a.dead)+len(a.waiting) > 0 {
			candidates = append(candidates, a)
			ranges = append(ranges, kv.Range{Table: tableTurns, From: []byte(a.account), To: []byte(a.account + "\x00")})
		}
	}
	for e, err := range t.Scan(ranges...) {
		if err != nil && !t.logIfDamaged(err) {
			return nil, err
		}
		known[string(e.Key)].turn = e.Tx // 0 when the entry is damaged, as for an account that never had a turn
	}
	return candidates, nil
}

// addWaiting appends entries of table waiting to the account's jobs without a session.
func (a *accountQueue) addWaiting(found []kv.Entry) error {
	for _, e := range found {
		_, _, id, ok := splitAccountTimeKey(e.Key)
		if !ok {
			return fmt.Errorf("a key of table %s is cut off", tableWaiting)
		}
		a.waiting = append(a.waiting, orphanJob{e.Key, store.OrphanJob{JobID: id, Account: a.account, Status: rowmill.Status(e.Value)}})
	}
	return nil
}

// pop removes and returns the account's oldest orphan. more reports whether the account
// has further orphans.
func (a *accountQueue) pop(t *tx) (orphan store.OrphanJob, more bool, err error) {
	a.taken++
	if len(a.waiting) == 0 || len(a.dead) > 0 && bytes.Compare(a.dead[0].key, a.waiting[0].key) < 0 {
		orphan, a.dead = a.dead[0].OrphanJob, a.dead[1:]
		return orphan, len(a.dead)+len(a.waiting) > 0, nil
	}
	last := a.waiting[0]
	a.waiting = a.waiting[1:]
	if len(a.waiting) == 0 && a.more {
		err = a.refill(t, last.key)
	}
	return last.OrphanJob, len(a.dead)+len(a.waiting) > 0, err
}

// refillBy is the largest number of jobs that one refill reads for an account.
const refillBy = 64

// refill reads the account's next jobs without a session, after key.
func (a *accountQueue) refill(t *tx, key []byte) error {
	a.more = false
	r := kv.PrefixRange(tableWaiting, []byte(a.account+"\x00")).RestAfter(key)
	for e, err := range t.scanUndamaged(r) {
		if err == nil {
			err = a.addWaiting([]kv.Entry{{Key: bytes.Clone(e.Key), Value: bytes.Clone(e.Value)}})
		}
		if err != nil {
			return err
		}
		if a.more = len(a.waiting) == refillBy; a.more {
			break
		}
	}
	return nil
}
