// Package streams owns the stream of events of one client: its topics, its beginning,
// and its end. Package events looks for changes, once for all streams of a node.
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
	"github.com/rowmill/rowmill/internal/spelling"
)

const (
	// maxTopics bounds the topics of a stream. A page needs a list and a few jobs; a
	// client that needs more follows all jobs.
	maxTopics = 32
	// firstPage is how many jobs of an account a stream begins with, beside those that
	// are not over: a whole page of the list.
	firstPage = 100
	// eventsRetry is how long a client waits before it connects again, in ms. Other
	// clients of a node that ended come back in the same second.
	eventsRetry = 3000
	// eventsAlive is how long a stream stays silent before a comment keeps it open.
	// Proxies usually cut silent connections after a minute.
	eventsAlive = 15 * time.Second
	// eventsBeat is how often a stream checks what no change reports, such as the end of
	// its node.
	eventsBeat = time.Second
	// eventsKey is how often a stream checks its key again. The keyring's list may be 2 s
	// old, and 5 s are promised.
	eventsKey = 2 * time.Second
	// streamsFullRetry is how many seconds a client waits if all streams are taken.
	streamsFullRetry = "5"
)

// The topics of a stream, as they are asked for.
const (
	topicJobs  = "jobs"
	topicJob   = "job:"
	topicNodes = "nodes"
)

// Streams tells clients what changes.
type Streams struct {
	*exchange.Exchange
	Jobs     *jobs.Jobs
	Gate     *access.Gate
	Hub      *events.Hub
	Draining func() bool
}

// Route adds the route of events.
func (s *Streams) Route(v1 gin.IRoutes) { v1.GET("/events", s.Do(s.listen)) }

// listen answers GET /v1/events.
func (s *Streams) listen(c *gin.Context) error {
	topics, err := s.topics(c)
	if err != nil {
		return err
	}
	l, err := s.Hub.Join(c.Request.Context(), topics, c.GetHeader("Last-Event-ID"))
	if errors.Is(err, events.ErrFull) {
		full := request.Errorf(http.StatusServiceUnavailable, "too_many_streams",
			"this node has as many streams of events as it may (http.max_streams); try again, or ask for jobs one by one")
		full.Header = map[string]string{"Retry-After": streamsFullRetry}
		return full
	}
	if err != nil {
		return fmt.Errorf("look for changes of jobs: %w", err)
	}
	defer l.Leave()
	page, err := s.page(c, topics, l)
	if err != nil {
		return err
	}
	c.Header("Content-Type", events.ContentType)
	c.Header("Cache-Control", "no-store")
	c.Header("X-Accel-Buffering", "no") // nginx would gather the events
	c.Status(http.StatusOK)
	ctx, cancel := s.during(c)
	defer cancel()
	stream := &stream{
		Streams: s, Listener: l, who: caller.Of(c), ctx: ctx,
		out: s.Writer(c), flush: http.NewResponseController(c.Writer).Flush,
	}
	if stream.begin(page) == nil {
		stream.follow(func() bool { return s.Gate.Still(c) })
	}
	return nil // the client is gone, or told, or should listen through another node
}

// during is the context of a stream. With a session it ends with the cookie, without a
// message: the browser connects again with its newer cookie.
func (s *Streams) during(c *gin.Context) (context.Context, context.CancelFunc) {
	ends, is := access.SessionEnd(c)
	if !is {
		return context.WithCancel(c.Request.Context())
	}
	return context.WithTimeout(c.Request.Context(), ends.Sub(s.Jobs.Now()))
}

// topics reads the topics that a client asks for.
func (s *Streams) topics(c *gin.Context) ([]events.Topic, error) {
	given, there := c.GetQuery("topics")
	if !there {
		given = topicJobs
	}
	names := strings.Split(given, ",")
	slices.Sort(names)
	names = slices.Compact(names)
	var p request.Problems
	if len(names) > maxTopics {
		p.Add("topics", "are %d; a stream has at most %d: listen to all jobs, or by several streams", len(names), maxTopics)
		return nil, p.Err()
	}
	account := caller.Of(c).Account
	var topics []events.Topic
	for _, name := range names {
		id, ofJob := strings.CutPrefix(name, topicJob)
		switch {
		case name == topicJobs:
			topics = append(topics, events.Topic{Account: account})
		case name == topicNodes:
			if err := caller.Operates(c); err != nil {
				return nil, err
			}
			topics = append(topics, events.Nodes)
		case ofJob:
			if _, err := s.Jobs.Head(c, id); err != nil {
				return nil, err
			}
			topics = append(topics, events.Topic{Account: account, Job: id})
		default:
			p.Add("topics", "has %q; there are %s, %s<job id> and %s", spelling.Shorten(name, 64), topicJobs, topicJob, topicNodes)
		}
	}
	return topics, p.Err()
}

