package webhook

import (
	"context"
	"fmt"
	"time"

	"github.com/rowmill/rowmill/store"
)

// deliveryPrefix leads the ids of deliveries, which receivers get as webhook-id.
const deliveryPrefix = "msg_"

// Store is what webhooks need of a store.
type Store interface {
	store.Values
	store.Deliveries
	Time(ctx context.Context) (time.Time, error)
}

// Announce makes the deliveries that tell of the end of a job, as many as there
// are, and reports whether there are some. The ids follow from the job, the endpoint
// and the type, so that repeating it makes nothing twice, at any node, and a receiver
// knows what it has had. An endpoint that was made after the end hears nothing of it,
// as far as the clocks agree.
func Announce(ctx context.Context, s Store, rec *store.Record) (made bool, err error) {
	if !rec.Job.Status.Terminal() || rec.Tidied() { // it was announced before that
		return false, nil
	}
	all, err := Load(ctx, s, rec.Spec.Account)
	if err != nil {
		return false, err
	}
	at := rec.EndedAt().UTC()
	for _, e := range all.Endpoints {
		if e.Disabled != nil || e.Created.After(at.Add(store.EndTolerance)) {
			continue
		}
		for _, kind := range e.wanted(&rec.Job, &rec.Spec) {
			text, err := body(kind, &rec.Job, rec.Spec.Raw, at)
			if err != nil {
				return made, err
			}
			err = s.CreateDelivery(ctx, store.Delivery{
				ID: idOf(deliveryPrefix, at, rec.Job.ID, e.ID, kind), Account: rec.Spec.Account, Endpoint: e.ID, Event: kind, Job: rec.Job.ID,
				Payload: text, Created: at, State: store.DeliveryPending, Due: &at,
			})
			if err != nil {
				return made, fmt.Errorf("announce the end of job %s: %w", rec.Job.ID, err)
			}
			made = true
		}
	}
	return made, nil
}
