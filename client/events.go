package client

import (
	"bufio"
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

// The names of events.
const (
	EventJob    = "job"    // a job as it is now
	EventNodes  = "nodes"  // the nodes as they are now
	EventResync = "resync" // it is not known what changed since the last event: all there is follows
	EventReady  = "ready"  // all was told that there is, or that changed meanwhile
)

// Event is one of a stream: states, never differences.
type Event struct {
	Name  string // one of those above, or of a later version
	ID    string
	Job   Job    // of EventJob
	Nodes []Node // of EventNodes
}

// Listening says what to listen to.
type Listening struct {
	Topics []string // "jobs", "job:<id>", "nodes"; none: jobs
	After  string   // id of the last event that was seen, where there is one
	// Pause is the time between two attempts to connect. Default: what the service
	// says, and 3 s before it has said anything.
	Pause time.Duration
}

// eventsPause is the default of Listening.Pause.
const eventsPause = 3 * time.Second

// Events yields what changes, first what there is, until ctx ends. A stream that
// ends or breaks is taken up again after its last event. The error of an attempt
// that failed is yielded too; the next one follows where that is Passing.
func (c *Client) Events(ctx context.Context, l Listening) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		s := &eventStream{client: c, listening: l, pause: eventsPause}
		for {
			stopped, err := s.attempt(ctx, yield)
			wait := s.pause
			if l.Pause > 0 {
				wait = l.Pause
			}
			switch {
			case stopped || ctx.Err() != nil:
				return
			case err != nil && (!yield(Event{}, err) || !Passing(err)):
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

// An eventStream is a stream over its connections.
type eventStream struct {
	client    *Client
	listening Listening
	pause     time.Duration // what the service asks for
}

// attempt listens by one connection. stopped says that the caller wants no more.
func (s *eventStream) attempt(ctx context.Context, yield func(Event, error) bool) (stopped bool, err error) {
	c := s.client
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(c.cfg.StallTimeout, func() {
		cancel(&UnreachableError{Server: c.base, Err: fmt.Errorf("the stream of events stood still for %v", c.cfg.StallTimeout)})
	})
	defer stalled.Stop()
	query := url.Values{}
	if len(s.listening.Topics) > 0 {
		query.Set("topics", strings.Join(s.listening.Topics, ","))
	}
	req, err := c.request(ctx, http.MethodGet, "/v1/events", query, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if s.listening.After != "" {
		req.Header.Set("Last-Event-ID", s.listening.After)
	}
	resp, err := c.do(req)
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
			data = value // of one line each
		case "retry":
			if ms, err := strconv.Atoi(value); err == nil && ms >= 0 {
				s.pause = time.Duration(ms) * time.Millisecond
			}
		}
		if lines.Text() != "" || e.Name == "" {
			continue
		}
		if err := e.read(data); err != nil {
			return false, &UnreachableError{Server: c.base, Err: err}
		}
		if e.ID != "" {
			s.listening.After = e.ID
		}
		if !yield(e, nil) {
			return true, nil
		}
		e, data = Event{}, ""
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return false, fmt.Errorf("an event of %s is above %d MiB", c.base, maxBody>>20)
	case err != nil:
		return false, c.sendError(ctx, err)
	}
	return false, nil
}

// read decodes what an event holds.
func (e *Event) read(data string) error {
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
		return fmt.Errorf("an event cannot be read: %w", err)
	}
	return nil
}
