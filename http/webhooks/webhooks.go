// Package webhooks answers requests about the webhooks of accounts and their deliveries.
// Package webhook defines events and signatures.
package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/http/audit"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/http/webhook"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/store"
)

const (
	// maxWebhookURL limits the URL of a webhook, in bytes. Few servers accept a longer
	// request line.
	maxWebhookURL = 2048
	// maxWebhookDescription limits the description of a webhook, in code points.
	maxWebhookDescription = 256
	// maxDeliveriesPage limits the deliveries of a page.
	maxDeliveriesPage = 100
	// recentDeliveries is how many of its newest deliveries the view of a webhook counts.
	recentDeliveries = 20
	// failingDeliveries is how many of these deliveries in a row must fail until the webhook
	// is failing: more than one, because a receiver may refuse a single event.
	failingDeliveries = 3
)

// Sender sends webhook events to receivers.
type Sender interface {
	// SendOnce sends a body to an endpoint once and returns the outcome.
	SendOnce(ctx context.Context, e *webhook.Endpoint, id, body string) store.DeliveryAttempt
	// Wake makes the sender look for due deliveries now.
	Wake()
}

// NoSender is the Sender for a node that sends no events.
type NoSender struct{}

// SendOnce reports that nothing was sent.
func (NoSender) SendOnce(context.Context, *webhook.Endpoint, string, string) store.DeliveryAttempt {
	return store.DeliveryAttempt{At: time.Now().UTC(), Error: "this node sends no events"}
}

// Wake does nothing, because there is nothing to send.
func (NoSender) Wake() {}

func viewWebhook(account string, e *webhook.Endpoint, now time.Time) client.Webhook {
	view := client.Webhook{
		ID: e.ID, Account: account, URL: e.URL, Events: exchange.OrEmptyList(e.Events), Description: e.Description, SecretPrefix: e.SecretPrefix(),
		Disabled: e.Disabled != nil, DisabledAt: e.Disabled, DisabledReason: exchange.NilIfZero(e.DisabledReason), CreatedAt: e.Created, RotatedAt: e.Rotated,
	}
	if e.Until != nil && now.Before(*e.Until) {
		view.OldSecretUntil = e.Until
	}
	return view
}

func viewAttempt(a store.DeliveryAttempt) client.DeliveryAttempt {
	return client.DeliveryAttempt{
		At: a.At, Status: exchange.NilIfZero(int64(a.Status)), Error: exchange.NilIfZero(a.Error), Answer: a.Answer, DurationSeconds: float64(a.Millis) / 1000,
	}
}

func viewDelivery(d store.WebhookDelivery) client.Delivery {
	view := client.Delivery{
		ID: d.ID, Event: d.Event, JobID: exchange.NilIfZero(d.Job), State: d.State, CreatedAt: d.Created, NextAttemptAt: d.Due, Attempts: []client.DeliveryAttempt{},
	}
	for _, a := range d.Attempts {
		view.Attempts = append(view.Attempts, viewAttempt(a))
	}
	return view
}

// Webhooks answers requests about the endpoints of accounts and their deliveries.
type Webhooks struct {
	*exchange.Exchange
	Store  store.Store
	Sender Sender
	Audit  *audit.Auditor
	Now    func() time.Time
}

// Route adds the routes of webhooks.
func (w *Webhooks) Route(v1 gin.IRoutes) {
	v1.GET("/webhooks", w.Handle(w.list))
	v1.POST("/webhooks", w.Handle(w.create))
	v1.GET("/webhooks/:webhook_id", w.Handle(w.show))
	v1.PATCH("/webhooks/:webhook_id", w.Handle(w.patch))
	v1.DELETE("/webhooks/:webhook_id", w.Handle(w.remove))
	v1.POST("/webhooks/:webhook_id/rotate", w.Handle(w.rotate))
	v1.POST("/webhooks/:webhook_id/test", w.Handle(w.sendTestEvent))
	v1.GET("/webhooks/:webhook_id/deliveries", w.Handle(w.listDeliveries))
	v1.POST("/webhooks/:webhook_id/deliveries/:delivery_id/redeliver", w.Handle(w.redeliver))
}

// loadEndpoints returns the account that a request without a body is about, and the webhook
// endpoints of this account.
func (w *Webhooks) loadEndpoints(c *gin.Context) (account string, all webhook.Endpoints, err error) {
	if account, err = caller.ResolveAdminAccount(c, c.Query("account")); err == nil {
		all, err = webhook.LoadEndpoints(c.Request.Context(), w.Store, account)
	}
	return account, all, err
}

