package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The states of a Delivery.
const (
	DeliveryPending   = "pending"
	DeliveryDelivered = "delivered"
	DeliveryFailed    = "failed"
)

// A Delivery is an event on its way to an endpoint of an account, and what became
// of it.
type Delivery struct {
	ID       string    `json:"id"` // ids of an endpoint sort by the time of their events
	Account  string    `json:"account"`
	Endpoint string    `json:"endpoint"`
	Event    string    `json:"event"` // its type
	Job      string    `json:"job,omitempty"`
	Payload  string    `json:"payload"` // the body, byte for byte
	Created  time.Time `json:"created"` // when what it tells of happened
	State    string    `json:"state"`

	// Due is when it is to be sent next, or when whoever sends it now has given
	// up: set while it is pending, and then alone. Expires is when its record
	// goes: set once it is over.
	Due     *time.Time `json:"due,omitempty"`
	Expires *time.Time `json:"expires,omitempty"`

	Tries    int               `json:"tries"`    // since it was created, or asked for again
	Attempts []DeliveryAttempt `json:"attempts"` // the last ones, oldest first

	// Version grows with every write. The store alone sets it.
	Version int64 `json:"-"`
}

// A DeliveryAttempt is one time that a delivery was sent.
type DeliveryAttempt struct {
	At     time.Time `json:"at"`
	Millis int64     `json:"ms"`               // how long it took
	Status int       `json:"status,omitempty"` // of the answer; 0 for none
	Answer string    `json:"answer,omitempty"` // how its body begins
	Error  string    `json:"error,omitempty"`  // why there is no answer, or why it does not count
}

// Check refuses a delivery that cannot be stored.
func (d *Delivery) Check() error {
	for _, name := range []struct{ what, text string }{
		{"the id", d.ID}, {"the account", d.Account}, {"the endpoint", d.Endpoint}, {"the event", d.Event},
	} {
		if err := CheckName(name.what+" of a delivery", name.text); err != nil {
			return err
		}
	}
	pending := d.State == DeliveryPending
	switch {
	case d.Created.IsZero():
		return errors.New("its time of creation is not set")
	case !pending && d.State != DeliveryDelivered && d.State != DeliveryFailed:
		return fmt.Errorf("its state is %q", d.State)
	case pending != (d.Due != nil) || pending == (d.Expires != nil):
		return errors.New("it must be due while it is pending, and expire once it is over")
	}
	return nil
}

// Deliveries are the events that are sent to endpoints.
type Deliveries interface {
	// CreateDelivery stores a delivery. Where one has its id already, nothing
	// happens.
	CreateDelivery(ctx context.Context, d Delivery) error
	// GetDelivery returns a delivery, or rowmill.ErrNotFound.
	GetDelivery(ctx context.Context, id string) (Delivery, error)
	// PutDelivery replaces a delivery of d's id whose version still is d.Version
	// and returns what is stored then; rowmill.ErrConflict otherwise, or
	// rowmill.ErrNotFound. Of two calls at the same version one succeeds. Id,
	// account and endpoint never change.
	PutDelivery(ctx context.Context, d Delivery) (Delivery, error)
	// ListDeliveries returns a page of an endpoint's deliveries, and whether there
	// are more behind it.
	ListDeliveries(ctx context.Context, endpoint string, page Page) (deliveries []Delivery, more bool, err error)
	// DueDeliveries returns up to limit (> 0) deliveries that are due at now, of
	// each endpoint the one that has been for longest; those of the endpoints
	// that have waited longest, first. However many others wait, an endpoint with
	// many takes one place.
	DueDeliveries(ctx context.Context, now time.Time, limit int) ([]Delivery, error)
	// DropDeliveries removes up to limit (> 0) deliveries that have expired at
	// now and returns how many.
	DropDeliveries(ctx context.Context, now time.Time, limit int) (int, error)
}
