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

// DocumentStore is the part of a store that holds the documents of Functions. Package store
// defines the contract.
type DocumentStore interface {
	// GetValue returns a document and its version, or rowmill.ErrNotFound.
	GetValue(ctx context.Context, name string) (json.RawMessage, int64, error)
	// PutValue writes a document if its stored version still is the given version.
	// Version 0 means that the document must not exist. Otherwise PutValue returns
	// rowmill.ErrConflict.
	PutValue(ctx context.Context, name string, doc json.RawMessage, version int64) (int64, error)
	// ListValues returns the names that start with prefix, sorted.
	ListValues(ctx context.Context, prefix string) ([]string, error)
}

// Library stores the Functions of all accounts in Values. It has no state of its own.
type Library struct {
	Values DocumentStore
	Now    func() time.Time
}

// functionRecord is the stored document of a Function: the latest revision, and which revision is
// published.
type functionRecord struct {
	Latest      json.RawMessage `json:"latest"`       // a rowmill.Function, as published
	Published   int             `json:"published"`    // number of the published revision; 0: none is published
	PublishedAt *time.Time      `json:"published_at"` // time of publication; nil: none is published

	latest  rowmill.Function // Latest, decoded
	stored  []byte           // the document as it was read
	version int64            // version of the document; 0: no document yet
}

// prefixOf returns the prefix of an account's document names. It escapes the account
// name, so that the prefix never matches documents of another account.
func prefixOf(account string) string { return "functions/" + url.PathEscape(account) + "/" }

// recordName returns the name of a Function's document.
func recordName(account, name string) string { return prefixOf(account) + name }

// revisionName returns the name of the document with a copy of an older revision.
func revisionName(account, name string, revision int) string {
	return fmt.Sprintf("function_revisions/%s/%s/%d", url.PathEscape(account), name, revision)
}

