package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/launch"
	"github.com/rowmill/rowmill/engine/placement"
)

// A server is one server of this node, with its process if it has one. Fleet.mu guards it.
type server struct {
	fleet  *Fleet
	set    ServerConfig
	always bool // the server runs without rows too
	facts  facts

	phase     placement.Phase
	since     time.Time       // begin of the phase
	on        []int           // GPUs of the process
	run       process         // nil if there is no process
	asleep    bool            // the process has no GPU memory
	starting  time.Time       // begin of the last start or wake-up
	attached  *attachedEngine // nil if the pipeline does not use the server
	idleSince time.Time       // since when the server has had no rows; zero if it has rows
	pace      pace
	err       error     // why the last run ended; nil after an answer
	lastLine  string    // last line of the output of that run
	failing   time.Time // time of the first end after the last answer; zero if err is nil
	plan      launch.RestartPlan
	failures  int       // number of failed starts in a row
	retryAt   time.Time // the server does not start before
	mode      placement.Mode
	adapters  map[string]time.Time // by adapter: time of the last attempt to load it into this process
}

func newServer(f *Fleet, set ServerConfig, now time.Time) *server {
	return &server{fleet: f, set: set, facts: readFacts(f.factsFile(set.Name), set), phase: placement.Stopped, since: now}
}

func (s *server) enter(phase placement.Phase, now time.Time) { s.phase, s.since = phase, now }

// observe updates the state of the server from its process and from the pipeline.
func (s *server) observe(now time.Time) {
	if s.run != nil && s.phase != placement.Stopping {
		s.observeProcess(now)
	}
	if s.phase == placement.Stopped && s.attached != nil && now.Sub(s.since) >= lostAfter {
		s.detach()
	}
	state, known := s.fleet.cfg.Pipeline.Engine(s.set.Name)
	if s.phase != placement.Running || !known || !state.Up {
		return
	}
	switch {
	case state.Rows > 0:
		s.idleSince = time.Time{}
	case s.idleSince.IsZero():
		s.idleSince = now
	}
	if rate, ok := s.pace.observe(state.Rows, state.Tokens, now); ok {
		s.facts.Rate = rate
	}
	if s.facts.learn(state.Info) {
		s.saveFacts()
	}
}

// observeProcess follows the process from its start to its end.
func (s *server) observeProcess(now time.Time) {
	state := s.run.State()
	switch {
	case state.Over:
		s.retryAt = now.Add(s.retryPause())
		s.fail(state, now)
		s.run, s.on, s.asleep = nil, nil, false
		s.enter(placement.Stopped, now)
	case s.phase == placement.Running && !state.Answers: // it has crashed, and starts again
		s.fail(state, now)
		s.starting = now
		s.enter(placement.Loading, now)
	case s.phase == placement.Loading && state.Answers && !s.asleep:
		s.facts.Load = now.Sub(s.starting).Seconds()
		s.begin(now)
	}
}

// fail keeps why the process ended.
func (s *server) fail(state launch.State, now time.Time) {
	s.err, s.lastLine = state.Err, state.LastLine
	switch {
	case s.err == nil:
		s.failing = time.Time{}
	case s.failing.IsZero():
		s.failing = now
	}
}

// retryPause returns the pause before the next start. A server that takes turns with others waits
// longer after several failed starts, because each start may end another server.
func (s *server) retryPause() time.Duration {
	if s.phase == placement.Running {
		return s.plan.Next(true)
	}
	s.failures++
	pause := s.plan.Next(false)
	if s.always || s.failures <= cheapFailures {
		return pause
	}
	return min(pause<<min(s.failures-cheapFailures, 10), longestRetry)
}

const (
	// cheapFailures is the number of failed starts in a row after which pauses grow beyond a
	// minute: a server that fails once more has a wrong command.
	cheapFailures = 6
	// longestRetry is the longest pause before a server starts again.
	longestRetry = 30 * time.Minute
)

// begin begins the phase Running.
func (s *server) begin(now time.Time) {
	s.failures, s.failing = 0, time.Time{}
	s.err, s.plan, s.idleSince, s.pace, s.adapters = nil, launch.RestartPlan{}, now, pace{}, map[string]time.Time{}
	s.enter(placement.Running, now)
	s.saveFacts()
	if s.attached != nil { // the server has crashed, and its rows wait
		return
	}
	adapter, err := s.set.Open()
	if err != nil {
		s.fleet.cfg.Logger.Error("the server cannot be used", "server", s.set.Name, "err", err)
		return
	}
	s.attached = &attachedEngine{Engine: adapter, closed: make(chan struct{})}
	s.fleet.cfg.Pipeline.Attach(s.attached)
}

// detach takes the server out of use. The result is closed after the last row.
func (s *server) detach() (closed <-chan struct{}) {
	if s.attached == nil {
		done := make(chan struct{})
		close(done)
		return done
	}
	closed, s.attached = s.attached.closed, nil
	s.fleet.cfg.Pipeline.Detach(s.set.Name)
	return closed
}

// planned returns the entry of the server after the action.
func (s *server) planned(a placement.Action, now time.Time) serverEntry {
	e := s.describe()
	e.Phase, e.Since = placement.Stopping, now
	switch a.Do {
	case placement.Start:
		e.Phase, e.On = placement.Loading, a.GPUs
	case placement.Wake:
		e.Phase = placement.Loading
	}
	return e
}

