package sender

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/webhook"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv/mem"
	"github.com/rowmill/rowmill/store/records"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A receiver is a transport that records requests and answers them itself.
type receiver struct {
	mu     sync.Mutex
	got    []*http.Request
	at     []time.Duration
	begun  time.Time
	answer func(r *http.Request, n int) (*http.Response, error)
}

func (r *receiver) RoundTrip(request *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.got, r.at = append(r.got, request), append(r.at, time.Since(r.begun))
	n := len(r.got)
	r.mu.Unlock()
	return r.answer(request, n)
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

// all returns the requests so far and their times.
func (r *receiver) all() ([]*http.Request, []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got), slices.Clone(r.at)
}

func status(code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{"Location": {"http://elsewhere"}}}
}

// A rig is a set of senders and streams on one store.
type rig struct {
	*testing.T
	store *records.Store
	receiver
	senders []*Sender
	streams []*AuditStream
}

// inVirtualTime runs a test in virtual time.
func inVirtualTime(t *testing.T, run func(r *rig)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t}
		r.begun = time.Now()
		r.answer = func(*http.Request, int) (*http.Response, error) { return status(200, "ok"), nil }
		var err error
		if r.store, err = records.Open(t.Context(), mem.New(time.Now), nil); err != nil {
			t.Fatal(err)
		}
		defer func() {
			for _, s := range r.senders {
				_ = s.Stop(t.Context()) // never fails
			}
			for _, s := range r.streams {
				_ = s.Stop(t.Context()) // never fails
			}
			if err := r.store.Close(); err != nil {
				t.Error(err)
			}
		}()
		run(r)
	})
}

func (r *rig) sender() *Sender {
	s := New(Config{
		Store: r.store, Transport: &r.receiver, Reason: func(err error) string { return "no answer" }, Logger: slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(), Schedule: webhook.RetrySchedule{10 * time.Second, time.Hour},
	})
	s.Start()
	r.senders = append(r.senders, s)
	return s
}

// endpoint adds an endpoint to the account.
func (r *rig) endpoint(host string) webhook.Endpoint {
	r.Helper()
	all, err := webhook.LoadEndpoints(r.Context(), r.store, "a")
	must.Succeed(r, err)
	e := webhook.NewEndpoint(time.Now())
	e.URL = "http://" + host + "/hook"
	must.Succeed(r, errors.Join(all.Add(e), all.Save(r.Context(), r.store, "a")))
	return e
}

// endJob announces twice that a job has ended.
func (r *rig) endJob() {
	r.Helper()
	now := time.Now().UTC()
	rec := store.Record{Job: rowmill.Job{ID: rowmill.NewJobID(), Status: rowmill.StatusSucceeded, JobTimes: rowmill.JobTimes{Created: now, Completed: &now}}, Spec: rowmill.Spec{Account: "a"}}
	for range 2 {
		if made, err := webhook.CreateDeliveries(r.Context(), r.store, &rec); err != nil || !made {
			r.Fatalf("announce: %v, %v", made, err)
		}
	}
}

// log returns the deliveries of an endpoint, newest first.
func (r *rig) log(e webhook.Endpoint) []store.WebhookDelivery {
	r.Helper()
	found, _, err := r.store.ListDeliveries(r.Context(), e.ID, store.PageRequest{Limit: 100})
	must.Succeed(r, err)
	return found
}

func TestSender_RetriesUntilAccepted(t *testing.T) {
	inVirtualTime(t, func(r *rig) {
		e := r.endpoint("one")
		r.answer = func(request *http.Request, n int) (*http.Response, error) {
			switch n {
			case 1:
				return nil, errors.New("down")
			case 2:
				return status(302, strings.Repeat("x", 5000)), nil
			}
			return status(204, ""), nil
		}
		r.endJob()
		r.sender()
		time.Sleep(3 * time.Hour)
		log := r.log(e)
		if len(log) != 1 || log[0].State != store.DeliveryDelivered || len(log[0].Attempts) != 3 || r.count() != 3 {
			r.Fatalf("%d requests, log %+v", r.count(), log)
		}
		if a := log[0].Attempts; a[0].Error != "no answer" || a[1].Status != 302 || len(a[1].Answer) != maxAnswerBytes || a[2].Status != 204 {
			r.Errorf("attempts %+v", a)
		}
		got, times := r.all()
		for i, least := range []time.Duration{0, 10 * time.Second, time.Hour + 10*time.Second} {
			if at := times[i]; at < least || at > least*6/5+3*time.Second {
				r.Errorf("attempt %d came after %v", i, at)
			}
		}
		first, last := got[0], got[2]
		if id := first.Header.Get(webhook.HeaderID); id == "" || id != last.Header.Get(webhook.HeaderID) || id != log[0].ID {
			r.Errorf("ids %q and %q", id, last.Header.Get(webhook.HeaderID))
		}
		if first.Header.Get(webhook.HeaderSignature) == last.Header.Get(webhook.HeaderSignature) {
			r.Error("attempts at different times have the same signature")
		}
		body, err := io.ReadAll(last.Body)
		if want, _ := webhook.Sign(e.Secret, log[0].ID, log[0].Attempts[2].At, string(body)); err != nil || last.Header.Get(webhook.HeaderSignature) != want {
			r.Errorf("signature %q of %q, want %q", last.Header.Get(webhook.HeaderSignature), body, want)
		}
	})
}

