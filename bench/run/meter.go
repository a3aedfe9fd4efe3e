package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// gauges holds the metric names for the load of a kind of server.
type gauges struct {
	done      string  // answered rows since the start, times per
	per       float64 // 1, or the tokens per row if the server only counts tokens
	running   string
	waiting   string
	preempted string // empty if there are no preemptions
	prompts   string // tokens of all prompts since the start; empty if not needed

	every time.Duration // time between readings
}

var (
	simGauges = gauges{
		done: "vllm:request_success_total", per: 1, running: "vllm:num_requests_running",
		waiting: "vllm:num_requests_waiting", preempted: "vllm:num_preemptions_total",
		every: readEvery,
	}
	llamaGauges = gauges{
		done: "llamacpp:tokens_predicted_total", per: realTokens, running: "llamacpp:requests_processing",
		waiting: "llamacpp:requests_deferred",
		every:   readEvery,
	}
)

// readEvery is the time between two readings of the gauges of a few servers.
const readEvery = 100 * time.Millisecond

// reading holds a server's gauges at one time.
type reading struct {
	at                                         time.Time
	done, running, waiting, preempted, prompts float64
}

// A meter reads a server's gauges independently of the driver, so that all contenders
// are measured with the same clock.
type meter struct {
	client  *http.Client
	url     string
	gauges  gauges
	stopped chan struct{}
	ended   chan error
	course  course
}

// watch starts a meter.
func watch(ctx context.Context, address string, g gauges) (*meter, error) {
	m := &meter{
		client: &http.Client{Transport: &http.Transport{}}, url: "http://" + address + "/metrics",
		gauges: g, stopped: make(chan struct{}), ended: make(chan error, 1),
	}
	if err := m.read(ctx); err != nil {
		return nil, err
	}
	go func() { m.ended <- m.loop(ctx) }()
	return m, nil
}

func (m *meter) loop(ctx context.Context) error {
	defer m.client.CloseIdleConnections()
	ticker := time.NewTicker(m.gauges.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-m.stopped:
			return m.read(ctx)
		case <-ticker.C:
			if err := m.read(ctx); err != nil {
				return err
			}
		}
	}
}

// stop ends the meter and returns the readings.
func (m *meter) stop() (course, error) {
	close(m.stopped)
	err := <-m.ended
	return m.course, err
}

