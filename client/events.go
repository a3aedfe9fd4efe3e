package client

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Names of events.
const (
	EventJob    = "job"    // current state of a job
	EventNodes  = "nodes"  // current list of the nodes
	EventResync = "resync" // earlier events may be lost, so all current states follow
	EventReady  = "ready"  // all current states have been sent
)

// Event is one event of a stream. An event contains a whole state, never a difference.
type Event struct {
	Name  string // EventJob, EventNodes, EventResync, EventReady, or a name that only newer services send
	ID    string // id of the event, for Subscription.After
	Job   Job    // the state of a job; set for EventJob
	Nodes []Node // all nodes; set for EventNodes
}

// Subscription selects the events of a stream.
type Subscription struct {
	Topics []string // "jobs", "job:<id>" or "nodes"; an empty list means "jobs"
	After  string   // id of the last event that the caller received earlier; empty if none
	// Pause is the time between two attempts to connect. Default: the value that the
	// service sends, and 3 s until the service has sent one.
	Pause time.Duration
}

// eventsPause is the default of Subscription.Pause.
const eventsPause = 3 * time.Second

// Events yields the current states and then each change, until ctx ends. If the connection
// breaks, Events reconnects and continues after the last event. It also yields the error of
// a failed attempt, and tries again if the error is Temporary.
func (c *Client) Events(ctx context.Context, l Subscription) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		s := &eventStream{client: c, subscription: l, pause: eventsPause}
		for {
			stopped, err := s.streamOnce(ctx, yield)
			wait := cmp.Or(max(l.Pause, 0), s.pause)
			switch {
			case stopped || ctx.Err() != nil:
				return
			case err != nil && (!yield(Event{}, err) || !Temporary(err)):
				return
			}
			var refusal *APIError
			if errors.As(err, &refusal) {
				wait = max(wait, refusal.RetryAfter)
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
	}
}

// An eventStream is the state of a stream of events that survives a new connection.
type eventStream struct {
	client       *Client
	subscription Subscription
	pause        time.Duration // pause before a new connection, as the service last sent it in the field retry
}

// streamOnce makes one connection and yields its events until the connection ends. stopped
// is true if the caller has ended the iteration.
func (s *eventStream) streamOnce(ctx context.Context, yield func(Event, error) bool) (stopped bool, err error) {
	c := s.client
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(c.cfg.StallTimeout, func() {
		cancel(&UnreachableError{Server: c.base, Err: fmt.Errorf("no event was received for %v", c.cfg.StallTimeout)})
	})
	defer stalled.Stop()
	query := url.Values{}
	if len(s.subscription.Topics) > 0 {
		query.Set("topics", strings.Join(s.subscription.Topics, ","))
	}
	req, err := c.newRequest(ctx, http.MethodGet, "/v1/events", query, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if s.subscription.After != "" {
		req.Header.Set("Last-Event-ID", s.subscription.After)
	}
	resp, err := c.sendRequest(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxBody)
	var e Event
	data := ""
	for lines.Scan() {
		stalled.Reset(c.cfg.StallTimeout)
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			e.Name = value
		case "id":
			e.ID = value
		case "data":
			data = value // the service sends one line per event
		case "retry":
			if ms, err := strconv.Atoi(value); err == nil && ms >= 0 {
				s.pause = time.Duration(ms) * time.Millisecond
			}
		}
		if lines.Text() != "" || e.Name == "" {
			continue
		}
		if err := e.decodeData(data); err != nil {
			return false, &UnreachableError{Server: c.base, Err: err}
		}
		if e.ID != "" {
			s.subscription.After = e.ID
		}
		if !yield(e, nil) {
			return true, nil
		}
		e, data = Event{}, ""
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return false, fmt.Errorf("an event of %s is larger than %d MiB", c.base, maxBody>>20)
	case err != nil:
		return false, c.wrapSendError(ctx, err)
	}
	return false, nil
}

// decodeData decodes the data of an event into Job or Nodes. It ignores data of other events.
func (e *Event) decodeData(data string) error {
	var into any
	switch e.Name {
	case EventJob:
		into = &e.Job
	case EventNodes:
		into = &e.Nodes
	default:
		return nil
	}
	if err := json.Unmarshal([]byte(data), into); err != nil {
		return fmt.Errorf("decode an event: %w", err)
	}
	return nil
}
