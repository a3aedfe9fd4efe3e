package webhook

import (
	"net/http"
	"strings"
	"time"

	"github.com/rowmill/rowmill/store"
)

const (
	// KeepLog is for how long the record of a delivery is kept that is over: long
	// enough to be asked for once more after a holiday.
	KeepLog = 30 * 24 * time.Hour
	// maxAttempts bounds the attempts that a record keeps: those of a whole
	// schedule, and of a second one that somebody asked for.
	maxAttempts = 20
)

// IsDelivery reports whether an id has the form of a delivery's.
func IsDelivery(id string) bool {
	digits, found := strings.CutPrefix(id, deliveryPrefix)
	return found && len(digits) == idDigits && strings.Trim(digits, "0123456789abcdef") == ""
}

// Took reports whether an attempt was answered with success.
func Took(a store.DeliveryAttempt) bool {
	return a.Error == "" && a.Status >= http.StatusOK && a.Status < http.StatusMultipleChoices
}

// After is a delivery after an attempt to send it: over, or due again.
func (s Schedule) After(d store.Delivery, a store.DeliveryAttempt, now time.Time, chance float64) store.Delivery {
	d.Tries++
	kept := d.Attempts[max(0, len(d.Attempts)+1-maxAttempts):]
	d.Attempts = append(append([]store.DeliveryAttempt(nil), kept...), a)
	pause, again := s.Next(d.Tries, chance)
	switch {
	case Took(a):
		return over(d, store.DeliveryDelivered, now)
	case a.Status == http.StatusGone || !again:
		return over(d, store.DeliveryFailed, now)
	}
	return due(d, now.Add(pause))
}

// GivenUp is a delivery that will not be sent, for a reason.
func GivenUp(d store.Delivery, reason string, now time.Time) store.Delivery {
	d = Schedule(nil).After(d, store.DeliveryAttempt{At: now.UTC(), Error: reason}, now, 0)
	return over(d, store.DeliveryFailed, now)
}

// Again is a delivery that is to be sent once more, with all its attempts before
// it.
func Again(d store.Delivery, now time.Time) store.Delivery {
	d.Tries = 0
	return due(d, now)
}

// BrokenOff is a delivery whose attempt came to nothing for no fault of its
// receiver's.
func BrokenOff(d store.Delivery, now time.Time) store.Delivery { return due(d, now) }

// Taken is a delivery that is being sent until a time, at which others may take
// it.
func Taken(d store.Delivery, until time.Time) store.Delivery { return due(d, until) }

func due(d store.Delivery, at time.Time) store.Delivery {
	at = at.UTC()
	d.State, d.Due, d.Expires = store.DeliveryPending, &at, nil
	return d
}

func over(d store.Delivery, state string, now time.Time) store.Delivery {
	expires := now.UTC().Add(KeepLog)
	d.State, d.Due, d.Expires = state, nil, &expires
	return d
}
