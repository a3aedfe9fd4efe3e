// Package batch is what batches of all dialects have in common: a batch is a job
// whose rows are request bodies, under an id of the dialect's own, with files that
// are made once it is over. It refuses to know what a dialect looks like.
package batch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/engine/offer"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/http/submission"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/internal/spelling"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// Jobs is what batches need of jobs in general.
type Jobs interface {
	// Account is whose request it is.
	Account(c *gin.Context) string
	// Find returns a job of whoever asks, or a 404.
	Find(c *gin.Context, id string) (store.Record, error)
	// Create charges the account of the request with a job, has spool put the input
	// where the record says that it is, and stores the record. With idem, the same
	// request may have stored another before: then existed is true.
	Create(c *gin.Context, record store.Record, spool func(context.Context) error, idem *store.Idempotency) (stored store.Record, existed bool, err error)
	// Repeated returns what the same request has stored before, or
	// rowmill.ErrNotFound.
	Repeated(c *gin.Context, idem store.Idempotency) (store.Record, error)
	// Cancel ends a job, or returns rowmill.ErrTerminal.
	Cancel(ctx context.Context, id string) (store.Record, error)
	// RemoveData removes what a job that is over has read and made.
	RemoveData(ctx context.Context, record store.Record) error
}

// Store is what batches need of a store.
type Store interface {
	store.Values
	Batches(ctx context.Context, account, dialect string, page store.Page) ([]store.Record, bool, error)
	AddArtifact(ctx context.Context, jobID, variant string, a store.Artifact) (store.Record, error)
}

// Limits bound what clients may send; none is 0.
type Limits struct {
	FileBytes   int64 // of a file or a body that comes in one piece, and of a part of one that does not
	UploadBytes int64 // of a file that comes in parts
	Input       input.Limits
}

// Config is what dialects with batches need.
type Config struct {
	Exchange *exchange.Exchange
	Jobs     Jobs
	Store    Store
	Bucket   blob.Bucket
	Archive  *archive.Archive
	Model    func(name string) (rowmill.Model, error) // as offer.Models.Find
	Limits   Limits
	Now      func() time.Time
}

// Batches are those of a dialect.
type Batches struct {
	Config
	Dialect string // as rowmill.Raw names it
	Prefix  string // of their ids

	// Outcomes are the files that a batch leaves that is over.
	Outcomes func(ctx context.Context, record store.Record) ([]Outcome, error)
}

// priority is that of all batches: a job of priority 0 has but a thousand rows.
const priority = rowmill.Production

// idColumn is what results call the ids of requests.
const idColumn = "custom_id"

// Record is that of a new batch, which has lasts to run; its input is to be put
// at Spec.Spooled.
func (b *Batches) Record(model rowmill.Model, raw rowmill.Raw, lasts time.Duration) store.Record {
	now := b.Now().UTC().Truncate(time.Microsecond)
	deadline := now.Add(lasts)
	raw.Dialect, raw.Deadline = b.Dialect, &deadline
	id := rowmill.NewJobID()
	return store.Record{
		SchemaVersion: store.SchemaVersion,
		Job: rowmill.Job{
			ID: id, Status: rowmill.StatusPending, RunType: rowmill.RunFull, Model: model.ID, Priority: priority,
			Created: now, Warnings: []string{}, Message: submission.Waiting, Sampling: map[string]any{},
		},
		Spec: rowmill.Spec{
			Model: model, Spooled: layout.Spooled(id), IDColumn: idColumn, Priority: priority, Sampling: map[string]any{}, Raw: &raw,
		},
	}
}

// ModelNamed is the model of a name, for requests as they are.
func (b *Batches) ModelNamed(name string) (rowmill.Model, error) {
	model, err := b.Model(name)
	var (
		unknown   *offer.UnknownError
		unsettled *offer.UnusableError
	)
	refuse := func(format string, args ...any) (rowmill.Model, error) {
		e := request.Errorf(http.StatusBadRequest, "model_not_found", format, args...)
		e.Fields = []rowmill.FieldError{{Field: "model", Message: e.Message}}
		return model, e
	}
	switch {
	case errors.As(err, &unknown):
		return refuse("%q is no model of this service%s", spelling.Shorten(name, 128), unknown.Hint())
	case errors.As(err, &unsettled) && unsettled.Soon:
		return model, request.NotNow("model_not_ready", "model: %s", err)
	case err != nil:
		return refuse("model: %s", err)
	}
	model.Kind = rowmill.KindRaw
	return model, nil
}

const (
	// headerRetry is how clients number the repetitions of a request.
	headerRetry = "X-Stainless-Retry-Count"
	// repetition is for how long one that is the same counts as that.
	repetition = 10 * time.Minute
)

