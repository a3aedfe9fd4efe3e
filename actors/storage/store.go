package storage

import (
	"context"
	"time"

	"github.com/rowmill/rowmill/store"
)

// A watchedStore is a store that reports to status whether each call has succeeded.
// Calls of other methods are not reported: they are rare, and would show nothing new.
type watchedStore struct {
	store.Store
	status *storageStatus
}

func (s *watchedStore) Ping(ctx context.Context) error {
	return s.status.recordResult(s.Store.Ping(ctx), writes)
}

func (s *watchedStore) OpenSession(ctx context.Context, node string, ttl time.Duration) (string, error) {
	session, err := s.Store.OpenSession(ctx, node, ttl)
	return session, s.status.recordResult(err, writes)
}

// RenewSession counts as a read: it needs no room, so its success says nothing about writes.
func (s *watchedStore) RenewSession(ctx context.Context, session string) error {
	return s.status.recordResult(s.Store.RenewSession(ctx, session), reads)
}

func (s *watchedStore) Create(ctx context.Context, rec store.Record, idem *store.Idempotency) (store.Record, bool, error) {
	stored, existed, err := s.Store.Create(ctx, rec, idem)
	return stored, existed, s.status.recordResult(err, writes)
}

func (s *watchedStore) Get(ctx context.Context, jobID string) (store.Record, error) {
	rec, err := s.Store.Get(ctx, jobID)
	return rec, s.status.recordResult(err, reads)
}

func (s *watchedStore) Head(ctx context.Context, jobID string) (*store.JobHead, error) {
	head, err := s.Store.Head(ctx, jobID)
	return head, s.status.recordResult(err, reads)
}

func (s *watchedStore) ListActiveJobs(ctx context.Context, accounts []string, since time.Time, limit int) ([][]string, error) {
	found, err := s.Store.ListActiveJobs(ctx, accounts, since, limit)
	return found, s.status.recordResult(err, reads)
}

func (s *watchedStore) Orphans(ctx context.Context, limit int) ([]store.OrphanJob, error) {
	orphans, err := s.Store.Orphans(ctx, limit)
	return orphans, s.status.recordResult(err, reads)
}

func (s *watchedStore) Claim(ctx context.Context, jobID, session string, by store.Claim) (store.Record, error) {
	rec, err := s.Store.Claim(ctx, jobID, session, by)
	return rec, s.status.recordResult(err, writes)
}

func (s *watchedStore) Release(ctx context.Context, f store.Fence) error {
	return s.status.recordResult(s.Store.Release(ctx, f), writes)
}

func (s *watchedStore) Park(ctx context.Context, f store.Fence, pause time.Duration, message string) error {
	return s.status.recordResult(s.Store.Park(ctx, f, pause, message), writes)
}

func (s *watchedStore) Update(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	rec, err := s.Store.Update(ctx, f, change)
	return rec, s.status.recordResult(err, writes)
}

func (s *watchedStore) Finish(ctx context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	rec, err := s.Store.Finish(ctx, f, change)
	return rec, s.status.recordResult(err, writes)
}

func (s *watchedStore) CommitParts(ctx context.Context, f store.Fence, parts []store.Part) error {
	return s.status.recordResult(s.Store.CommitParts(ctx, f, parts), writes)
}

func (s *watchedStore) ReplaceParts(ctx context.Context, f store.Fence, complete store.Part) error {
	return s.status.recordResult(s.Store.ReplaceParts(ctx, f, complete), writes)
}

func (s *watchedStore) ListParts(ctx context.Context, jobID string) ([]store.Part, error) {
	parts, err := s.Store.ListParts(ctx, jobID)
	return parts, s.status.recordResult(err, reads)
}
