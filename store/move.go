package store

import (
	"context"
	"encoding/json"
	"time"
)

// MovableStore is a store whose records can be moved to another store, of any kind. No node
// may use either store during the move.
type MovableStore interface {
	NamedValues

	// Export calls visit with each stored entry, in no particular order. When visit
	// returns an error, Export stops and returns this error. State that exists only while
	// nodes run is left out: sessions, owners of jobs, and the order in which the
	// accounts take turns. The error is rowmill.ErrConflict if a node has a live session,
	// and ErrNewer if a newer version of the program wrote a record.
	Export(ctx context.Context, visit func(ExportEntry) error) error

	// Import stores entries and replaces existing records with the same names. A
	// repeated call is harmless. The imported open jobs wait for an owner, which continues
	// from their parts.
	Import(ctx context.Context, entries []ExportEntry) error

	// Clear removes all records.
	Clear(ctx context.Context) error
}

// An ExportEntry is one stored record of any kind, in a format that all stores share. Exactly
// one field is set.
type ExportEntry struct {
	Job         *JobExport         `json:"job,omitempty"`
	Idempotency *IdempotencyExport `json:"idempotency,omitempty"`
	Usage       *UsageExport       `json:"usage,omitempty"`
	Key         *APIKey            `json:"key,omitempty"`
	Value       *ValueExport       `json:"value,omitempty"`
	File        *File              `json:"file,omitempty"`
	Delivery    *DeliveryExport    `json:"delivery,omitempty"`
	Audit       *AuditEntry        `json:"audit,omitempty"`
}

// A JobExport is a job with its parts. Its record has no Session.
type JobExport struct {
	Record Record   `json:"record"`
	Parts  []Part   `json:"parts,omitempty"`  // as ListParts returns them
	Lost   []Part   `json:"lost,omitempty"`   // as LostParts returns them
	Merged []string `json:"merged,omitempty"` // keys of parts that a complete part has replaced, sorted: committing these parts again has no effect
}

// An IdempotencyExport is an idempotency key with the job that it created.
type IdempotencyExport struct {
	Account  string    `json:"account"`
	Key      string    `json:"key"`
	Job      string    `json:"job"`
	BodyHash string    `json:"body_hash"`
	Expires  time.Time `json:"expires"` // to the millisecond
}

// A UsageExport is the usage of a model by an account on a day: in total, or by one API key
// if KeyUsage names a key.
type UsageExport struct {
	Account  string `json:"account"`
	KeyUsage `json:"usage"`
}

// A ValueExport is a small document that a store keeps by name, as a move copies it.
type ValueExport struct {
	Name    string          `json:"name"`
	Version int64           `json:"version"`
	Doc     json.RawMessage `json:"doc"`
}

// A DeliveryExport is a delivery with its version.
type DeliveryExport struct {
	Version  int64           `json:"version"`
	Delivery WebhookDelivery `json:"delivery"`
}

// Kind returns the JSON name of the field that is set.
func (e ExportEntry) Kind() string {
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
