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

// A WebhookDelivery is an event that is sent to an endpoint (a webhook) of an account, with the
// state and the attempts of the delivery.
type WebhookDelivery struct {
	ID       string    `json:"id"` // the delivery ids of an endpoint sort by the time of the events
	Account  string    `json:"account"`
	Endpoint string    `json:"endpoint"`
	Event    string    `json:"event"` // event type
	Job      string    `json:"job,omitempty"`
	Payload  string    `json:"payload"` // the body, byte for byte
	Created  time.Time `json:"created"` // time of the event
	State    string    `json:"state"`

	// Due is the time of the next attempt. While an attempt runs, Due is the time by
	// which its sender must have given up. Due is set only while the delivery is pending.
	// Expires is the time when the record is removed. It is set only when the delivery is
	// no longer pending.
	Due     *time.Time `json:"due,omitempty"`
	Expires *time.Time `json:"expires,omitempty"`

	Tries    int               `json:"tries"`    // number of attempts since the delivery was created, or since a client last requested it again
	Attempts []DeliveryAttempt `json:"attempts"` // the last attempts, oldest first

	// Version grows with every write. Only the store sets it.
	Version int64 `json:"-"`
}

// A DeliveryAttempt is one attempt to send a delivery.
type DeliveryAttempt struct {
	At     time.Time `json:"at"`
	Millis int64     `json:"ms"`               // duration
	Status int       `json:"status,omitempty"` // HTTP status of the answer; 0 without an answer
	Answer string    `json:"answer,omitempty"` // start of the answer's body
	Error  string    `json:"error,omitempty"`  // why no answer came, or why the answer is not a success
}

// Check refuses a delivery that cannot be stored.
func (d *WebhookDelivery) Check() error {
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
		return errors.New("it needs a due time while it is pending, and an expiry after that")
	}
	return nil
}

// Deliveries holds the deliveries of events to endpoints.
type Deliveries interface {
	// CreateDelivery stores a delivery. If the id exists already, nothing changes.
	CreateDelivery(ctx context.Context, d WebhookDelivery) error
	// GetDelivery returns a delivery, or rowmill.ErrNotFound.
	GetDelivery(ctx context.Context, id string) (WebhookDelivery, error)
	// PutDelivery replaces the delivery with the id d.ID if the stored version equals
	// d.Version, and returns the delivery with its new version. If the versions differ, the
	// error is rowmill.ErrConflict; if the id is unknown, rowmill.ErrNotFound. Of two calls
	// with the same version, one succeeds. Id, account and endpoint never change.
	PutDelivery(ctx context.Context, d WebhookDelivery) (WebhookDelivery, error)
	// ListDeliveries returns a page of an endpoint's deliveries. more reports whether
	// further deliveries follow.
	ListDeliveries(ctx context.Context, endpoint string, page PageRequest) (deliveries []WebhookDelivery, more bool, err error)
	// DueDeliveries returns up to limit (> 0) deliveries that are due at now: for each
	// endpoint only the delivery that has been due for the longest time. The endpoints
	// that have waited longest come first.
	DueDeliveries(ctx context.Context, now time.Time, limit int) ([]WebhookDelivery, error)
	// DropExpiredDeliveries removes up to limit (> 0) deliveries that have expired at now and
	// returns their number.
	DropExpiredDeliveries(ctx context.Context, now time.Time, limit int) (int, error)
}
