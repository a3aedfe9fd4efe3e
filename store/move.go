package store

import (
	"context"
	"encoding/json"
	"time"
)

// Movable is a store whose records can be taken to another, of whatever kind. No
// node may use either store meanwhile.
type Movable interface {
	Values

	// Export calls visit with all that is kept, an entry at a time, in no order,
	// and ends with the error that visit returns. What lasts no longer than the
	// nodes that wrote it is left out: sessions, the owners of jobs, whose turn
	// it is among accounts. rowmill.ErrConflict where a node has a live session,
	// and ErrNewer where a newer version of the program wrote something.
	Export(ctx context.Context, visit func(Entry) error) error

	// Import stores entries, in place of what has their names. Repeating it is
	// harmless. Jobs that are not over wait for an owner then, who goes on from
	// their parts.
	Import(ctx context.Context, entries []Entry) error

	// Clear removes everything.
	Clear(ctx context.Context) error
}

// An Entry is one thing that a store keeps, in a form that all stores share.
// Exactly one member is set.
type Entry struct {
	Job         *MovedJob         `json:"job,omitempty"`
	Idempotency *MovedIdempotency `json:"idempotency,omitempty"`
	Usage       *MovedUsage       `json:"usage,omitempty"`
	Key         *Key              `json:"key,omitempty"`
	Value       *MovedValue       `json:"value,omitempty"`
	File        *File             `json:"file,omitempty"`
	Delivery    *MovedDelivery    `json:"delivery,omitempty"`
	Audit       *AuditEntry       `json:"audit,omitempty"`
}

// A MovedJob is a job with its parts. Its record has no Session.
type MovedJob struct {
	Record Record   `json:"record"`
	Parts  []Part   `json:"parts,omitempty"`  // as ListParts returns them
	Merged []string `json:"merged,omitempty"` // keys of parts that a complete one has replaced, sorted: a repeat of their commit does nothing
	Held   bool     `json:"held,omitempty"`   // see Retention.Held
}

// A MovedIdempotency is what an idempotency key led to.
type MovedIdempotency struct {
	Account  string    `json:"account"`
	Key      string    `json:"key"`
	Job      string    `json:"job"`
	BodyHash string    `json:"body_hash"`
	Expires  time.Time `json:"expires"` // to the millisecond
}

// A MovedUsage is what an account used of a model on a day; with a key the part of
// it that is the key's.
type MovedUsage struct {
	Account  string `json:"account"`
	KeyUsage `json:"usage"`
}

// A MovedValue is a small named document.
type MovedValue struct {
	Name    string          `json:"name"`
	Version int64           `json:"version"`
	Doc     json.RawMessage `json:"doc"`
}

// A MovedDelivery is a delivery with its version.
type MovedDelivery struct {
	Version  int64    `json:"version"`
	Delivery Delivery `json:"delivery"`
}

// Kind is the name of the member that is set.
func (e Entry) Kind() string {
	switch {
	case e.Job != nil:
		return "job"
	case e.Idempotency != nil:
		return "idempotency"
	case e.Usage != nil:
		return "usage"
	case e.Key != nil:
		return "key"
	case e.Value != nil:
		return "value"
	case e.File != nil:
		return "file"
	case e.Delivery != nil:
		return "delivery"
	case e.Audit != nil:
		return "audit"
	}
	return ""
}