// loadEndpointInPath returns the account of a request, the endpoints of this account, and the
// endpoint whose id is in the path.
func (w *Webhooks) loadEndpointInPath(c *gin.Context) (account string, all *webhook.Endpoints, e *webhook.Endpoint, err error) {
	account, found, err := w.loadEndpoints(c)
	if err == nil {
		e, err = findEndpoint(c, &found)
	}
	return account, &found, e, err
}

func findEndpoint(c *gin.Context, all *webhook.Endpoints) (*webhook.Endpoint, error) {
	id := c.Param("webhook_id")
	e, found := all.Find(id)
	if !found {
		return nil, request.Errorf(http.StatusNotFound, "webhook_not_found", "no webhook was found with the ID %s; GET /v1/webhooks lists them", textfmt.Shorten(id, 64))
	}
	return e, nil
}

// saveEndpointChange saves the changed endpoints of an account, and records the change of e in the
// audit record. name is the action.
func (w *Webhooks) saveEndpointChange(c *gin.Context, name, account string, all *webhook.Endpoints, e *webhook.Endpoint) error {
	details := gin.H{"events": e.Events, "description": e.Description, "disabled": e.Disabled != nil, "host": hostOf(e.URL)} // only the host of the URL, because its path may be a secret
	return w.Audit.RecordAndRun(c, audit.Action{Name: name, Account: account, Target: e.ID, Details: details}, func(ctx context.Context) error {
		return all.Save(ctx, w.Store, account)
	})
}

func hostOf(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return parsed.Host
}

// list answers GET /v1/webhooks.
func (w *Webhooks) list(c *gin.Context) (any, error) {
	account, all, err := w.loadEndpoints(c)
	views := []client.Webhook{}
	for _, e := range all.Endpoints {
		view, err := w.viewWithDeliveries(c.Request.Context(), account, &e)
		if err != nil {
			return nil, err
		}
		views = append(views, view)
	}
	return gin.H{"webhooks": views}, err
}

// viewWithDeliveries returns the view of a webhook, with the outcome of its newest deliveries.
func (w *Webhooks) viewWithDeliveries(ctx context.Context, account string, e *webhook.Endpoint) (client.Webhook, error) {
	view := viewWebhook(account, e, w.Now())
	newest, _, err := w.Store.ListDeliveries(ctx, e.ID, store.PageRequest{Limit: recentDeliveries})
	view.RecentDeliveries = countOutcomes(newest)
	return view, err
}

// countOutcomes returns how many deliveries failed or wait for another attempt. The newest
// delivery comes first.
func countOutcomes(newest []store.WebhookDelivery) *client.RecentDeliveries {
	var r client.RecentDeliveries
	for _, d := range newest {
		if len(d.Attempts) == 0 {
			continue
		}
		r.Attempted++
		if last := d.Attempts[len(d.Attempts)-1]; !webhook.IsSuccess(last) {
			r.Failed++
			if r.LastFailure == nil {
				attempt := viewAttempt(last)
				r.LastFailure = &attempt
			}
		}
		if r.Attempted <= failingDeliveries {
			r.Failing = r.Failed == r.Attempted
		}
	}
	return &r
}

// show answers GET /v1/webhooks/{webhook_id}.
func (w *Webhooks) show(c *gin.Context) (any, error) {
	account, _, e, err := w.loadEndpointInPath(c)
	if err != nil {
		return nil, err
	}
	return w.viewWithDeliveries(c.Request.Context(), account, e)
}

// create answers POST /v1/webhooks. Only the answers of create and rotate contain the
// secret.
func (w *Webhooks) create(c *gin.Context) (any, error) {
	e := webhook.NewEndpoint(w.Now())
	account, err := caller.ReadAdminRequest(w.Exchange, c, exchange.SmallObject, func(body *request.JSONObject) {
		if body.Require("url", "a string", &e.URL, "it is where events are sent, such as https://example.com/hook") {
			checkWebhookURL(body, e.URL)
		}
		readWebhook(body, &e)
		body.RejectUnknown("account, url, events and description")
	})
	if err != nil {
		return nil, err
	}
	all, err := webhook.LoadEndpoints(c.Request.Context(), w.Store, account)
	if err != nil {
		return nil, err
	}
	if err := all.Add(e); err != nil {
		return nil, request.Errorf(http.StatusConflict, "too_many_webhooks",
			"the account %s already has %d webhooks, the most that an account may have; delete one that is not used", textfmt.Shorten(account, 64), webhook.MaxEndpoints)
	}
	if err := w.saveEndpointChange(c, audit.WebhookCreate, account, &all, &e); err != nil {
		return nil, err
	}
	view := viewWebhook(account, &e, w.Now())
	view.Secret = e.Secret
	return view, nil
}

