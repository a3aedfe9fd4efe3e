package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// timeAt returns the time that is this number of seconds after the start of the test, in
// whole seconds.
func (s *suite) timeAt(seconds int) *time.Time {
	return new(s.start.Truncate(time.Second).Add(time.Duration(seconds) * time.Second))
}

// delivery returns the n-th delivery to an endpoint, which is due this number of seconds
// after the start.
func (s *suite) delivery(endpoint string, n, due int) store.WebhookDelivery {
	return store.WebhookDelivery{
		ID: fmt.Sprintf("msg-%04d", n), Account: "a", Endpoint: endpoint, Event: "job.succeeded", Job: "job-1",
		Payload: `{"a": "<&>"}` + "\n", Created: *s.timeAt(0), State: store.DeliveryPending, Due: s.timeAt(due),
	}
}

func (s *suite) createDelivery(d store.WebhookDelivery) {
	s.Helper()
	s.must(s.CreateDelivery(s.Context(), d))
}

// putDelivery replaces a delivery; it must succeed.
func (s *suite) putDelivery(d store.WebhookDelivery) store.WebhookDelivery {
	s.Helper()
	return must.Get(s.PutDelivery(s.Context(), d))(s)
}

func (s *suite) getDelivery(id string) store.WebhookDelivery {
	s.Helper()
	return must.Get(s.GetDelivery(s.Context(), id))(s)
}

// dueDeliveries returns the ids of the deliveries that are due this number of seconds after
// the start.
func (s *suite) dueDeliveries(seconds, limit int) (ids []string) {
	s.Helper()
	due := must.Get(s.DueDeliveries(s.Context(), *s.timeAt(seconds), limit))(s)
	for _, d := range due {
		ids = append(ids, d.ID)
	}
	return ids
}

// endDelivery returns the delivery d with an ended state. The delivery expires this number of
// seconds after the start.
func (s *suite) endDelivery(d store.WebhookDelivery, state string, expires int) store.WebhookDelivery {
	d.State, d.Due, d.Expires = state, nil, s.timeAt(expires)
	return d
}

func testDeliveries(s *suite) {
	first := s.delivery("one", 1, 5)
	s.createDelivery(first)
	first.Version = 1
	s.wantEqual("a delivery", first, s.getDelivery(first.ID))
	again := s.delivery("one", 1, 99)
	again.Payload = "other"
	s.createDelivery(again) // the id exists already, so nothing changes
	first.Attempts = []store.DeliveryAttempt{{At: *s.timeAt(5), Millis: 7, Status: 500, Answer: "no\x00", Error: "not 2xx"}}
	first.Tries, first.Due = 1, s.timeAt(9)
	stale := first
	first = s.putDelivery(first)
	if diff := cmp.Diff(first, s.getDelivery(first.ID)); diff != "" || first.Version != 2 {
		s.Errorf("a delivery that was changed, version %d (-want +got):\n%s", first.Version, diff)
	}
	s.wantError("put at a version that is past", rowmill.ErrConflict)(s.PutDelivery(s.Context(), stale))
	s.wantError("put of an unknown delivery", rowmill.ErrNotFound)(s.PutDelivery(s.Context(), s.delivery("one", 2, 0)))
	s.wantError("get of an unknown delivery", rowmill.ErrNotFound)(s.GetDelivery(s.Context(), "msg-0002"))
	other := first
	other.Endpoint = "two"
	s.wantError("a delivery went to another endpoint", errAny)(s.PutDelivery(s.Context(), other))
	for n := 3; n < 8; n++ {
		s.createDelivery(s.delivery([]string{"one", "one\x01"}[n%2], n, 50))
	}
	list := func(endpoint string) []string {
		s.Helper()
		return s.readPages(false, func(page store.PageRequest) (ids []string, more bool, err error) {
			found, more, err := s.ListDeliveries(s.Context(), endpoint, page)
			for _, d := range found {
				ids = append(ids, d.ID)
			}
			return ids, more, err
		}, func() {})
	}
	if got, want := list("one"), []string{"msg-0006", "msg-0004", "msg-0001"}; !slices.Equal(got, want) {
		s.Errorf("the deliveries, newest first, are %v, want %v", got, want)
	}
	if got := list("nobody"); len(got) > 0 {
		s.Errorf("an unknown endpoint has the deliveries %v, want none", got)
	}
	s.wantError("a page of nothing was given", errAny)(s.ListDeliveries(s.Context(), "one", store.PageRequest{}))
	for _, bad := range []store.WebhookDelivery{{}, s.endDelivery(first, store.DeliveryPending, 1), s.endDelivery(first, "strange", 1)} {
		s.wantError(fmt.Sprintf("%+v was taken", bad), errAny)(s.CreateDelivery(s.Context(), bad))
	}
	s.reopen()
	s.wantEqual("after a restart", first, s.getDelivery(first.ID))
}

