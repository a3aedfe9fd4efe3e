package bolt

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rowmill/rowmill/store"
)

// everyone is the account under which bucket audit holds all entries once more.
const everyone = ""

// AppendAudit adds an entry to the audit record.
func (s *Store) AppendAudit(ctx context.Context, e store.AuditEntry) error {
	if err := e.Check(); err != nil {
		return fmt.Errorf("append to the audit record: %w", err)
	}
	return s.write(ctx, func(t *tx) error { return t.appendAudit(e) })
}

func (t *tx) appendAudit(e store.AuditEntry) error {
	raw, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode entry %s of the audit record: %w", e.ID, err)
	}
	for _, account := range []string{e.Account, everyone} {
		key := orderKey(account, e.At, e.ID)
		if t.get(bucketAudit, key) != nil {
			continue
		}
		if err := t.put(bucketAudit, key, raw); err != nil {
			return err
		}
	}
	return nil
}

// ListAudit returns entries of the audit record, newest first.
func (s *Store) ListAudit(ctx context.Context, account string, limit int, cursor string) ([]store.AuditEntry, string, error) {
	start, err := pageStart(account, limit, cursor)
	if err != nil {
		return nil, "", err
	}
	var entries []store.AuditEntry
	var next string
	err = s.view(ctx, func(t *tx) error {
		c := t.Bucket(bucketAudit).Cursor()
		prefix := []byte(account + "\x00")
		for key, raw := lastBelow(c, start); bytes.HasPrefix(key, prefix); key, raw = c.Prev() {
			if len(entries) == limit {
				last := entries[limit-1]
				next = store.EncodeCursor(append(position(last.At), last.ID...))
				return nil
			}
			var e store.AuditEntry
			if err := json.Unmarshal(raw, &e); err != nil {
				return fmt.Errorf("decode an entry: %w", err)
			}
			entries = append(entries, e)
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, "", fmt.Errorf("list the audit record: %w", err)
	}
	return entries, next, nil
}

// AuditAfter returns entries of all accounts behind a place, oldest first.
func (s *Store) AuditAfter(ctx context.Context, at time.Time, id string, limit int) ([]store.AuditEntry, error) {
	if _, err := store.CheckPage(limit, "", positionBytes); err != nil {
		return nil, err
	}
	var entries []store.AuditEntry
	err := s.view(ctx, func(t *tx) error {
		c := t.Bucket(bucketAudit).Cursor()
		place := orderKey(everyone, at, id)
		key, raw := c.Seek(place)
		if id != "" && bytes.Equal(key, place) {
			key, raw = c.Next()
		}
		for ; bytes.HasPrefix(key, []byte(everyone+"\x00")) && len(entries) < limit; key, raw = c.Next() {
			var e store.AuditEntry
			if err := json.Unmarshal(raw, &e); err != nil {
				return fmt.Errorf("decode an entry: %w", err)
			}
			entries = append(entries, e)
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("read the audit record: %w", err)
	}
	return entries, nil
}
