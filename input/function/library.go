package function

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/jsonpreserve"
)

// Values is the part of a store that holds Functions. Package store has the contract.
type Values interface {
	// GetValue returns a document and its version, or rowmill.ErrNotFound.
	GetValue(ctx context.Context, name string) (json.RawMessage, int64, error)
	// PutValue writes a document if it still has the given version (0: it must not
	// exist). Otherwise it returns rowmill.ErrConflict.
	PutValue(ctx context.Context, name string, doc json.RawMessage, version int64) (int64, error)
	// ListValues returns the names that start with prefix, sorted.
	ListValues(ctx context.Context, prefix string) ([]string, error)
}

// Library stores the Functions of all accounts. It has no state of its own.
type Library struct {
	Values Values
	Now    func() time.Time
}

// head is the document of a Function.
type head struct {
	Latest      json.RawMessage `json:"latest"`    // a rowmill.Function, as published
	Published   int             `json:"published"` // the published revision; 0: none
	PublishedAt *time.Time      `json:"published_at"`

	latest  rowmill.Function // Latest, decoded
	stored  []byte           // the whole document
	version int64            // version of the document; 0: no document yet
}

// Names of documents. Account names are escaped, so that an account's prefix never
// matches documents of another account.
func prefixOf(account string) string { return "functions/" + url.PathEscape(account) + "/" }

func headName(account, name string) string { return prefixOf(account) + name }

func revisionName(account, name string, revision int) string {
	return fmt.Sprintf("function_revisions/%s/%s/%d", url.PathEscape(account), name, revision)
}

// Publish stores a checked definition as the next revision and returns it. publish also
// makes it the published revision. If the Function is changed concurrently, Publish
// stores nothing and returns rowmill.ErrConflict.
func (l Library) Publish(ctx context.Context, account string, f rowmill.Function, publish bool) (rowmill.Function, error) {
	h, err := l.head(ctx, account, f.Name)
	if err != nil && !errors.Is(err, rowmill.ErrNotFound) {
		return rowmill.Function{}, err
	}
	if h.latest.Revision > 0 {
		if err := l.keepRevision(ctx, account, h); err != nil {
			return rowmill.Function{}, err
		}
	}
	f.Revision, f.Created, f.Published = h.latest.Revision+1, l.now(), nil
	if h.Latest, err = json.Marshal(f); err != nil {
		return rowmill.Function{}, fmt.Errorf("encode Function %s: %w", f.Name, err)
	}
	if publish {
		h.Published, h.PublishedAt = f.Revision, &f.Created
	}
	if err := l.put(ctx, account, f.Name, h); err != nil {
		return rowmill.Function{}, err
	}
	return h.markPublished(f), nil
}

// keepRevision copies the latest revision before it is replaced. The copy exists already if
// an earlier Publish failed after this step.
func (l Library) keepRevision(ctx context.Context, account string, h head) error {
	f := h.latest
	if _, err := l.Values.PutValue(ctx, revisionName(account, f.Name, f.Revision), h.Latest, 0); err != nil && !errors.Is(err, rowmill.ErrConflict) {
		return fmt.Errorf("keep revision %d of Function %s: %w", f.Revision, f.Name, err)
	}
	return nil
}

// Published returns the published revision, or rowmill.ErrNotFound if there is none.
func (l Library) Published(ctx context.Context, account, name string) (rowmill.Function, error) {
	if CheckName(name) != "" {
		return rowmill.Function{}, rowmill.ErrNotFound
	}
	h, err := l.head(ctx, account, name)
	if err == nil && h.Published == 0 {
		err = rowmill.ErrNotFound
	}
	if err != nil {
		return rowmill.Function{}, err
	}
	return l.revision(ctx, account, h, h.Published)
}

