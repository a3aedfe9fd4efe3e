package sender

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/webhook"
	"github.com/rowmill/rowmill/store"
)

const (
	// maxAnswerBytes limits how much of a receiver's answer is read and stored: enough for
	// an error message, and a limit for endless answers.
	maxAnswerBytes = 1 << 10
	// recordTimeout is the timeout of the write of an attempt's outcome, also for an attempt
	// that was cancelled because the node stops.
	recordTimeout = 5 * time.Second
	// disableTries limits the tries to disable an endpoint while other writers change the
	// document with the account's endpoints.
	disableTries = 5
	// userAgent is the value of the header User-Agent in requests to receivers.
	userAgent = "Rowmill-Webhooks/1"
)

// attemptDelivery claims a delivery whose attempt is due at the time now, sends it and stores
// the outcome. It does nothing if another node has the claim.
func (s *Sender) attemptDelivery(d store.WebhookDelivery, now time.Time) error {
	d, err := s.Store.PutDelivery(s.ctx, webhook.ScheduleAt(d, now.Add(claimTTL)))
	if err != nil {
		return ignoreLostClaim(err)
	}
	all, err := webhook.LoadEndpoints(s.ctx, s.Store, d.Account)
	if err != nil {
		return err
	}
	e, found := all.Find(d.Endpoint)
	switch {
	case !found:
		return s.storeOutcome(d, func(now time.Time) store.WebhookDelivery { return webhook.Abandon(d, "the webhook was deleted", now) })
	case e.Disabled != nil:
		return s.storeOutcome(d, func(now time.Time) store.WebhookDelivery { return webhook.Abandon(d, "the webhook is disabled", now) })
	}
	attempt := s.SendOnce(s.ctx, e, d.ID, d.Payload)
	if s.ctx.Err() != nil && !webhook.IsSuccess(attempt) {
		return s.storeOutcome(d, func(now time.Time) store.WebhookDelivery { return webhook.ScheduleAt(d, now) })
	}
	if attempt.Status == http.StatusGone {
		if err := s.disableEndpoint(d.Account, d.Endpoint); err != nil {
			return err
		}
	}
	return s.storeOutcome(d, func(now time.Time) store.WebhookDelivery {
		return s.Schedule.ApplyAttempt(d, attempt, now, rand.Float64())
	})
}

// SendOnce sends a body to an endpoint once and returns the outcome.
func (s *Sender) SendOnce(ctx context.Context, e *webhook.Endpoint, id, body string) store.DeliveryAttempt {
	return s.poster.post(ctx, signedRequest{
		url: e.URL, contentType: "application/json", id: id, body: body,
		sign: func(at time.Time) (string, error) { return e.SignBody(id, at, body) },
	})
}

// disableEndpoint disables an endpoint that answered 410 Gone.
func (s *Sender) disableEndpoint(account, endpoint string) error {
	var err error
	for range disableTries {
		var all webhook.Endpoints
		if all, err = webhook.LoadEndpoints(s.ctx, s.Store, account); err != nil {
			return err
		}
		e, found := all.Find(endpoint)
		if !found || e.Disabled != nil {
			return nil
		}
		e.SetDisabled("the receiver answered 410 Gone", s.Clock())
		if err = all.Save(s.ctx, s.Store, account); err == nil {
			s.Logger.Info("webhook disabled, because it answered 410 Gone", "webhook", endpoint, "account", account)
			return nil
		}
		if !errors.Is(err, rowmill.ErrConflict) {
			return err
		}
	}
	return err
}

// storeOutcome calls transition with the store's time and stores the delivery that
// transition returns. If transition added an attempt, storeOutcome also counts the attempt.
func (s *Sender) storeOutcome(d store.WebhookDelivery, transition func(now time.Time) store.WebhookDelivery) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), recordTimeout)
	defer cancel()
	now, err := s.Store.Time(ctx)
	if err != nil {
		return err
	}
	after := transition(now)
	if after.Tries > d.Tries {
		s.countAttempt(after)
	}
	_, err = s.Store.PutDelivery(ctx, after)
	return ignoreLostClaim(err)
}

// ignoreLostClaim returns nil if err says that another node has claimed or removed the
// record; otherwise it returns err.
func ignoreLostClaim(err error) error {
	if errors.Is(err, rowmill.ErrConflict) || errors.Is(err, rowmill.ErrNotFound) {
		return nil
	}
	return err
}

// countAttempt adds an attempt to the metric of outcomes, by the delivery's new state. It logs
// a delivery that failed for good.
func (s *Sender) countAttempt(d store.WebhookDelivery) {
	switch d.State {
	case store.DeliveryDelivered:
		s.outcomes.WithLabelValues(outcomeDelivered).Inc()
	case store.DeliveryFailed:
		s.outcomes.WithLabelValues(outcomeFailed).Inc()
		s.Logger.Info("webhook delivery failed for good, it is not sent again", "delivery", d.ID, "webhook", d.Endpoint, "account", d.Account)
	default:
		s.outcomes.WithLabelValues(outcomeAgain).Inc()
	}
}
