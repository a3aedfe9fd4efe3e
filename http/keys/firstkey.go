package keys

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/rowmill/rowmill/http/access"
	"github.com/rowmill/rowmill/http/audit"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/store"
)

// EnsureFirstKey creates an administrator key of the account "default" if the store has no
// keys. It returns the new key, which the caller must show once, or "" if the store has
// keys.
func EnsureFirstKey(ctx context.Context, s store.Store, now time.Time) (string, error) {
	keys, err := s.ListKeys(ctx)
	if err != nil {
		return "", fmt.Errorf("list keys: %w", err)
	}
	if len(keys) > 0 {
		return "", nil
	}
	text, record := access.NewKey(caller.DefaultAccount, caller.RoleAdmin, "first start", now)
	entry := store.AuditEntry{
		ID: uuid.NewString(), At: now.UTC(), Account: record.Account, Action: audit.KeyCreate, Target: record.ID, ByName: "first start",
	}
	if entry.Details, err = json.Marshal(viewKey(record, nil)); err != nil {
		return "", fmt.Errorf("encode the first key: %w", err)
	}
	if err := s.AppendAudit(ctx, entry); err != nil {
		return "", fmt.Errorf("record the first key: %w", err)
	}
	if err := s.PutKey(ctx, record); err != nil {
		return "", fmt.Errorf("store the first key: %w", err)
	}
	return text, nil
}
