package webhook

import (
	"context"
	"fmt"

	"github.com/rowmill/rowmill/store"
)

// deliveryPrefix is the beginning of every delivery id. Receivers see the id in the
// header Webhook-Id.
const deliveryPrefix = "msg_"

// CreateDeliveries creates the deliveries of webhook events for the end of a job, and reports
// whether it created any. The id of a delivery is derived from job, endpoint and event
// type. So any node may repeat CreateDeliveries without duplicates, and a receiver can
// recognize a repeated event. An endpoint that was created after the end of the job
// gets no event; the comparison of the times allows for clock differences.
func CreateDeliveries(ctx context.Context, s store.Store, rec *store.Record) (made bool, err error) {
	if !rec.Job.Status.IsTerminal() || rec.IsCleanedUp() { // the cleanup after a job's end runs after CreateDeliveries
		return false, nil
	}
	all, err := LoadEndpoints(ctx, s, rec.Spec.Account)
	if err != nil {
		return false, err
	}
	at := rec.EndedAt().UTC()
	for _, e := range all.Endpoints {
		if e.Disabled != nil || e.Created.After(at.Add(store.EndTolerance)) {
			continue
		}
		for _, kind := range e.wantedTypes(&rec.Job, &rec.Spec) {
			text, err := eventBody(kind, &rec.Job, rec.Spec.Raw, at)
			if err != nil {
				return made, err
			}
			err = s.CreateDelivery(ctx, store.WebhookDelivery{
				ID: deriveID(deliveryPrefix, at, rec.Job.ID, e.ID, kind), Account: rec.Spec.Account, Endpoint: e.ID, Event: kind, Job: rec.Job.ID,
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