func checkWebhookURL(body *request.JSONObject, address string) {
	parsed, err := url.Parse(address)
	switch {
	case len(address) > maxWebhookURL:
		body.AddProblem("url", "has %d bytes; it may have at most %d", len(address), maxWebhookURL)
	case err != nil || strings.ContainsFunc(address, func(r rune) bool { return r <= ' ' || r == 0x7F }):
		body.AddProblem("url", "cannot be parsed; it must be an address such as https://example.com/hook")
	case parsed.Scheme != "https" && parsed.Scheme != "http" || parsed.Hostname() == "":
		body.AddProblem("url", "must begin with https:// or http:// and name a host")
	case parsed.User != nil:
		body.AddProblem("url", "contains a user name or password, which would not be sent; leave it out and let the receiver check the signature")
	case parsed.Fragment != "":
		body.AddProblem("url", "has a fragment (#), which is not sent; leave it out")
	}
}

// readWebhook reads the fields that both POST and PATCH accept, except the URL.
func readWebhook(body *request.JSONObject, e *webhook.Endpoint) {
	if body.IsNull("events") {
		e.Events = nil
	}
	var events []string
	if body.Read("events", "an array of names of events", &events) {
		for i, one := range events {
			switch {
			case !slices.Contains(webhook.EventTypes(), one):
				body.AddProblem("events", "%q is unknown; the events are %s", textfmt.Shorten(one, 64), strings.Join(webhook.EventTypes(), ", "))
			case slices.Contains(events[:i], one):
				body.AddProblem("events", "%q occurs twice in the list; name it once", one)
			}
		}
		e.Events = events
	}
	if body.IsNull("description") {
		e.Description = ""
	}
	if body.Read("description", "a string", &e.Description) {
		if n := utf8.RuneCountInString(e.Description); n > maxWebhookDescription || strings.ContainsFunc(e.Description, unicode.IsControl) {
			body.AddProblem("description", "must be plain text of at most %d characters", maxWebhookDescription)
		}
	}
}

// patch answers PATCH /v1/webhooks/{webhook_id}. Absent fields keep their values.
func (w *Webhooks) patch(c *gin.Context) (any, error) {
	var fresh webhook.Endpoint
	var disabled *bool
	var given []string
	account, err := caller.ReadAdminRequest(w.Exchange, c, exchange.SmallObject, func(body *request.JSONObject) {
		given = append(body.UnreadFields(), nullFields(body, "events", "description")...)
		if body.Read("url", "a string", &fresh.URL) {
			checkWebhookURL(body, fresh.URL)
		}
		readWebhook(body, &fresh)
		body.Read("disabled", "true or false", &disabled)
		body.RejectUnknown("account, url, events, description and disabled")
	})
	if err != nil {
		return nil, err
	}
	all, err := webhook.LoadEndpoints(c.Request.Context(), w.Store, account)
	if err != nil {
		return nil, err
	}
	e, err := findEndpoint(c, &all)
	if err != nil {
		return nil, err
	}
	for _, field := range given {
		switch field {
		case "url":
			e.URL = fresh.URL
		case "events":
			e.Events = fresh.Events
		case "description":
			e.Description = fresh.Description
		}
	}
	switch {
	case disabled == nil:
	case !*disabled:
		e.SetDisabled("", w.Now())
	case e.Disabled == nil:
		e.SetDisabled("an administrator disabled it", w.Now())
	}
	if err := w.saveEndpointChange(c, audit.WebhookChange, account, &all, e); err != nil {
		return nil, err
	}
	return viewWebhook(account, e, w.Now()), nil
}

// nullFields returns those of the fields that are null in the body.
func nullFields(body *request.JSONObject, fields ...string) []string {
	return slices.DeleteFunc(fields, func(field string) bool { return !body.IsNull(field) })
}