func testDeliveriesDue(s *suite) {
	for n := range 4 { // an endpoint with many due deliveries is listed only once
		s.createDelivery(s.delivery("many", n, 10+n))
	}
	s.createDelivery(s.delivery("few", 10, 15))
	s.createDelivery(s.delivery("later", 11, 30))
	want := func(seconds, limit int, ids ...string) {
		s.Helper()
		if got := s.dueDeliveries(seconds, limit); !slices.Equal(got, ids) {
			s.Errorf("due deliveries after %d s are %v, want %v", seconds, got, ids)
		}
	}
	want(9, 9)
	want(10, 9, "msg-0000")
	want(20, 9, "msg-0000", "msg-0010")
	want(20, 1, "msg-0000")
	taken := s.getDelivery("msg-0000")
	taken.Due = s.timeAt(60)
	taken = s.putDelivery(taken)
	want(20, 9, "msg-0001", "msg-0010")
	second := s.putDelivery(s.endDelivery(s.getDelivery("msg-0001"), store.DeliveryDelivered, 100))
	want(20, 9, "msg-0002", "msg-0010")
	second.State, second.Expires, second.Due = store.DeliveryPending, nil, s.timeAt(11) // the delivery is pending again
	second = s.putDelivery(second)
	want(20, 9, "msg-0001", "msg-0010")
	s.putDelivery(s.endDelivery(second, store.DeliveryFailed, 40))
	for _, n := range []int{2, 3} {
		s.putDelivery(s.endDelivery(s.getDelivery(fmt.Sprintf("msg-%04d", n)), store.DeliveryDelivered, 100))
	}
	want(59, 9, "msg-0010", "msg-0011")
	want(60, 9, "msg-0010", "msg-0011", "msg-0000")
	s.putDelivery(s.endDelivery(taken, store.DeliveryFailed, 50))
	s.reopen()
	want(99, 9, "msg-0010", "msg-0011")
	for _, drop := range []struct{ seconds, limit, want int }{{39, 9, 0}, {50, 1, 1}, {50, 9, 1}, {99, 9, 0}, {100, 9, 2}} {
		if n, err := s.DropExpiredDeliveries(s.Context(), *s.timeAt(drop.seconds), drop.limit); err != nil || n != drop.want {
			s.Errorf("after %d s %d deliveries were dropped, want %d: %v", drop.seconds, n, drop.want, err)
		}
	}
	if found, _, err := s.ListDeliveries(s.Context(), "many", store.PageRequest{Limit: 9}); err != nil || len(found) > 0 {
		s.Errorf("%d deliveries are left, %v; want none", len(found), err)
	}
	want(99, 9, "msg-0010", "msg-0011")
}

// testDeliveriesRace updates one delivery from several goroutines at once.
func testDeliveriesRace(s *suite) {
	s.createDelivery(s.delivery("one", 1, 0))
	seen := s.getDelivery("msg-0001")
	seen.Due = s.timeAt(60)
	took := s.countWinners(8, rowmill.ErrConflict, func(int) error { return last(s.PutDelivery(s.Context(), seen)) })
	if took != 1 {
		s.Errorf("%d callers changed the same version of the delivery, want 1", took)
	}
}

// testDeliveriesTakenOnce lets several goroutines find due deliveries, take them and
// complete them.
func testDeliveriesTakenOnce(s *suite) {
	const deliveries = 100
	for n := range deliveries {
		s.createDelivery(s.delivery("one", n, n/10))
	}
	var mu sync.Mutex
	taken := map[string]int{}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				due, err := s.DueDeliveries(s.Context(), *s.timeAt(60), 9)
				if err != nil {
					s.Errorf("due: %v", err)
				}
				mu.Lock()
				allTaken := len(taken) == deliveries
				mu.Unlock()
				if err != nil || allTaken {
					return
				}
				for _, d := range due {
					if d.Due == nil || d.Due.After(*s.timeAt(60)) {
						s.Errorf("%+v is not due", d)
					}
					d.Due = s.timeAt(120)
					if d, err = s.PutDelivery(s.Context(), d); err != nil {
						continue
					}
					mu.Lock()
					taken[d.ID]++
					mu.Unlock()
					if _, err = s.PutDelivery(s.Context(), s.endDelivery(d, store.DeliveryDelivered, 500)); err != nil {
						s.Errorf("put of a delivery that this goroutine has taken: %v", err)
					}
				}
			}
		})
	}
	all.Wait()
	for id, times := range taken {
		if times != 1 {
			s.Errorf("delivery %s was taken %d times, want once", id, times)
		}
	}
}
