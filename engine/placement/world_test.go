package placement_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rowmill/rowmill/engine/placement"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// seconds returns a duration of n seconds.
func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// A world is a cluster in virtual time: it carries out the actions of Decide, and the
// servers do the work of their models at their true rates. Times are seconds.
type world struct {
	t        testing.TB
	rules    placement.Rules
	nodes    []placement.Node
	truth    map[string]truth // by name of the server
	learn    float64          // Decide gets the true rate of a server after this time of work; 0: at once
	now      float64
	models   []*worldModel              // by name
	arrivals []arrival                  // by time
	pending  map[string]placement.Phase // phase after Stopping, by name of the server
	until    map[string]float64         // end of the phase, by name of the server
	starts   int
	log      []string
	logged   float64   // time of the last action
	start    time.Time // time 0; epoch if zero
}

type truth struct{ load, wake, drain, rate float64 }

type worldModel struct {
	name           string
	left           float64
	urgent         bool
	waiting, ended float64 // begin of the wait for a server, -1 if none; time when the last row was done
	longest        float64 // longest wait for a server
}

type arrival struct {
	at, tokens float64
	model      string
	urgent     bool
}

func sortArrivals(all []arrival) {
	slices.SortFunc(all, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
}

func (w *world) server(name string) *placement.Server {
	for n := range w.nodes {
		for i := range w.nodes[n].Servers {
			if s := &w.nodes[n].Servers[i]; s.Name == name {
				return s
			}
		}
	}
	w.t.Fatalf("no server %q", name)
	return nil
}

func (w *world) model(name string) *worldModel {
	for _, m := range w.models {
		if m.name == name {
			return m
		}
	}
	m := &worldModel{name: name, waiting: -1}
	w.models = append(w.models, m)
	return m
}

func (w *world) each(f func(*placement.Server)) {
	for n := range w.nodes {
		for i := range w.nodes[n].Servers {
			f(&w.nodes[n].Servers[i])
		}
	}
}

func (w *world) clock() time.Time { return w.at(w.now) }

func (w *world) at(n float64) time.Time {
	if w.start.IsZero() {
		return epoch.Add(seconds(n))
	}
	return w.start.Add(seconds(n))
}

// run runs until all work is done or the time is over, and returns the time of the last
// finished model.
func (w *world) run(limit float64) float64 {
	w.pending, w.until = map[string]placement.Phase{}, map[string]float64{}
	w.each(func(s *placement.Server) {
		switch s.Phase {
		case "":
			s.Phase = placement.Stopped
		case placement.Loading:
			w.until[s.Name] = w.truth[s.Name].load
		case placement.Stopping:
			w.pending[s.Name], w.until[s.Name] = placement.Stopped, w.truth[s.Name].drain
		}
	})
	for w.now < limit {
		w.arrive()
		w.settle()
		w.decide()
		if w.done() {
			break
		}
		w.advance(min(w.next(), limit))
	}
	end := 0.0
	for _, m := range w.models {
		end = max(end, m.ended)
	}
	return end
}

func (w *world) done() bool {
	return len(w.arrivals) == 0 && !slices.ContainsFunc(w.models, func(m *worldModel) bool { return m.left > 0 })
}

func (w *world) arrive() {
	for len(w.arrivals) > 0 && w.arrivals[0].at <= w.now {
		m := w.model(w.arrivals[0].model)
		m.left += w.arrivals[0].tokens
		m.urgent = m.urgent || w.arrivals[0].urgent
		w.arrivals = w.arrivals[1:]
	}
}

// settle ends the phases that are over, and notes what servers and models wait.
func (w *world) settle() {
	w.each(func(s *placement.Server) {
		until, changes := w.until[s.Name]
		if changes && until <= w.now {
			delete(w.until, s.Name)
			s.Since = w.clock()
			if s.Phase == placement.Loading {
				s.Phase = placement.Running
			} else if s.Phase = w.pending[s.Name]; s.Phase == placement.Stopped {
				s.On = nil
			}
		}
		if rows := slices.ContainsFunc(s.Models, func(m string) bool { return w.model(m).left > 0 }); rows {
			s.IdleSince = time.Time{}
		} else if s.IdleSince.IsZero() {
			s.IdleSince = w.clock()
		}
		if ran := w.clock().Sub(s.Since).Seconds(); s.Phase == placement.Running && ran >= w.learn {
			s.Rate = w.truth[s.Name].rate
		}
	})
	for _, m := range w.models {
		served := w.rate(m) > 0
		switch {
		case m.left > 0 && !served && m.waiting < 0:
			m.waiting = w.now
		case m.waiting >= 0 && (served || m.left == 0):
			m.longest, m.waiting = max(m.longest, w.now-m.waiting), -1
		}
	}
}

// rate returns the present rate of a model.
func (w *world) rate(m *worldModel) float64 {
	total := 0.0
	w.each(func(s *placement.Server) {
		if s.Phase != placement.Running || !slices.Contains(s.Models, m.name) {
			return
		}
		busy := 0
		for _, name := range s.Models {
			if w.model(name).left > 0 {
				busy++
			}
		}
		total += w.truth[s.Name].rate / float64(max(busy, 1))
	})
	return total
}

func (w *world) demand() []placement.Demand {
	var all []placement.Demand
	for _, m := range w.models {
		if m.left > 0 {
			d := placement.Demand{Model: m.name, Tokens: m.left, Urgent: m.urgent}
			if m.waiting >= 0 {
				d.Since = w.at(m.waiting)
			}
			all = append(all, d)
		}
	}
	return all
}

func (w *world) decide() {
	actions := placement.Decide(w.clock(), w.nodes, w.demand(), w.rules)
	checkActions(w.t, w.clock(), w.nodes, actions)
	w.checkStops(actions)
	w.checkFill(actions)
	for _, a := range actions {
		s := w.server(a.Server)
		truth := w.truth[s.Name]
		w.logged = w.now
		w.log = append(w.log, fmt.Sprintf("%.0f %s %s %v", w.now, a.Do, a.Server, a.GPUs))
		before := s.Phase
		s.Since = w.clock()
		switch a.Do {
		case placement.Start:
			w.starts++
			s.Phase, s.On, w.until[s.Name] = placement.Loading, a.GPUs, w.now+truth.load
		case placement.Wake:
			s.Phase, w.until[s.Name] = placement.Loading, w.now+truth.wake
		case placement.Sleep:
			s.Phase, w.pending[s.Name], w.until[s.Name] = placement.Stopping, placement.Sleeping, w.now+truth.drain
		case placement.Stop:
			s.Phase, w.pending[s.Name], w.until[s.Name] = placement.Stopping, placement.Stopped, w.now+truth.drain
			if before == placement.Sleeping {
				w.until[s.Name] = w.now + 1
			}
		}
	}
}

// checkStops fails the test if a server with rows stops without a reason.
func (w *world) checkStops(actions []placement.Action) {
	urgent, overdue := false, false // also for the operator's modes
	w.each(func(s *placement.Server) { urgent = urgent || s.Mode == placement.On || s.Mode == placement.Off })
	for _, m := range w.models {
		urgent = urgent || m.waiting >= 0 && m.urgent
		overdue = overdue || m.waiting >= 0 && w.now-m.waiting >= w.rules.MaxWait.Seconds()
	}
	for _, a := range actions {
		s := w.server(a.Server)
		rows := slices.ContainsFunc(s.Models, func(m string) bool { return w.model(m).left > 0 })
		if s.Phase != placement.Running && s.Phase != placement.Loading || !rows {
			continue
		}
		held := s.Phase == placement.Loading || w.clock().Sub(s.Since) < w.rules.Hold
		if !urgent && (!overdue || held) {
			w.t.Fatalf("%.0f s: %v stops a server with rows", w.now, a)
		}
	}
}

// checkFill fails the test if a model has no server although one fits, and no server
// is about to change.
func (w *world) checkFill(actions []placement.Action) {
	if w.rules.MaxWait < 1000*time.Hour {
		return // GPUs may be kept for models that have waited
	}
	changes := len(actions) > 0
	w.each(func(s *placement.Server) { changes = changes || s.Phase == placement.Stopping })
	for _, n := range w.nodes {
		free := len(n.GPUs)
		for _, s := range n.Servers {
			if s.Phase != placement.Stopped && s.Phase != placement.Sleeping {
				free -= s.GPUs
			}
		}
		for _, s := range n.Servers {
			waits := s.Phase == placement.Stopped && s.Mode != placement.Off && !w.clock().Before(s.RetryAt) && s.GPUs <= free
			if waits && !changes && slices.ContainsFunc(s.Models, w.unserved) {
				w.t.Fatalf("%.0f s: %s could start", w.now, s.Name)
			}
		}
	}
}

// unserved reports whether a model has rows and no server that loads or runs.
func (w *world) unserved(model string) bool {
	served := false
	w.each(func(s *placement.Server) {
		active := s.Phase == placement.Loading || s.Phase == placement.Running
		served = served || active && slices.Contains(s.Models, model)
	})
	return !served && w.model(model).left > 0
}

// tick is the longest time between two calls of Decide.
const tick = 30

func (w *world) next() float64 {
	next := w.now + tick
	for _, until := range w.until {
		next = min(next, until)
	}
	if len(w.arrivals) > 0 {
		next = min(next, w.arrivals[0].at)
	}
	for _, m := range w.models {
		if rate := w.rate(m); rate > 0 && m.left > 0 {
			next = min(next, w.now+m.left/rate)
		}
	}
	return next
}

func (w *world) advance(to float64) {
	rates := make([]float64, len(w.models))
	for i, m := range w.models {
		rates[i] = w.rate(m)
	}
	for i, m := range w.models {
		if m.left == 0 || rates[i] == 0 {
			continue
		}
		if w.now+m.left/rates[i] <= to {
			m.left, m.urgent, m.ended = 0, false, to
		} else {
			m.left -= (to - w.now) * rates[i]
		}
	}
	w.now = to
}

// phases are the phases in which an action is allowed.
var phases = map[placement.Kind][]placement.Phase{
	placement.Start: {placement.Stopped}, placement.Wake: {placement.Sleeping}, placement.Sleep: {placement.Running},
	placement.Stop: {placement.Loading, placement.Running, placement.Sleeping},
}

// checkActions fails the test if an action breaks an invariant.
func checkActions(t testing.TB, now time.Time, nodes []placement.Node, actions []placement.Action) {
	t.Helper()
	type gpu struct {
		node string
		gpu  int
	}
	used := map[gpu]bool{}
	find := map[[2]string]placement.Server{} // by node and name
	for _, n := range nodes {
		for _, s := range n.Servers {
			find[[2]string{n.ID, s.Name}] = s
			for _, g := range s.On {
				used[gpu{n.ID, g}] = used[gpu{n.ID, g}] || s.Phase != placement.Stopped && s.Phase != placement.Sleeping
			}
		}
	}
	for _, a := range actions {
		s, known := find[[2]string{a.Node, a.Server}]
		if delete(find, [2]string{a.Node, a.Server}); !known {
			t.Fatalf("%v: no such server, or a second action", a)
		}
		checkAction(t, now, s, a)
		gpus := a.GPUs
		if a.Do == placement.Wake {
			gpus = s.On
		}
		n := slices.IndexFunc(nodes, func(n placement.Node) bool { return n.ID == a.Node })
		for _, g := range gpus {
			if used[gpu{a.Node, g}] || !slices.Contains(nodes[n].GPUs, g) {
				t.Fatalf("%v: GPU %d is used or unknown", a, g)
			}
			used[gpu{a.Node, g}] = true
		}
	}
}

// checkAction fails the test if the action is not allowed for the server.
func checkAction(t testing.TB, now time.Time, s placement.Server, a placement.Action) {
	t.Helper()
	starts := a.Do == placement.Start || a.Do == placement.Wake
	switch {
	case !slices.Contains(phases[a.Do], s.Phase):
		t.Fatalf("%v in phase %s", a, s.Phase)
	case a.Do == placement.Start && len(a.GPUs) != s.GPUs, a.Do != placement.Start && a.GPUs != nil:
		t.Fatalf("%v has the wrong number of GPUs, want %d", a, s.GPUs)
	case a.Do == placement.Sleep && s.Wake == 0:
		t.Fatalf("%v cannot sleep", a)
	case starts && now.Before(s.RetryAt):
		t.Fatalf("%v before %v", a, s.RetryAt)
	case starts && s.Mode == placement.Off:
		t.Fatalf("%v is forbidden", a)
	}
}
