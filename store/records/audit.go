package records

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv"
)

// allAccounts is an empty account name. Table audit has each entry twice: under its account, and
// under allAccounts, so that one scan reads the entries of all accounts.
const allAccounts = ""

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
	for _, account := range []string{e.Account, allAccounts} {
		key := accountTimeKey(account, e.At, e.ID)
		known, err := t.Get(tableAudit, key)
		if err != nil {
			return err
		}
		if known == nil {
			t.Put(tableAudit, key, raw)
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
	err = s.view(ctx, func(t *tx) (err error) {
		next = ""
		entries, err = t.readAuditEntries(kv.Range{Table: tableAudit, From: []byte(account + "\x00"), To: start, Reverse: true}, limit+1, nil)
		if err == nil && len(entries) > limit {
			entries = entries[:limit]
			last := entries[limit-1]
			next = store.EncodeCursor(append(encodeTime(last.At), last.ID...))
		}
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("list the audit record: %w", err)
	}
	return entries, next, nil
}

// readAuditEntries reads up to limit audit entries from a range of table audit, except the
// ids in known.
func (t *tx) readAuditEntries(r kv.Range, limit int, known map[string]bool) (entries []store.AuditEntry, err error) {
	for found, err := range t.scanUndamaged(r) {
		if err != nil {
			return nil, err
		}
		if _, _, id, _ := splitAccountTimeKey(found.Key); known[id] {
			continue
		}
		var e store.AuditEntry
		if err := json.Unmarshal(found.Value, &e); err != nil {
			return nil, fmt.Errorf("decode an entry: %w", err)
		}
		if entries = append(entries, e); len(entries) == limit {
			break
		}
	}
	return entries, nil
}

// AuditAfter returns entries of all accounts after a position, oldest first.
func (s *Store) AuditAfter(ctx context.Context, at time.Time, id string, limit int, known map[string]bool) ([]store.AuditEntry, error) {
	if _, err := store.DecodePageCursor(limit, "", positionBytes); err != nil {
		return nil, err
	}
	from := accountTimeKey(allAccounts, at, id)
	if id != "" {
		from = append(from, 0) // the smallest key after the entry with this id
	}
	return viewList(ctx, s, "read the audit record", func(t *tx) ([]store.AuditEntry, error) {
		return t.readAuditEntries(kv.Range{Table: tableAudit, From: from, To: []byte(allAccounts + "\x01")}, limit, known)
	})
}
