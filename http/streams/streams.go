// Package streams answers requests for event streams: it writes the events of each client's
// stream. Package events finds the changes, once for all streams of a node.
package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/access"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/events"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/jobs"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/textfmt"
)

const (
	// maxTopics limits the topics of a stream. A console page needs the topics of a list and
	// a few jobs; a client that needs more topics can use the topic of all jobs.
	maxTopics = 32
	// firstPage is how many of an account's newest jobs a stream sends first: one page of
	// the job list. The stream also sends all jobs that have not ended.
	firstPage = 100
	// eventsRetry is how long a client waits before it reconnects, in milliseconds. When a
	// node stops, all its clients reconnect at about the same time.
	eventsRetry = 3000
	// eventsAlive is how long a stream is silent before it sends a comment. Proxies
	// usually close silent connections after a minute.
	eventsAlive = 15 * time.Second
	// checkEvery is how often a stream checks whether the node drains, and whether the
	// stream has been silent for eventsAlive.
	checkEvery = time.Second
	// keyCheckEvery is how often a stream checks its API key. The keyring's list may be 2 s
	// old; the documentation promises that a revoked key stops working within 5 s.
	keyCheckEvery = 2 * time.Second
	// streamsFullRetry is the value of the header Retry-After when the node has too many
	// streams, in seconds.
	streamsFullRetry = "5"
)

// Names of topics in the query of GET /v1/events. A job id follows topicJob.
const (
	topicJobs  = "jobs"
	topicJob   = "job:"
	topicNodes = "nodes"
)

// Streams answers requests for event streams.
type Streams struct {
	*exchange.Exchange
	Jobs     *jobs.Jobs
	Gate     *access.Gate
	Hub      *events.Hub
	Draining func() bool
}

// Route adds the route of event streams.
func (s *Streams) Route(v1 gin.IRoutes) { v1.GET("/events", s.HandleRaw(s.streamEvents)) }

// streamEvents answers GET /v1/events with an event stream.
func (s *Streams) streamEvents(c *gin.Context) error {
	topics, err := s.parseTopics(c)
	if err != nil {
		return err
	}
	l, err := s.Hub.Join(c.Request.Context(), topics, c.GetHeader("Last-Event-ID"))
	if errors.Is(err, events.ErrFull) {
		full := request.Errorf(http.StatusServiceUnavailable, "too_many_streams",
			"this node has the largest number of event streams (http.max_streams); try again later, or request the state of each job")
		full.Header = map[string]string{"Retry-After": streamsFullRetry}
		return full
	}
	if err != nil {
		return fmt.Errorf("begin an event stream: %w", err)
	}
	defer l.Leave()
	page, err := s.newestJobs(c, topics, l)
	if err != nil {
		return err
	}
	c.Header("Content-Type", events.ContentType)
	c.Header("Cache-Control", "no-store")
	c.Header("X-Accel-Buffering", "no") // nginx would buffer the events
	c.Status(http.StatusOK)
	ctx, cancel := s.streamContext(c)
	defer cancel()
	stream := &eventStream{
		Streams: s, Listener: l, who: caller.PrincipalOf(c), ctx: ctx,
		out: s.Writer(c), flush: http.NewResponseController(c.Writer).Flush,
	}
	if stream.sendInitial(page) == nil {
		stream.sendUntilClosed(func() bool { return s.Gate.IsStillAuthorized(c) })
	}
	return nil // the stream ended: the client disconnected, its key is no longer valid, or the node drains
}

// streamContext returns the context of a stream. If the request has a browser session,
// the context ends when the session's cookie expires. The stream then ends without a
// message, and the browser reconnects with a newer cookie.
func (s *Streams) streamContext(c *gin.Context) (context.Context, context.CancelFunc) {
	ends, is := access.SessionExpiry(c)
	if !is {
		return context.WithCancel(c.Request.Context())
	}
	return context.WithTimeout(c.Request.Context(), ends.Sub(s.Jobs.Now()))
}

// parseTopics parses the topics in the query, and checks that the caller may see them.
func (s *Streams) parseTopics(c *gin.Context) ([]events.Topic, error) {
	given, there := c.GetQuery("topics")
	if !there {
		given = topicJobs
	}
	names := strings.Split(given, ",")
	slices.Sort(names)
	names = slices.Compact(names)
	var p request.Problems
	if len(names) > maxTopics {
		p.Add("topics", "are %d; a stream has at most %d. Use the topic jobs for all jobs, or open several streams", len(names), maxTopics)
		return nil, p.Err()
	}
	account := caller.PrincipalOf(c).Account
	var topics []events.Topic
	for _, name := range names {
		id, ofJob := strings.CutPrefix(name, topicJob)
		switch {
		case name == topicJobs:
			topics = append(topics, events.Topic{Account: account})
		case name == topicNodes:
			if err := caller.CheckOperator(c); err != nil {
				return nil, err
			}
			topics = append(topics, events.Nodes)
		case ofJob:
			if _, err := s.Jobs.FindHead(c, id); err != nil {
				return nil, err
			}
			topics = append(topics, events.Topic{Account: account, Job: id})
		default:
			p.Add("topics", "has %q; the topics are %s, %s<job id> and %s", textfmt.Shorten(name, 64), topicJobs, topicJob, topicNodes)
		}
	}
	return topics, p.Err()
}

