package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/events"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/spelling"
)

const (
	// maxTopics is how many topics one stream may have: a page shows a list and
	// perhaps some jobs; whoever follows more follows all.
	maxTopics = 32
	// firstPage is how many jobs of an account a stream begins with, beside those
	// that are not over: the most of a page of the list.
	firstPage = 100
	// eventsRetry is after how long a client connects again, ms: the others of a
	// node that ends come in less than a second of each other too.
	eventsRetry = 3000
	// eventsAlive is how long a stream is silent before a comment shows that it
	// lives. Proxies usually cut silent connections after a minute.
	eventsAlive = 15 * time.Second
	// eventsBeat is how often a stream looks at what no change tells it of: whether
	// the node is about to stop, say.
	eventsBeat = time.Second
	// eventsKey is how often a stream looks its key up again. What the keyring
	// knows may be 2 s old, and 5 s are promised.
	eventsKey = 2 * time.Second
	// streamsFullRetry is after how many seconds a client may ask again that found
	// all streams taken.
	streamsFullRetry = "5"
)

// The topics of a stream, as they are asked for.
const (
	topicJobs  = "jobs"
	topicJob   = "job:"
	topicNodes = "nodes"
)

// streams tell clients what changes.
type streams struct {
	*exchange.Exchange
	jobs     *jobs
	gate     *gate
	hub      *events.Hub
	draining func() bool
}

// newStreams makes the streams of a server, and their hub.
func (s *Server) newStreams(jobs *jobs, gate *gate, nodes *nodes) *streams {
	return &streams{
		Exchange: s.exchange, jobs: jobs, gate: gate, draining: s.Service.Draining,
		hub: events.New(events.Config{
			Store: s.Store, Nodes: nodes.text, Waiting: s.Service.Waiting, Logger: s.Logger, Now: s.Now, Most: s.MaxStreams,
		}),
	}
}

// text is the list of nodes as an event shows it.
func (n *nodes) text(ctx context.Context) string {
	list, err := exchange.Encode(n.all(ctx))
	if err != nil {
		panic(fmt.Sprintf("encode the nodes: %v", err)) // all our types encode
	}
	return string(list)
}

// listen answers GET /v1/events.
func (s *streams) listen(c *gin.Context) error {
	topics, err := s.topics(c)
	if err != nil {
		return err
	}
	l, err := s.hub.Join(c.Request.Context(), topics, c.GetHeader("Last-Event-ID"))
	if errors.Is(err, events.ErrFull) {
		full := request.Errorf(nethttp.StatusServiceUnavailable, "too_many_streams",
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
	c.Status(nethttp.StatusOK)
	ctx, cancel := s.during(c)
	defer cancel()
	stream := &stream{
		streams: s, Listener: l, who: caller(c), ctx: ctx,
		out: s.Writer(c), flush: nethttp.NewResponseController(c.Writer).Flush,
	}
	if stream.begin(page) == nil {
		stream.follow(func() bool { return s.gate.still(c) })
	}
	return nil // the client is gone, or told, or should listen through another node
}

// during is the context of a stream. That of a session's ends with its cookie,
// without a word: a browser comes again, with the cookie that it has by then.
func (s *streams) during(c *gin.Context) (context.Context, context.CancelFunc) {
	session, is := c.Value(contextSession).(ticket)
	if !is {
		return context.WithCancel(c.Request.Context())
	}
	return context.WithTimeout(c.Request.Context(), session.Expires.Sub(s.jobs.now()))
}

// topics reads what a client wants to listen to.
func (s *streams) topics(c *gin.Context) ([]events.Topic, error) {
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
	account := caller(c).account
	var topics []events.Topic
	for _, name := range names {
		id, ofJob := strings.CutPrefix(name, topicJob)
		switch {
		case name == topicJobs:
			topics = append(topics, events.Topic{Account: account})
		case name == topicNodes:
			if err := operates(c); err != nil {
				return nil, err
			}
			topics = append(topics, events.Nodes)
		case ofJob:
			if _, err := s.jobs.Head(c, id); err != nil {
				return nil, err
			}
			topics = append(topics, events.Topic{Account: account, Job: id})
		default:
			p.Add("topics", "has %q; there are %s, %s<job id> and %s", spelling.Shorten(name, 64), topicJobs, topicJob, topicNodes)
		}
	}
	return topics, p.Err()
}

// page is the newest page of jobs, where a stream begins with it.
func (s *streams) page(c *gin.Context, topics []events.Topic, l *events.Listener) ([]*rowmill.Job, error) {
	all := events.Topic{Account: caller(c).account}
	if !l.Whole || !slices.Contains(topics, all) {
		return nil, nil
	}
	page, _, err := s.jobs.store.List(c.Request.Context(), all.Account, firstPage, "")
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	return page, nil
}

// still reports whether the key of a request that was let pass would be again, for
// the same. Of a store that is away nobody knows.
func (g *gate) still(c *gin.Context) bool {
	now, _, err := g.who(c)
	was := caller(c)
	if err != nil {
		return request.Describe(err).Status != nethttp.StatusUnauthorized
	}
	return now.account == was.account && now.role == was.role && now.dialect == was.dialect
}

// A stream is what one client is told.
type stream struct {
	*streams
	*events.Listener
	who   principal
	ctx   context.Context
	out   io.Writer
	flush func() error
	told  time.Time // when something was written last
}

// begin tells what there is, or what has changed since the client was told.
func (s *stream) begin(page []*rowmill.Job) error {
	text := fmt.Appendf(nil, "retry: %d\n\n", eventsRetry)
	if s.Lost {
		text = events.AppendFrame(text, events.EventResync, s.hub.ID(0), []byte("{}"))
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

// follow tells what changes, until the client is gone, its key is not valid any more,
// or the node is about to stop.
func (s *stream) follow(valid func() bool) {
	beat := time.NewTicker(eventsBeat)
	defer beat.Stop()
	for checked := time.Now(); !s.draining() && s.ctx.Err() == nil; {
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

// tellAll tells of changes. Those that cannot be read now come later.
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

// tell tells of one change.
func (s *stream) tell(change events.Change) error {
	if change.Job == "" {
		return s.write(events.AppendFrame(nil, events.EventNodes, s.hub.ID(change.Seq), []byte(change.Nodes)))
	}
	job, account, err := s.hub.Job(s.ctx, change.Job)
	switch {
	case errors.Is(err, rowmill.ErrNotFound), err == nil && account != s.who.account:
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", errUnread, err)
	}
	return s.show(&job, change.Seq)
}

// show sends a job as GET /v1/jobs/{job_id} shows it.
func (s *stream) show(job *rowmill.Job, seq int64) error {
	view, err := exchange.Encode(s.who.view(s.jobs.current(job, s.who.account)))
	if err != nil {
		return err
	}
	return s.write(events.AppendFrame(nil, events.EventJob, s.hub.ID(seq), view))
}

func (s *stream) write(text []byte) error {
	s.told = time.Now()
	if _, err := s.out.Write(text); err != nil {
		return err
	}
	return s.flush()
}