func TestSender_GivesUp(t *testing.T) {
	inVirtualTime(t, func(r *rig) {
		e := r.endpoint("one")
		r.answer = func(*http.Request, int) (*http.Response, error) { return status(500, ""), nil }
		r.endJob()
		r.sender()
		time.Sleep(3 * time.Hour)
		if log := r.log(e); len(log) != 1 || log[0].State != store.DeliveryFailed || r.count() != 3 {
			r.Errorf("%d requests, log %+v", r.count(), log)
		}
		old, soon := r.log(e)[0], time.Now().Add(2*dropEvery)
		old.Expires = &soon
		must.Get(r.store.PutDelivery(r.Context(), old))(r)
		time.Sleep(4 * dropEvery)
		if log := r.log(e); len(log) != 0 {
			r.Errorf("the log still has %+v", log)
		}
	})
}

func TestSender_GoneDisables(t *testing.T) {
	inVirtualTime(t, func(r *rig) {
		e := r.endpoint("one")
		r.answer = func(*http.Request, int) (*http.Response, error) { return status(410, ""), nil }
		r.endJob()
		time.Sleep(time.Millisecond)
		r.endJob()
		r.sender()
		time.Sleep(time.Minute)
		all, err := webhook.LoadEndpoints(r.Context(), r.store, "a")
		if err != nil || all.Endpoints[0].Disabled == nil || all.Endpoints[0].DisabledReason == "" {
			r.Errorf("%+v, %v", all, err)
		}
		log := r.log(e)
		if r.count() != 1 || len(log) != 2 || log[0].State != store.DeliveryFailed || log[1].State != store.DeliveryFailed {
			r.Errorf("%d requests, log %+v", r.count(), log)
		}
	})
}

// Two nodes, many events and slow receivers: each event is sent once.
func TestSender_TwoNodesSendOnce(t *testing.T) {
	inVirtualTime(t, func(r *rig) {
		var endpoints []webhook.Endpoint
		for _, host := range []string{"a", "b", "c", "d", "e"} {
			endpoints = append(endpoints, r.endpoint(host))
		}
		var mu sync.Mutex
		now := map[string]int{}
		r.answer = func(request *http.Request, _ int) (*http.Response, error) {
			mu.Lock()
			now[request.Host]++
			if now[request.Host] > 2 {
				r.Errorf("%d at once to %s by two nodes", now[request.Host], request.Host)
			}
			mu.Unlock()
			time.Sleep(300 * time.Millisecond)
			mu.Lock()
			now[request.Host]--
			mu.Unlock()
			return status(200, ""), nil
		}
		r.sender()
		r.sender()
		for range 20 {
			time.Sleep(time.Millisecond)
			r.endJob()
		}
		time.Sleep(time.Minute)
		var ids []string
		got, _ := r.all()
		for _, request := range got {
			ids = append(ids, request.Header.Get(webhook.HeaderID))
		}
		slices.Sort(ids)
		if all := len(ids); all != 100 || len(slices.Compact(ids)) != all {
			r.Errorf("%d requests, some twice", all)
		}
		for _, e := range endpoints {
			for _, d := range r.log(e) {
				if d.State != store.DeliveryDelivered {
					r.Errorf("%+v", d)
				}
			}
		}
	})
}

// An endpoint that never answers, with many events, does not delay another endpoint.
func TestSender_SlowEndpointDoesNotDelayOthers(t *testing.T) {
	inVirtualTime(t, func(r *rig) {
		r.endpoint("slow")
		var mu sync.Mutex
		took := 0
		r.answer = func(request *http.Request, _ int) (*http.Response, error) {
			if request.Host == "slow" {
				<-request.Context().Done()
				return nil, request.Context().Err()
			}
			mu.Lock()
			defer mu.Unlock()
			took++
			return status(200, ""), nil
		}
		for range 100 {
			time.Sleep(time.Millisecond)
			r.endJob()
		}
		r.endpoint("quick")
		for range 10 {
			time.Sleep(time.Millisecond)
			r.endJob()
		}
		r.sender()
		time.Sleep(attemptTimeout)
		mu.Lock()
		defer mu.Unlock()
		if took != 10 {
			r.Errorf("%d of 10 were accepted", took)
		}
	})
}

