package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	driver "github.com/redis/go-redis/v9"

	"github.com/rowmill/rowmill/store"
)

// everyone is the account under which all entries are held once more.
const everyone = ""

// auditScript adds an entry. Repeating it changes nothing.
//
//	KEYS[1]  sorted set of the account's entries
//	KEYS[2]  sorted set of all entries
//	ARGV[1]  order, NUL, entry
var auditScript = guarded(`
redis.call('ZADD', KEYS[1], 0, ARGV[1])
redis.call('ZADD', KEYS[2], 0, ARGV[1])
return 1
`)

// AppendAudit adds an entry to the audit record.
func (s *Store) AppendAudit(ctx context.Context, e store.AuditEntry) error {
	if err := e.Check(); err != nil {
		return fmt.Errorf("append to the audit record: %w", err)
	}
	raw, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode entry %s of the audit record: %w", e.ID, err)
	}
	member := order(e.At, e.ID) + "\x00" + string(raw)
	keys := s.withMeta(s.key("audit", e.Account), s.key("audit", everyone))
	if _, err := s.try(ctx, true, func(ctx context.Context) error {
		return auditScript.Run(ctx, s.client, keys, member).Err()
	}); err != nil {
		return fmt.Errorf("append to the audit record: %w", err)
	}
	return nil
}

// ListAudit returns entries of the audit record, newest first.
func (s *Store) ListAudit(ctx context.Context, account string, limit int, cursor string) ([]store.AuditEntry, string, error) {
	members, err := s.page(ctx, "list the audit record", "audit", account, limit, cursor)
	if err != nil {
		return nil, "", err
	}
	var entries []store.AuditEntry
	next, last := "", ""
	for _, member := range members {
		if len(entries) == limit {
			next = store.EncodeCursor([]byte(last))
			break
		}
		place, raw, _ := strings.Cut(member, "\x00")
		var e store.AuditEntry
		if err := json.Unmarshal([]byte(raw), &e); err != nil {
			return nil, "", fmt.Errorf("list the audit record: decode an entry: %w", err)
		}
		entries, last = append(entries, e), place
	}
	return entries, next, nil
}

// AuditAfter returns entries of all accounts behind a place, oldest first.
func (s *Store) AuditAfter(ctx context.Context, at time.Time, id string, limit int) ([]store.AuditEntry, error) {
	if _, err := store.CheckPage(limit, "", orderDigits); err != nil {
		return nil, err
	}
	from := "[" + order(at, "")
	if id != "" {
		from = "(" + order(at, id) + "\x00\xff" // no JSON begins so: just behind the entry
	}
	var members *driver.StringSliceCmd
	if err := s.read(ctx, func(p driver.Pipeliner) {
		members = p.ZRangeByLex(ctx, s.key("audit", everyone), &driver.ZRangeBy{Min: from, Max: "+", Count: int64(limit)})
	}); err != nil {
		return nil, fmt.Errorf("read the audit record: %w", err)
	}
	var entries []store.AuditEntry
	for _, member := range members.Val() {
		_, raw, _ := strings.Cut(member, "\x00")
		var e store.AuditEntry
		if err := json.Unmarshal([]byte(raw), &e); err != nil {
			return nil, fmt.Errorf("read the audit record: decode an entry: %w", err)
		}
		entries = append(entries, e)
	}
	return entries, ctx.Err()
}