// Submit makes a batch durable. Clients repeat a request whose answer they have not
// seen, and send no key with it: what such a repetition, known by its sum, asks for
// again has been done.
func (b *Batches) Submit(c *gin.Context, record store.Record, sum string, spool func(context.Context) error) (store.Record, error) {
	idem := &store.Idempotency{Key: "batch " + sum, BodyHash: sum, TTL: repetition}
	first, err := b.Jobs.Repeated(c, *idem)
	switch retry, atoiErr := strconv.Atoi(c.GetHeader(headerRetry)); {
	case errors.Is(err, rowmill.ErrNotFound):
	case err != nil:
		return first, err
	case atoiErr == nil && retry > 0:
		return first, nil
	default: // the same once more, on purpose
		idem = nil
	}
	stored, _, err := b.Jobs.Create(c, record, spool, idem)
	if e := request.Describe(err); err != nil && e.Code == request.CodeOutcomeUnknown {
		e.Header["X-Should-Retry"] = "false" // clients would, and make a second one
		err = e
	}
	return stored, err
}

// Find returns the batch of an id as clients have it, or a 404.
func (b *Batches) Find(c *gin.Context, shown string) (store.Record, error) {
	none := Missing("batch", spelling.Shorten(shown, 64))
	id, ok := b.JobID(shown)
	if !ok {
		return store.Record{}, none
	}
	record, err := b.Jobs.Find(c, id)
	if err != nil && request.Describe(err).Status == http.StatusNotFound || err == nil && !b.ours(record) {
		return store.Record{}, none
	}
	return record, err
}

func (b *Batches) ours(record store.Record) bool {
	return record.Spec.Raw != nil && record.Spec.Raw.Dialect == b.Dialect
}

// List returns a page of the account's batches but for those that are hidden, and
// whether there are more behind it. The page begins behind a batch of the account, hidden
// or not, which the query parameter cursor names.
func (b *Batches) List(c *gin.Context, page store.Page, cursor string, hidden func(store.Record) bool) (found []store.Record, more bool, err error) {
	if page.After != "" {
		if _, err := b.Find(c, b.ID(page.After)); err != nil {
			return nil, false, Named(err, cursor)
		}
	}
	return Fill(page, hidden, func(r store.Record) string { return r.Job.ID }, func(page store.Page) ([]store.Record, bool, error) {
		return b.Store.Batches(c.Request.Context(), b.Jobs.Account(c), b.Dialect, page)
	})
}

// Fill reads on until a page is full of what is not hidden: clients take one that
// is empty for the end.
func Fill[T any](page store.Page, hidden func(T) bool, id func(T) string, read func(store.Page) ([]T, bool, error)) (found []T, more bool, err error) {
	for want := page.Limit; ; page.Limit = want - len(found) {
		part, more, err := read(page)
		if err != nil {
			return nil, false, fmt.Errorf("list: %w", err)
		}
		for _, one := range part {
			if page.After = id(one); !hidden(one) {
				found = append(found, one)
			}
		}
		if len(found) == want || !more {
			return found, more, nil
		}
	}
}

// Cancel has a batch end. One that is over stays as it is; it is returned with
// rowmill.ErrTerminal unless a cancel was what ended it.
func (b *Batches) Cancel(ctx context.Context, record store.Record) (store.Record, error) {
	ended, err := b.Jobs.Cancel(ctx, record.Job.ID)
	if !errors.Is(err, rowmill.ErrTerminal) {
		return ended, err
	}
	if ended.Job.ID == "" {
		ended = record
	}
	if ended.Job.Status == rowmill.StatusCancelled {
		err = nil
	}
	return ended, err
}

// Missing is the answer to an id that the account does not have.
func Missing(what, id string) error {
	return request.Errorf(http.StatusNotFound, "not_found", "no %s was found with the id %s", what, id)
}

// Named makes the error that something is missing one about a field.
func Named(err error, field string) error {
	if e := request.Describe(err); e.Status == http.StatusNotFound {
		e.Fields = []rowmill.FieldError{{Field: field, Message: e.Message}}
		return e
	}
	return err
}

// Limit reads the size of a page.
func Limit(c *gin.Context, p *request.Problems, standard, most int) int {
	text, given := c.GetQuery("limit")
	if !given {
		return standard
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		p.Add("limit", "is %q; it must be a whole number from 1 to %d", spelling.Shorten(text, 32), most)
	}
	return n
}

// prefixJob is what the ids of jobs begin with.
const prefixJob = "job-"

// digits is how many hexadecimal digits a UUID has.
const digits = 32

// IsHex reports whether text has the digits of a UUID.
func IsHex(text string) bool {
	return len(text) == digits && strings.Trim(text, "0123456789abcdef") == ""
}

// Hex are the hexadecimal digits of a job's id.
func Hex(jobID string) string {
	return strings.ReplaceAll(strings.TrimPrefix(jobID, prefixJob), "-", "")
}

// ID is the id of a job as the dialect has it.
func (b *Batches) ID(jobID string) string { return b.Prefix + Hex(jobID) }

// JobID is the inverse of ID; ok is false for what no batch is called.
func (b *Batches) JobID(id string) (jobID string, ok bool) {
	hex, found := strings.CutPrefix(id, b.Prefix)
	if !found || !IsHex(hex) {
		return "", false
	}
	return prefixJob + strings.Join([]string{hex[:8], hex[8:12], hex[12:16], hex[16:20], hex[20:]}, "-"), true
}