// A delivery that a stopped node was sending is sent by the next node at once; a
// delivery of a crashed node when its claim expires.
func TestSender_NextNodeRepeats(t *testing.T) {
	inVirtualTime(t, func(r *rig) {
		e := r.endpoint("one")
		r.answer = func(request *http.Request, n int) (*http.Response, error) {
			if n == 1 {
				<-request.Context().Done()
				return nil, request.Context().Err()
			}
			return status(200, ""), nil
		}
		r.endJob()
		first := r.sender()
		time.Sleep(2 * time.Second)
		_ = first.Stop(r.Context()) // never fails
		if log := r.log(e); log[0].State != store.DeliveryPending || log[0].Tries != 0 || log[0].Due.After(time.Now()) {
			r.Errorf("broken off: %+v", log)
		}
		second := r.sender()
		time.Sleep(time.Second)
		if log := r.log(e); log[0].State != store.DeliveryDelivered || r.count() != 2 {
			r.Errorf("after a stop: %+v", log)
		}
		_ = second.Stop(r.Context()) // never fails
		r.endJob()
		claimed := r.log(e)[0]
		if _, err := r.store.PutDelivery(r.Context(), webhook.ScheduleAt(claimed, time.Now().Add(claimTTL))); err != nil { // by a node that crashes then
			r.Fatal(err)
		}
		r.sender()
		time.Sleep(claimTTL - time.Second)
		if r.count() != 2 {
			r.Error("a delivery claimed by another node was sent")
		}
		time.Sleep(3 * time.Second)
		if r.count() != 3 {
			r.Errorf("%d requests", r.count())
		}
	})
}

// A node that stops waits for an answer that is about to come.
func TestSender_StopLetsFinish(t *testing.T) {
	inVirtualTime(t, func(r *rig) {
		e := r.endpoint("one")
		r.answer = func(*http.Request, int) (*http.Response, error) {
			time.Sleep(stopGrace / 2)
			return status(200, ""), nil
		}
		r.endJob()
		time.Sleep(time.Millisecond)
		r.endJob()
		s := r.sender()
		time.Sleep(time.Millisecond)
		_ = s.Stop(r.Context()) // never fails
		if log := r.log(e); r.count() != 1 || log[0].State != store.DeliveryPending || log[1].State != store.DeliveryDelivered {
			r.Errorf("%d requests, %+v", r.count(), log)
		}
	})
}

func TestSender_DeletedEndpoint(t *testing.T) {
	inVirtualTime(t, func(r *rig) {
		e := r.endpoint("one")
		r.endJob()
		all, err := webhook.LoadEndpoints(r.Context(), r.store, "a")
		must.Succeed(r, err)
		all.Remove(e.ID)
		must.Succeed(r, all.Save(r.Context(), r.store, "a"))
		r.sender()
		time.Sleep(2 * time.Second)
		if log := r.log(e); r.count() != 0 || log[0].State != store.DeliveryFailed || log[0].Attempts[0].Error == "" {
			r.Errorf("%d requests, %+v", r.count(), log)
		}
	})
}

// Wake sends an event before the next poll.
func TestSender_Wake(t *testing.T) {
	inVirtualTime(t, func(r *rig) {
		r.endpoint("one")
		s := r.sender()
		synctest.Wait()
		before := time.Now()
		r.endJob()
		s.Wake()
		synctest.Wait()
		if r.count() != 1 || !time.Now().Equal(before) {
			r.Errorf("%d requests", r.count())
		}
	})
}

// In a cluster of 1,000 nodes each node polls every 20 s, and still sends deliveries
// that another node created.
func TestSender_PollsSeldomInLargeClusters(t *testing.T) {
	inVirtualTime(t, func(r *rig) {
		r.endpoint("one")
		large := New(Config{
			Store: r.store, Transport: &r.receiver, Nodes: func() int { return 1_000 }, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		})
		large.Start()
		r.senders = append(r.senders, large)
		time.Sleep(time.Second) // the first poll is over
		r.endJob()
		time.Sleep(18 * time.Second)
		if n := r.count(); n != 0 {
			r.Errorf("%d requests before the second poll, want none", n)
		}
		time.Sleep(2 * time.Second)
		if n := r.count(); n != 1 {
			r.Errorf("%d requests after the second poll, want one", n)
		}
	})
}
