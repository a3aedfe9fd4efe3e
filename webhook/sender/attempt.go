package sender

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/webhook"
)

const (
	// keptAnswer is how much of an answer's body is read and kept: enough for a
	// message, and no room for what a receiver sends without end.
	keptAnswer = 1 << 10
	// recordTimeout bounds the write of what became of an attempt, also of one
	// that was broken off because the node stops.
	recordTimeout = 5 * time.Second
	// changeTries bounds how often an endpoint is changed anew that others change
	// at the same moment.
	changeTries = 5
	// userAgent is what receivers see in their logs.
	userAgent = "Rowmill-Webhooks/1"
)

// handle takes a delivery that is due at now and sends it.
func (s *Sender) handle(d store.Delivery, now time.Time) error {
	d, err := s.Store.PutDelivery(s.life, webhook.Taken(d, now.Add(takenFor)))
	if err != nil {
		return unlessOthers(err)
	}
	all, err := webhook.Load(s.life, s.Store, d.Account)
	if err != nil {
		return err
	}
	e, found := all.Find(d.Endpoint)
	switch {
	case !found:
		return s.record(d, func(now time.Time) store.Delivery { return webhook.GivenUp(d, "the webhook was deleted", now) })
	case e.Disabled != nil:
		return s.record(d, func(now time.Time) store.Delivery { return webhook.GivenUp(d, "the webhook is disabled", now) })
	}
	attempt := s.Try(s.life, e, d.ID, d.Payload)
	if s.life.Err() != nil && !webhook.Took(attempt) {
		return s.record(d, func(now time.Time) store.Delivery { return webhook.BrokenOff(d, now) })
	}
	if attempt.Status == http.StatusGone {
		if err := s.disable(d.Account, d.Endpoint); err != nil {
			return err
		}
	}
	return s.record(d, func(now time.Time) store.Delivery { return s.Schedule.After(d, attempt, now, rand.Float64()) })
}

// Try sends a body to an endpoint, once, and says what came back.
func (s *Sender) Try(ctx context.Context, e *webhook.Endpoint, id, body string) store.DeliveryAttempt {
	return s.courier.carry(ctx, letter{
		url: e.URL, kind: "application/json", id: id, body: body,
		sign: func(at time.Time) (string, error) { return e.Signatures(id, at, body) },
	})
}

// disable disables an endpoint that wants no more events.
func (s *Sender) disable(account, endpoint string) error {
	var err error
	for range changeTries {
		var all webhook.Endpoints
		if all, err = webhook.Load(s.life, s.Store, account); err != nil {
			return err
		}
		e, found := all.Find(endpoint)
		if !found || e.Disabled != nil {
			return nil
		}
		e.SetDisabled("it answered 410 Gone", s.Clock())
		if err = all.Save(s.life, s.Store, account); err == nil {
			s.Logger.Info("a webhook was disabled, it answered 410 Gone", "webhook", endpoint, "account", account)
			return nil
		}
		if !errors.Is(err, rowmill.ErrConflict) {
			return err
		}
	}
	return err
}

// record stores what has become of a delivery.
func (s *Sender) record(d store.Delivery, become func(now time.Time) store.Delivery) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), recordTimeout)
	defer cancel()
	now, err := s.Store.Time(ctx)
	if err != nil {
		return err
	}
	after := become(now)
	if after.Tries > d.Tries {
		s.count(after)
	}
	_, err = s.Store.PutDelivery(ctx, after)
	return unlessOthers(err)
}

// unlessOthers is err, but nil where another node has the delivery, or it is gone.
func unlessOthers(err error) error {
	if errors.Is(err, rowmill.ErrConflict) || errors.Is(err, rowmill.ErrNotFound) {
		return nil
	}
	return err
}

func (s *Sender) count(d store.Delivery) {
	switch d.State {
	case store.DeliveryDelivered:
		s.outcomes.WithLabelValues(outcomeDelivered).Inc()
	case store.DeliveryFailed:
		s.outcomes.WithLabelValues(outcomeFailed).Inc()
		s.Logger.Info("an event could not be delivered to a webhook", "delivery", d.ID, "webhook", d.Endpoint, "account", d.Account)
	default:
		s.outcomes.WithLabelValues(outcomeAgain).Inc()
	}
}