// page returns the newest jobs, if the stream begins with them.
func (s *Streams) page(c *gin.Context, topics []events.Topic, l *events.Listener) ([]*rowmill.Job, error) {
	all := events.Topic{Account: caller.Of(c).Account}
	if !l.Whole || !slices.Contains(topics, all) {
		return nil, nil
	}
	page, _, err := s.Jobs.Store.List(c.Request.Context(), all.Account, firstPage, "")
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	return page, nil
}

// A stream is the connection of one client.
type stream struct {
	*Streams
	*events.Listener
	who   caller.Principal
	ctx   context.Context
	out   io.Writer
	flush func() error
	told  time.Time // when something was written last
}

// begin sends the state now, or the changes since the client's last event.
func (s *stream) begin(page []*rowmill.Job) error {
	text := fmt.Appendf(nil, "retry: %d\n\n", eventsRetry)
	if s.Lost {
		text = events.AppendFrame(text, events.EventResync, s.Hub.ID(0), []byte("{}"))
	}
	if err := s.write(text); err != nil {
		return err
	}
	told := map[string]bool{}
	for _, job := range page {
		told[job.ID] = true
		if err := s.show(job, 0); err != nil {
			return err
		}
	}
	for _, change := range s.Initial {
		if told[change.Job] {
			continue
		}
		if err := s.tell(change); err != nil {
			return err
		}
	}
	s.Initial = nil
	return s.write(events.AppendFrame(nil, events.EventReady, s.Position, []byte("{}")))
}

// follow sends changes until the client is gone, its key is no longer valid, or the node
// is about to stop.
func (s *stream) follow(valid func() bool) {
	beat := time.NewTicker(eventsBeat)
	defer beat.Stop()
	for checked := time.Now(); !s.Draining() && s.ctx.Err() == nil; {
		if err := s.tellAll(s.Take()); err != nil {
			return
		}
		if time.Since(s.told) >= eventsAlive {
			if err := s.write([]byte(": alive\n\n")); err != nil {
				return
			}
		}
		if time.Since(checked) >= eventsKey {
			checked = time.Now()
			if !valid() {
				_ = s.write(events.AppendFrame(nil, events.EventExpired, "", []byte(`{"message":"the API key was revoked or has expired"}`)))
				return
			}
		}
		select {
		case <-s.ctx.Done():
			return
		case <-s.Wake:
		case <-beat.C:
		}
	}
}

// errUnread says that a job could not be read now.
var errUnread = errors.New("a job cannot be read now")

// tellAll sends changes. A job that cannot be read now is sent later.
func (s *stream) tellAll(changes []events.Change) error {
	for i, change := range changes {
		err := s.tell(change)
		if errors.Is(err, errUnread) {
			s.Again(changes[i:])
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tell sends one change.
func (s *stream) tell(change events.Change) error {
	if change.Job == "" {
		return s.write(events.AppendFrame(nil, events.EventNodes, s.Hub.ID(change.Seq), []byte(change.Nodes)))
	}
	job, account, err := s.Hub.Job(s.ctx, change.Job)
	switch {
	case errors.Is(err, rowmill.ErrNotFound), err == nil && account != s.who.Account:
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", errUnread, err)
	}
	return s.show(&job, change.Seq)
}

// show sends a job as GET /v1/jobs/{job_id} shows it.
func (s *stream) show(job *rowmill.Job, seq int64) error {
	view, err := exchange.Encode(jobs.ViewOf(s.who, s.Jobs.Current(job, s.who.Account)))
	if err != nil {
		return err
	}
	return s.write(events.AppendFrame(nil, events.EventJob, s.Hub.ID(seq), view))
}

func (s *stream) write(text []byte) error {
	s.told = time.Now()
	if _, err := s.out.Write(text); err != nil {
		return err
	}
	return s.flush()
}
