package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/jsonpreserve"
)

// RewriteValue writes v as the document with this name if the stored version equals
// version (0: the document must not exist), and returns the new version. Otherwise the
// error is rowmill.ErrConflict. RewriteValue keeps members of the stored document that the
// type of v does not have.
func RewriteValue(ctx context.Context, values NamedValues, name string, v any, version int64) (int64, error) {
	stored, current, err := values.GetValue(ctx, name)
	switch {
	case errors.Is(err, rowmill.ErrNotFound):
		stored = nil
	case err != nil:
		return 0, err
	}
	if current != version {
		return 0, fmt.Errorf("put value %s: its version is %d, not %d: %w", name, current, version, rowmill.ErrConflict)
	}
	doc, err := jsonpreserve.Rewrite(stored, v)
	if err != nil {
		return 0, fmt.Errorf("encode value %s: %w", name, err)
	}
	return values.PutValue(ctx, name, doc, version)
}