// AddRevision stores a checked definition as the next revision and returns it. If publish
// is true, the new revision also becomes the published revision. If another client
// changes the Function at the same time, AddRevision stores nothing and returns
// rowmill.ErrConflict.
func (l Library) AddRevision(ctx context.Context, account string, f rowmill.Function, publish bool) (rowmill.Function, error) {
	h, err := l.readRecord(ctx, account, f.Name)
	if err != nil && !errors.Is(err, rowmill.ErrNotFound) {
		return rowmill.Function{}, err
	}
	if h.latest.Revision > 0 {
		if err := l.saveRevision(ctx, account, h); err != nil {
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
	if err := l.putRecord(ctx, account, f.Name, h); err != nil {
		return rowmill.Function{}, err
	}
	return h.withPublishedTime(f), nil
}

// saveRevision stores a copy of the latest revision before AddRevision replaces it. An
// existing copy is no error, because an earlier call of AddRevision may have failed after
// this step.
func (l Library) saveRevision(ctx context.Context, account string, h functionRecord) error {
	f := h.latest
	if _, err := l.Values.PutValue(ctx, revisionName(account, f.Name, f.Revision), h.Latest, 0); err != nil && !errors.Is(err, rowmill.ErrConflict) {
		return fmt.Errorf("keep revision %d of Function %s: %w", f.Revision, f.Name, err)
	}
	return nil
}

// GetPublished returns the published revision of a Function, or rowmill.ErrNotFound if no
// revision is published.
func (l Library) GetPublished(ctx context.Context, account, name string) (rowmill.Function, error) {
	if FindNameProblem(name) != "" {
		return rowmill.Function{}, rowmill.ErrNotFound
	}
	h, err := l.readRecord(ctx, account, name)
	if err == nil && h.Published == 0 {
		err = rowmill.ErrNotFound
	}
	if err != nil {
		return rowmill.Function{}, err
	}
	return l.readRevision(ctx, account, h, h.Published)
}

// EachPublished calls yield with the published revision of every Function of the account, in
// order of names. It stops at the first error.
func (l Library) EachPublished(ctx context.Context, account string, yield func(rowmill.Function) error) error {
	prefix := prefixOf(account)
	names, err := l.Values.ListValues(ctx, prefix)
	if err != nil {
		return fmt.Errorf("list Functions: %w", err)
	}
	for _, name := range names {
		f, err := l.GetPublished(ctx, account, strings.TrimPrefix(name, prefix))
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

// EachRevision calls yield with every revision of a Function, newest first. It stops at
// the first error. For an unknown Function it returns rowmill.ErrNotFound.
func (l Library) EachRevision(ctx context.Context, account, name string, yield func(rowmill.Function) error) error {
	h, err := l.readExistingRecord(ctx, account, name)
	if err != nil {
		return err
	}
	for n := h.latest.Revision; n > 0; n-- {
		f, err := l.readRevision(ctx, account, h, n)
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
	_, f, err := l.readNamedRevision(ctx, account, name, revision)
	return f, err
}

// Rollback publishes an existing revision, which may be a draft, and returns it. The
// function check can refuse the revision with an error. For an unknown Function or
// revision, Rollback returns rowmill.ErrNotFound. If another client changes the Function at
// the same time, it returns rowmill.ErrConflict.
func (l Library) Rollback(ctx context.Context, account, name string, revision int, check func(rowmill.Function) error) (rowmill.Function, error) {
	h, f, err := l.readNamedRevision(ctx, account, name, revision)
	if err == nil {
		err = check(f)
	}
	if err != nil {
		return rowmill.Function{}, err
	}
	now := l.now()
	h.Published, h.PublishedAt = revision, &now
	if err := l.putRecord(ctx, account, name, h); err != nil {
		return rowmill.Function{}, err
	}
	return h.withPublishedTime(f), nil
}

// Unpublish withdraws the published revision of a Function. All revisions stay stored.
// If no revision is published, Unpublish returns rowmill.ErrNotFound.
func (l Library) Unpublish(ctx context.Context, account, name string) error {
	h, err := l.readExistingRecord(ctx, account, name)
	if err == nil && h.Published == 0 {
		err = rowmill.ErrNotFound
	}
	if err != nil {
		return err
	}
	h.Published, h.PublishedAt = 0, nil
	return l.putRecord(ctx, account, name, h)
}

// readNamedRevision reads the revision that a client named, and the head of its Function. For
// an unknown Function or revision it returns rowmill.ErrNotFound.
func (l Library) readNamedRevision(ctx context.Context, account, name string, revision int) (h functionRecord, f rowmill.Function, err error) {
	h, err = l.readExistingRecord(ctx, account, name)
	if err == nil && (revision < 1 || revision > h.latest.Revision) {
		err = rowmill.ErrNotFound
	}
	if err == nil {
		f, err = l.readRevision(ctx, account, h, revision)
	}
	return h, f, err
}

// readExistingRecord reads the head of the Function that a client named. For an invalid or
// unknown name it returns rowmill.ErrNotFound.
func (l Library) readExistingRecord(ctx context.Context, account, name string) (functionRecord, error) {
	if FindNameProblem(name) != "" {
		return functionRecord{}, rowmill.ErrNotFound
	}
	return l.readRecord(ctx, account, name)
}

// readRecord reads the document of a Function.
func (l Library) readRecord(ctx context.Context, account, name string) (functionRecord, error) {
	var h functionRecord
	doc, version, err := l.Values.GetValue(ctx, recordName(account, name))
	if err == nil {
		err = decodeJSON(doc, &h)
	}
	if err == nil {
		err = decodeJSON(h.Latest, &h.latest)
	}
	if err != nil {
		return functionRecord{}, fmt.Errorf("read Function %s: %w", name, err)
	}
	h.stored, h.version = doc, version
	return h, nil
}

// putRecord writes the document of a Function. It keeps fields that this version of the
// program does not know.
func (l Library) putRecord(ctx context.Context, account, name string, h functionRecord) error {
	doc, err := jsonpreserve.Rewrite(h.stored, h)
	if err != nil {
		return fmt.Errorf("encode Function %s: %w", name, err)
	}
	if _, err := l.Values.PutValue(ctx, recordName(account, name), doc, h.version); err != nil {
		return fmt.Errorf("store Function %s: %w", name, err)
	}
	return nil
}

// readRevision reads revision n of a Function. It returns the latest revision from h
// without a read.
func (l Library) readRevision(ctx context.Context, account string, h functionRecord, n int) (rowmill.Function, error) {
	if n == h.latest.Revision {
		return h.withPublishedTime(h.latest), nil
	}
	var f rowmill.Function
	doc, _, err := l.Values.GetValue(ctx, revisionName(account, h.latest.Name, n))
	if errors.Is(err, rowmill.ErrNotFound) {
		// Not ErrNotFound: a missing copy is a fault of the store, not of the client.
		err = errors.New("the store has no copy of the revision")
	}
	if err == nil {
		err = decodeJSON(doc, &f)
	}
	if err != nil {
		return f, fmt.Errorf("read revision %d of Function %s: %w", n, h.latest.Name, err)
	}
	return h.withPublishedTime(f), nil
}

// withPublishedTime returns f with its time of publication, or without one if f is not the
// published revision. It also replaces null fields with the API's empty values.
func (h functionRecord) withPublishedTime(f rowmill.Function) rowmill.Function {
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

// now returns the current time in UTC, in whole microseconds.
func (l Library) now() time.Time { return l.Now().UTC().Truncate(time.Microsecond) }

// decodeJSON decodes JSON. Numbers keep their original form.
func decodeJSON(doc json.RawMessage, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(doc))
	decoder.UseNumber()
	return decoder.Decode(into)
}