// Each calls yield with the published revision of every Function of the account, in
// order of names. It stops at the first error.
func (l Library) Each(ctx context.Context, account string, yield func(rowmill.Function) error) error {
	prefix := prefixOf(account)
	names, err := l.Values.ListValues(ctx, prefix)
	if err != nil {
		return fmt.Errorf("list Functions: %w", err)
	}
	for _, name := range names {
		f, err := l.Published(ctx, account, strings.TrimPrefix(name, prefix))
		if errors.Is(err, rowmill.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if err := yield(f); err != nil {
			return err
		}
	}
	return nil
}

// Revisions calls yield with every revision of a Function, newest first. It stops at
// the first error. For an unknown Function it returns rowmill.ErrNotFound.
func (l Library) Revisions(ctx context.Context, account, name string, yield func(rowmill.Function) error) error {
	h, err := l.existing(ctx, account, name)
	if err != nil {
		return err
	}
	for n := h.latest.Revision; n > 0; n-- {
		f, err := l.revision(ctx, account, h, n)
		if err != nil {
			return err
		}
		if err := yield(f); err != nil {
			return err
		}
	}
	return nil
}

// Revision returns a revision, published or not. For an unknown Function or revision it
// returns rowmill.ErrNotFound.
func (l Library) Revision(ctx context.Context, account, name string, revision int) (rowmill.Function, error) {
	_, f, err := l.requested(ctx, account, name, revision)
	return f, err
}

// Rollback publishes an existing revision, which may be a draft, and returns it.
// allowed may refuse the revision with an error. For an unknown Function or revision
// Rollback returns rowmill.ErrNotFound, and rowmill.ErrConflict if the Function is
// changed concurrently.
func (l Library) Rollback(ctx context.Context, account, name string, revision int, allowed func(rowmill.Function) error) (rowmill.Function, error) {
	h, f, err := l.requested(ctx, account, name, revision)
	if err == nil {
		err = allowed(f)
	}
	if err != nil {
		return rowmill.Function{}, err
	}
	now := l.now()
	h.Published, h.PublishedAt = revision, &now
	if err := l.put(ctx, account, name, h); err != nil {
		return rowmill.Function{}, err
	}
	return h.markPublished(f), nil
}

// Unpublish leaves the Function without a published revision; all revisions stay. If
// none is published, it returns rowmill.ErrNotFound.
func (l Library) Unpublish(ctx context.Context, account, name string) error {
	h, err := l.existing(ctx, account, name)
	if err == nil && h.Published == 0 {
		err = rowmill.ErrNotFound
	}
	if err != nil {
		return err
	}
	h.Published, h.PublishedAt = 0, nil
	return l.put(ctx, account, name, h)
}

// requested returns a revision by the name and number from a client, and the head of
// its Function.
func (l Library) requested(ctx context.Context, account, name string, revision int) (h head, f rowmill.Function, err error) {
	h, err = l.existing(ctx, account, name)
	if err == nil && (revision < 1 || revision > h.latest.Revision) {
		err = rowmill.ErrNotFound
	}
	if err == nil {
		f, err = l.revision(ctx, account, h, revision)
	}
	return h, f, err
}

// existing returns the head for a name from a client.
func (l Library) existing(ctx context.Context, account, name string) (head, error) {
	if CheckName(name) != "" {
		return head{}, rowmill.ErrNotFound
	}
	return l.head(ctx, account, name)
}

func (l Library) head(ctx context.Context, account, name string) (head, error) {
	var h head
	doc, version, err := l.Values.GetValue(ctx, headName(account, name))
	if err == nil {
		err = decode(doc, &h)
	}
	if err == nil {
		err = decode(h.Latest, &h.latest)
	}
	if err != nil {
		return head{}, fmt.Errorf("read Function %s: %w", name, err)
	}
	h.stored, h.version = doc, version
	return h, nil
}

func (l Library) put(ctx context.Context, account, name string, h head) error {
	doc, err := jsonpreserve.Rewrite(h.stored, h)
	if err != nil {
		return fmt.Errorf("encode Function %s: %w", name, err)
	}
	if _, err := l.Values.PutValue(ctx, headName(account, name), doc, h.version); err != nil {
		return fmt.Errorf("store Function %s: %w", name, err)
	}
	return nil
}

func (l Library) revision(ctx context.Context, account string, h head, n int) (rowmill.Function, error) {
	if n == h.latest.Revision {
		return h.markPublished(h.latest), nil
	}
	var f rowmill.Function
	doc, _, err := l.Values.GetValue(ctx, revisionName(account, h.latest.Name, n))
	if errors.Is(err, rowmill.ErrNotFound) {
		err = errors.New("the store has no copy of the revision") // a copy is never missing
	}
	if err == nil {
		err = decode(doc, &f)
	}
	if err != nil {
		return f, fmt.Errorf("read revision %d of Function %s: %w", n, h.latest.Name, err)
	}
	return h.markPublished(f), nil
}

// markPublished sets Published if f is the published revision, and clears it otherwise. It also
// replaces null fields by the empty values of the API.
func (h head) markPublished(f rowmill.Function) rowmill.Function {
	if string(f.Schema) == "null" {
		f.Schema = nil
	}
	if f.Inputs == nil {
		f.Inputs = []rowmill.FunctionInput{}
	}
	if f.Sampling == nil {
		f.Sampling = map[string]any{}
	}
	f.Published = nil
	if f.Revision == h.Published {
		f.Published = h.PublishedAt
	}
	return f
}

func (l Library) now() time.Time { return l.Now().UTC().Truncate(time.Microsecond) }

// decode decodes JSON and keeps numbers in their original form.
func decode(doc json.RawMessage, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(doc))
	decoder.UseNumber()
	return decoder.Decode(into)
}
