package webhook

import (
	"net/http"
	"strings"
	"time"

	"github.com/rowmill/rowmill/store"
)

const (
	// KeepLog is how long the record of a finished delivery is kept: long enough to
	// request another delivery after a holiday.
	KeepLog = 30 * 24 * time.Hour
	// maxAttempts is how many attempts the record of a delivery keeps, the latest ones:
	// enough for a whole schedule, and for a second one after a redelivery.
	maxAttempts = 20
)

// IsDelivery reports whether an id has the form of a delivery id.
func IsDelivery(id string) bool {
	digits, found := strings.CutPrefix(id, deliveryPrefix)
	return found && len(digits) == idDigits && strings.Trim(digits, "0123456789abcdef") == ""
}

// Succeeded reports whether the receiver accepted the attempt.
func Succeeded(a store.DeliveryAttempt) bool {
	return a.Error == "" && a.Status >= http.StatusOK && a.Status < http.StatusMultipleChoices
}

// After returns the delivery as it is after an attempt: finished, or due again. chance is
// a random number from 0 to 1 for the length of the pause.
func (s Schedule) After(d store.Delivery, a store.DeliveryAttempt, now time.Time, chance float64) store.Delivery {
	d.Tries++
	kept := d.Attempts[max(0, len(d.Attempts)+1-maxAttempts):]
	d.Attempts = append(append([]store.DeliveryAttempt(nil), kept...), a)
	pause, again := s.Next(d.Tries, chance)
	switch {
	case Succeeded(a):
		return finished(d, store.DeliveryDelivered, now)
	case a.Status == http.StatusGone || !again:
		return finished(d, store.DeliveryFailed, now)
	}
	return DueAt(d, now.Add(pause))
}

// GivenUp returns the delivery as failed without an attempt. The delivery's log shows the
// reason as a failed attempt.
func GivenUp(d store.Delivery, reason string, now time.Time) store.Delivery {
	d = Schedule(nil).After(d, store.DeliveryAttempt{At: now.UTC(), Error: reason}, now, 0)
	return finished(d, store.DeliveryFailed, now)
}

// Requeued returns the delivery as due now, with a new schedule. The log of its
// attempts stays.
func Requeued(d store.Delivery, now time.Time) store.Delivery {
	d.Tries = 0
	return DueAt(d, now)
}

// DueAt returns the delivery as due at a time. No node sends the delivery earlier.
func DueAt(d store.Delivery, at time.Time) store.Delivery {
	at = at.UTC()
	d.State, d.Due, d.Expires = store.DeliveryPending, &at, nil
	return d
}

func finished(d store.Delivery, state string, now time.Time) store.Delivery {
	expires := now.UTC().Add(KeepLog)
	d.State, d.Due, d.Expires = state, nil, &expires
	return d
}
