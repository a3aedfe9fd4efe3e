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
	// maxAttempts is how many of the latest attempts the record of a delivery keeps: enough
	// for a whole schedule, and for a second schedule after a redelivery.
	maxAttempts = 20
)

// IsDeliveryID reports whether an id has the form of a delivery id.
func IsDeliveryID(id string) bool {
	digits, found := strings.CutPrefix(id, deliveryPrefix)
	return found && len(digits) == idDigits && strings.Trim(digits, "0123456789abcdef") == ""
}

// IsSuccess reports whether the receiver accepted the attempt: it answered with a 2xx
// status.
func IsSuccess(a store.DeliveryAttempt) bool {
	return a.Error == "" && a.Status >= http.StatusOK && a.Status < http.StatusMultipleChoices
}

// ApplyAttempt returns the delivery d with an attempt added. The new state is finished, or
// pending with a time for the next attempt. randomFraction is a random number from 0 to 1
// that varies the pause before the next attempt.
func (s RetrySchedule) ApplyAttempt(d store.WebhookDelivery, a store.DeliveryAttempt, now time.Time, randomFraction float64) store.WebhookDelivery {
	d.Tries++
	kept := d.Attempts[max(0, len(d.Attempts)+1-maxAttempts):]
	d.Attempts = append(append([]store.DeliveryAttempt(nil), kept...), a)
	pause, again := s.PauseAfter(d.Tries, randomFraction)
	switch {
	case IsSuccess(a):
		return finishDelivery(d, store.DeliveryDelivered, now)
	case a.Status == http.StatusGone || !again:
		return finishDelivery(d, store.DeliveryFailed, now)
	}
	return ScheduleAt(d, now.Add(pause))
}

// Abandon returns the delivery d as failed, without another request to the receiver.
// The delivery's log shows the reason as a failed attempt.
func Abandon(d store.WebhookDelivery, reason string, now time.Time) store.WebhookDelivery {
	d = RetrySchedule(nil).ApplyAttempt(d, store.DeliveryAttempt{At: now.UTC(), Error: reason}, now, 0)
	return finishDelivery(d, store.DeliveryFailed, now)
}

// RequeueDelivery returns the delivery d as pending, with the next attempt now and a new
// schedule. The log of its earlier attempts stays.
func RequeueDelivery(d store.WebhookDelivery, now time.Time) store.WebhookDelivery {
	d.Tries = 0
	return ScheduleAt(d, now)
}

// ScheduleAt returns the delivery d as pending, with its next attempt at the given time. No
// node sends the delivery earlier.
func ScheduleAt(d store.WebhookDelivery, at time.Time) store.WebhookDelivery {
	at = at.UTC()
	d.State, d.Due, d.Expires = store.DeliveryPending, &at, nil
	return d
}

func finishDelivery(d store.WebhookDelivery, state string, now time.Time) store.WebhookDelivery {
	expires := now.UTC().Add(KeepLog)
	d.State, d.Due, d.Expires = state, nil, &expires
	return d
}