// newestJobs returns the newest jobs of the account if the stream begins with the
// current states of all jobs; otherwise it returns nil.
func (s *Streams) newestJobs(c *gin.Context, topics []events.Topic, l *events.Listener) ([]*rowmill.Job, error) {
	all := events.Topic{Account: caller.PrincipalOf(c).Account}
	if !l.Whole || !slices.Contains(topics, all) {
		return nil, nil
	}
	page, _, err := s.Jobs.Store.List(c.Request.Context(), all.Account, firstPage, "")
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	return page, nil
}

// An eventStream is one client's connection to which events are written.
type eventStream struct {
	*Streams
	*events.Listener
	who       caller.Principal
	ctx       context.Context
	out       io.Writer
	flush     func() error
	lastWrite time.Time // time of the last write
}

// sendInitial sends the current states, or the changes since the client's last event. page
// has the account's newest jobs, which sendInitial sends first.
func (s *eventStream) sendInitial(page []*rowmill.Job) error {
	text := fmt.Appendf(nil, "retry: %d\n\n", eventsRetry)
	if s.Lost {
		text = events.AppendFrame(text, events.EventResync, s.Hub.EventID(0), []byte("{}"))
	}
	if err := s.write(text); err != nil {
		return err
	}
	sent := map[string]bool{}
	for _, job := range page {
		sent[job.ID] = true
		if err := s.sendJob(job, 0); err != nil {
			return err
		}
	}
	for _, change := range s.Initial {
		if sent[change.Job] {
			continue
		}
		if err := s.send(change); err != nil {
			return err
		}
	}
	s.Initial = nil
	return s.write(events.AppendFrame(nil, events.EventReady, s.Position, []byte("{}")))
}

// sendUntilClosed sends changes until the client disconnects, its API key is no longer valid, or
// the node drains. isAuthorized reports whether the key is still valid.
func (s *eventStream) sendUntilClosed(isAuthorized func() bool) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for checked := time.Now(); !s.Draining() && s.ctx.Err() == nil; {
		if err := s.sendAll(s.TakeChanges()); err != nil {
			return
		}
		if time.Since(s.lastWrite) >= eventsAlive {
			if err := s.write([]byte(": alive\n\n")); err != nil {
				return
			}
		}
		if time.Since(checked) >= keyCheckEvery {
			checked = time.Now()
			if !isAuthorized() {
				_ = s.write(events.AppendFrame(nil, events.EventExpired, "", []byte(`{"message":"the API key was revoked or has expired"}`)))
				return
			}
		}
		select {
		case <-s.ctx.Done():
			return
		case <-s.Wake:
		case <-tick.C:
		}
	}
}

// errUnreadable means that a job cannot be read from the store now.
var errUnreadable = errors.New("a job cannot be read now")

// sendAll sends changes. If a job cannot be read now, sendAll puts the job's change and
// all later changes back, so that a later call sends them.
func (s *eventStream) sendAll(changes []events.TopicChange) error {
	for i, change := range changes {
		err := s.send(change)
		if errors.Is(err, errUnreadable) {
			s.PutBack(changes[i:])
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// send sends the current state of the job or the list of nodes that changed. It sends
// nothing if the job does not exist or belongs to another account.
func (s *eventStream) send(change events.TopicChange) error {
	if change.Job == "" {
		return s.write(events.AppendFrame(nil, events.EventNodes, s.Hub.EventID(change.Seq), []byte(change.Nodes)))
	}
	job, account, err := s.Hub.ReadJob(s.ctx, change.Job)
	switch {
	case errors.Is(err, rowmill.ErrNotFound), err == nil && account != s.who.Account:
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return s.sendJob(&job, change.Seq)
}

// sendJob sends a job in the form of GET /v1/jobs/{job_id}. seq is the sequence number
// of the change, for the event's id.
func (s *eventStream) sendJob(job *rowmill.Job, seq int64) error {
	view, err := exchange.Encode(jobs.NewView(s.who, s.Jobs.WithWaitReason(job, s.who.Account)))
	if err != nil {
		return err
	}
	return s.write(events.AppendFrame(nil, events.EventJob, s.Hub.EventID(seq), view))
}

func (s *eventStream) write(text []byte) error {
	s.lastWrite = time.Now()
	if _, err := s.out.Write(text); err != nil {
		return err
	}
	return s.flush()
}