// execute begins an action, which ends in the background.
func (s *server) execute(ctx context.Context, a placement.Action, now time.Time) {
	log := s.fleet.cfg.Logger.With("server", s.set.Name)
	switch a.Do {
	case placement.Start:
		log.Info("the server starts, because rows need it", "gpus", a.GPUs)
		s.on, s.starting = a.GPUs, now
		s.enter(placement.Loading, now)
		s.run = s.fleet.start(ctx, launch.Config{
			Name: s.set.Name, Command: s.set.Command, Env: s.fleet.environ(s.set, a.GPUs), Folder: s.fleet.cfg.Folder, Guard: s.fleet.cfg.Guard,
			Ready: s.set.Ready, Probe: s.probe, Logger: s.fleet.cfg.Logger, MayRestart: s.mayRestart, Changed: s.fleet.wake,
		})
	case placement.Wake:
		log.Info("the server wakes up, because rows need it")
		s.starting = now
		s.enter(placement.Loading, now)
		s.fleet.tasks.Go(func() { s.wakeUp(ctx) })
	case placement.Sleep, placement.Stop:
		log.Info("the server stops or sleeps, because no rows need it or other servers need its GPUs", "do", string(a.Do))
		run, closed, asleep := s.run, s.detach(), s.asleep
		s.enter(placement.Stopping, now)
		s.fleet.tasks.Go(func() { s.makeRoom(ctx, run, closed, a.Do == placement.Sleep && !asleep) })
	}
}

// mayRestart decides whether a process that has ended starts again on its GPUs: only after a
// crash. After a failed start, the GPUs are free for other servers.
func (s *server) mayRestart(answered bool) bool {
	s.fleet.mu.Lock()
	defer s.fleet.mu.Unlock()
	return answered && s.phase == placement.Running && !s.fleet.closed
}

// makeRoom waits for the rows in flight, and then lets the server sleep or ends the server.
func (s *server) makeRoom(ctx context.Context, run process, closed <-chan struct{}, sleep bool) {
	select {
	case <-closed:
	case <-ctx.Done():
	case <-time.After(s.fleet.cfg.Drain):
		s.fleet.cfg.Logger.Warn("the server has rows in flight and stops in spite of that; the rows run again", "server", s.set.Name, "waited", s.fleet.cfg.Drain.String())
	}
	phase := placement.Sleeping
	if err := s.goToSleep(ctx, sleep); err != nil {
		phase = placement.Stopped
		run.Stop(context.WithoutCancel(ctx))
	}
	s.fleet.mu.Lock()
	defer s.fleet.mu.Unlock()
	s.enter(phase, time.Now())
	if s.asleep = phase == placement.Sleeping; !s.asleep {
		s.run, s.on = nil, nil
	}
	s.saveFacts()
	s.fleet.wake()
}

var errNoSleep = errors.New("the server must end")

// goToSleep makes the server free its GPU memory. It returns an error if the server must end
// instead.
func (s *server) goToSleep(ctx context.Context, wanted bool) error {
	if !wanted {
		return errNoSleep
	}
	err := s.post(ctx, "/sleep?level=1", nil)
	if err != nil {
		s.fleet.cfg.Logger.Warn("the server does not sleep, and is ended", "server", s.set.Name, "err", err)
	}
	return err
}

// wakeUp wakes a sleeping server. A server that does not wake up is ended.
func (s *server) wakeUp(ctx context.Context) {
	err := s.post(ctx, "/wake_up", nil)
	s.fleet.mu.Lock()
	run := s.run
	if err == nil && s.phase == placement.Loading && run != nil {
		s.asleep = false
		s.facts.Wake = time.Since(s.starting).Seconds()
		s.begin(time.Now())
	}
	s.fleet.mu.Unlock()
	if err == nil || run == nil {
		return
	}
	s.fleet.cfg.Logger.Warn("the server does not wake up, and is ended", "server", s.set.Name, "err", err)
	run.Stop(context.WithoutCancel(ctx)) // observeProcess then sees its end
}

// post sends a request of vLLM's sleep mode, or of its adapters with a JSON body.
func (s *server) post(ctx context.Context, path string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, sleepTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.set.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(answer.Body, 300))
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: HTTP %d %s; vLLM needs --enable-sleep-mode to sleep, and --enable-lora for adapters", path, answer.StatusCode, said)
	}
	return nil
}

// probe asks the starting server whether it answers.
func (s *server) probe(ctx context.Context) error {
	adapter, err := s.set.Open()
	if err != nil {
		return err
	}
	defer adapter.Close()
	_, err = adapter.Probe(ctx)
	return err
}

// describe returns the entry of the server in the record.
func (s *server) describe() serverEntry {
	e := serverEntry{
		Name: s.set.Name, Served: s.served(), GPUs: s.set.GPUs, Phase: s.phase, Since: s.since, On: slices.Clone(s.on),
		Load: s.facts.Load, Rate: s.facts.Rate, Always: s.always, Idle: s.set.Idle.Seconds(), RetryAt: s.retryAt,
	}
	if s.set.Sleep {
		e.Wake = s.facts.Wake
	}
	if s.phase == placement.Running {
		e.IdleSince = s.idleSince
	}
	if s.err != nil {
		e.Error, e.FailingSince = s.err.Error(), s.failing
		if s.lastLine != "" {
			e.Error += ": " + s.lastLine
		}
	}
	return e
}

// An attachedEngine is an engine that the pipeline uses. The pipeline closes it after its
// last row.
type attachedEngine struct {
	engine.Engine
	once   sync.Once
	closed chan struct{}
}

// Close closes the engine.
func (e *attachedEngine) Close() {
	e.once.Do(func() { close(e.closed) })
	e.Engine.Close()
}