// read adds a reading.
func (m *meter) read(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url, nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	response, err := m.client.Do(request)
	if err != nil {
		return fmt.Errorf("read gauges: %w", err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("read gauges: %w", err)
	}
	r := reading{at: time.Now()}
	found := false
	for line := range strings.Lines(string(page)) {
		name, value := sample(line)
		switch name {
		case "":
		case m.gauges.done:
			r.done += value / m.gauges.per // one sample per finish reason
			found = true
		case m.gauges.running:
			r.running = value
		case m.gauges.waiting:
			r.waiting = value
		case m.gauges.preempted:
			r.preempted = value
		case m.gauges.prompts:
			r.prompts += value
		}
	}
	if !found {
		return fmt.Errorf("%s lacks %s", m.url, m.gauges.done)
	}
	m.course = append(m.course, r)
	return nil
}

// sample splits a line of a metrics page into name and value; the name is empty for
// other lines.
func sample(line string) (name string, value float64) {
	line = strings.TrimSpace(line)
	blank := strings.LastIndexByte(line, ' ')
	if blank < 0 || strings.HasPrefix(line, "#") {
		return "", 0
	}
	value, err := strconv.ParseFloat(line[blank+1:], 64)
	if err != nil {
		return "", 0
	}
	name, _, _ = strings.Cut(line[:blank], "{")
	return name, value
}

// course holds a server's readings during a run, in order of time.
type course []reading

// The steady part of a run is between the times at which these shares of the rows were
// answered.
const (
	steadyFrom = 0.2
	steadyTo   = 0.8
)

// figures holds the results of a course.
type figures struct {
	done      float64       // answered rows
	rate      float64       // rows per second in the steady part
	batch     float64       // mean number of running requests in the steady part
	peak      float64       // largest number of running and waiting requests
	preempted float64       // number of preemptions
	length    time.Duration // from the first request to the last answer
	reached   time.Duration // from the first request until the rate was nearly the steady rate
	cpu       float64       // processor time of the server, seconds per row
}

// LogValue returns the attributes to log for a round.
func (f figures) LogValue() slog.Value {
	return slog.GroupValue(slog.String("rows_per_s", short(f.rate)), slog.String("batch", short(f.batch)), slog.Float64("peak", f.peak),
		slog.Float64("preempted", f.preempted), slog.Duration("reached", f.reached),
		slog.Duration("length", f.length), slog.String("server_cpu_us_per_row", short(1e6*f.cpu)))
}

const (
	// nearly is the share of a steady value that counts as reached.
	nearly = 0.95
	// rateSpan is the length of the interval for a rate; the reported time is its end.
	rateSpan = 2 * time.Second
)

var errTooShort = errors.New("run is too short to be measured: use more rows")

// figures evaluates a course.
func (c course) figures() (figures, error) {
	if len(c) < 2 {
		return figures{}, errTooShort
	}
	first, last := c[0], c[len(c)-1]
	begun, over := c.busy()
	total := last.done - first.done
	from, to := c.steady()
	if begun < 0 || !to.After(from) {
		return figures{}, errTooShort
	}
	f := figures{
		done:      total,
		rate:      (steadyTo - steadyFrom) * total / to.Sub(from).Seconds(),
		preempted: last.preempted - first.preempted,
		length:    c[over].at.Sub(c[begun].at),
	}
	readings := 0.0
	for _, r := range c {
		f.peak = max(f.peak, r.running+r.waiting)
		if r.at.After(from) && r.at.Before(to) {
			f.batch += r.running
			readings++
		}
	}
	f.batch /= max(readings, 1)
	run := c[begun : over+1]
	f.reached = run.reachesRate(nearly * f.rate).Sub(run[0].at)
	return f, nil
}

// steady returns the start and end of the steady part.
func (c course) steady() (from, to time.Time) {
	first, total := c[0].done, c[len(c)-1].done-c[0].done
	return c.timeOfRows(first + steadyFrom*total), c.timeOfRows(first + steadyTo*total)
}

// busy returns the readings of the first request (-1 if there was none) and of the last
// answer.
func (c course) busy() (begun, over int) {
	first, last := c[0], c[len(c)-1]
	begun = slices.IndexFunc(c, func(r reading) bool { return r.done > first.done || r.running+r.waiting > 0 })
	over = slices.IndexFunc(c, func(r reading) bool { return r.done == last.done })
	return begun, over
}

// before returns the readings up to a time.
func (c course) before(at time.Time) course {
	after := slices.IndexFunc(c, func(r reading) bool { return r.at.After(at) })
	if after < 0 {
		return c
	}
	return c[:after]
}

// reachesRate returns the end of the first rateSpan with at least this rate, or the end of
// the course.
func (c course) reachesRate(rate float64) time.Time {
	from := 0
	for _, r := range c {
		span := r.at.Sub(c[from].at)
		if span < rateSpan {
			continue
		}
		if r.done-c[from].done >= rate*span.Seconds() {
			return r.at
		}
		from++
	}
	return c[len(c)-1].at
}

// timeOfRows returns the time when a number of rows was answered, interpolated between
// readings.
func (c course) timeOfRows(done float64) time.Time {
	i := slices.IndexFunc(c, func(r reading) bool { return r.done >= done })
	if i == 0 {
		return c[0].at
	}
	before, after := c[i-1], c[i]
	share := (done - before.done) / (after.done - before.done)
	return before.at.Add(time.Duration(share * float64(after.at.Sub(before.at))))
}