// remove answers DELETE /v1/webhooks/{webhook_id}. The pending deliveries of the
// webhook fail at the time of their next attempt, without a request to the URL.
func (w *Webhooks) remove(c *gin.Context) (any, error) {
	account, all, e, err := w.loadEndpointInPath(c)
	if err != nil {
		return nil, err
	}
	gone := *e
	all.Remove(gone.ID)
	return gin.H{"id": gone.ID, "deleted": true}, w.saveEndpointChange(c, audit.WebhookDelete, account, all, &gone)
}

// rotate answers POST /v1/webhooks/{webhook_id}/rotate.
func (w *Webhooks) rotate(c *gin.Context) (any, error) {
	account, all, e, err := w.loadEndpointInPath(c)
	if err != nil {
		return nil, err
	}
	e.Rotate(w.Now())
	if err := w.saveEndpointChange(c, audit.WebhookRotate, account, all, e); err != nil {
		return nil, err
	}
	view := viewWebhook(account, e, w.Now())
	view.Secret = e.Secret
	return view, nil
}

// sendTestEvent answers POST /v1/webhooks/{webhook_id}/test: it sends a sample event now and
// answers with the outcome.
func (w *Webhooks) sendTestEvent(c *gin.Context) (any, error) {
	_, _, e, err := w.loadEndpointInPath(c)
	if err != nil {
		return nil, err
	}
	kind := c.Query("event")
	if kind == "" {
		kind = e.SampleType()
	} else if !slices.Contains(webhook.EventTypes(), kind) {
		return nil, rowmill.Invalid("event", "is %q; the events are %s", textfmt.Shorten(kind, 64), strings.Join(webhook.EventTypes(), ", "))
	}
	id, body, err := e.NewSampleEvent(kind, w.Now())
	if err != nil {
		return nil, err
	}
	attempt := w.Sender.SendOnce(c.Request.Context(), e, id, body)
	return gin.H{"id": id, "event": kind, "delivered": webhook.IsSuccess(attempt), "attempt": viewAttempt(attempt)}, nil
}

// listDeliveries answers GET /v1/webhooks/{webhook_id}/deliveries with one page, newest
// first.
func (w *Webhooks) listDeliveries(c *gin.Context) (any, error) {
	_, _, e, err := w.loadEndpointInPath(c)
	if err != nil {
		return nil, err
	}
	var p request.Problems
	limit := exchange.QueryInt(c, &p, "limit", maxDeliveriesPage, 1, maxDeliveriesPage)
	cursor := c.Query("cursor")
	if cursor != "" && !webhook.IsDeliveryID(cursor) {
		p.Add("cursor", "is not the next_cursor of an earlier page; leave it out to start from the first page")
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	found, more, err := w.Store.ListDeliveries(c.Request.Context(), e.ID, store.PageRequest{Limit: int(limit), After: cursor})
	if err != nil {
		return nil, err
	}
	views, next := []client.Delivery{}, ""
	for _, d := range found {
		views = append(views, viewDelivery(d))
		if more {
			next = d.ID
		}
	}
	return gin.H{"deliveries": views, "next_cursor": exchange.NilIfZero(next)}, nil
}

// redeliver answers POST /v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver:
// the delivery is sent again, with a full schedule of attempts. A pending delivery is sent now,
// instead of at the time of its next attempt.
func (w *Webhooks) redeliver(c *gin.Context) (any, error) {
	_, _, e, err := w.loadEndpointInPath(c)
	if err != nil {
		return nil, err
	}
	ctx, id := c.Request.Context(), c.Param("delivery_id")
	missing := request.Errorf(http.StatusNotFound, "delivery_not_found", "the webhook has no delivery with the ID %s; deliveries that ended more than %d days ago are removed", textfmt.Shorten(id, 64), webhook.KeepLog/(24*time.Hour))
	if !webhook.IsDeliveryID(id) {
		return nil, missing
	}
	d, err := w.Store.GetDelivery(ctx, id)
	switch {
	case errors.Is(err, rowmill.ErrNotFound), err == nil && d.Endpoint != e.ID:
		return nil, missing
	case err != nil:
		return nil, err
	case e.Disabled != nil:
		return nil, request.Errorf(http.StatusConflict, "webhook_disabled", "the webhook is disabled, so nothing is sent to it; enable it first")
	}
	now, err := w.Store.Time(ctx)
	if err == nil {
		d, err = w.Store.PutDelivery(ctx, webhook.RequeueDelivery(d, now))
	}
	if err != nil {
		return nil, fmt.Errorf("send a delivery again: %w", err)
	}
	w.Sender.Wake()
	return viewDelivery(d), nil
}
