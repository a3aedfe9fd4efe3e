package sender

import (
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/webhook"
)

// Secrets of the tests: "whsec_" and 24 bytes.
const (
	firstSecret  = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
	secondSecret = "whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4"
)

// stream starts one; it ends with the test.
func (r *rig) stream() *Stream {
	r.Helper()
	s, err := NewStream(r.Context(), StreamConfig{
		Store: r.store, URL: "http://siem/audit", Secrets: []string{firstSecret}, Transport: &r.receiver,
		Reason: func(error) string { return "no answer" }, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		r.Fatal(err)
	}
	s.Start()
	r.streams = append(r.streams, s)
	return s
}

// act records an entry as a node does.
func (r *rig) act(s *Stream, id string) {
	r.Helper()
	if err := s.Of(r.store).AppendAudit(r.Context(), entryOf(id, time.Time{}, 1)); err != nil {
		r.Fatal(err)
	}
}

// recorded records an entry of a time, by a node that knows of no stream.
func (r *rig) recorded(id string, at time.Time, bytes int) {
	r.Helper()
	if err := r.store.AppendAudit(r.Context(), entryOf(id, at, bytes)); err != nil {
		r.Fatal(err)
	}
}

func entryOf(id string, at time.Time, bytes int) store.AuditEntry {
	return store.AuditEntry{ID: id, At: at, Account: "a", Action: "key.create", Details: json.RawMessage(`"` + strings.Repeat("x", bytes) + `"`)}
}

// A taker is a receiver of a stream that notes what it has taken.
type taker struct {
	t    *testing.T
	mu   sync.Mutex
	down bool
	ids  []string // of the entries, in the order in which they came
	most int      // bytes of a body
}

func (k *taker) answer(request *http.Request, _ int) (*http.Response, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.down {
		return nil, errors.New("down")
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	var at int64
	if _, err := fmt.Sscan(request.Header.Get(webhook.HeaderTimestamp), &at); err != nil {
		k.t.Error(err)
	}
	want, err := webhook.Sign(firstSecret, request.Header.Get(webhook.HeaderID), time.Unix(at, 0), string(body))
	if err != nil || !slices.Contains(strings.Fields(request.Header.Get(webhook.HeaderSignature)), want) || request.Header.Get("Content-Type") != "application/x-ndjson" {
		k.t.Errorf("signatures %q, want %q among them; headers %v; %v", request.Header.Get(webhook.HeaderSignature), want, request.Header, err)
	}
	k.most = max(k.most, len(body))
	for line := range strings.Lines(string(body)) {
		var e store.AuditEntry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			k.t.Errorf("%q: %v", line, err)
		}
		k.ids = append(k.ids, e.ID)
	}
	return status(204, ""), nil
}

func (k *taker) be(down bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.down = down
}

func (k *taker) wants(t *testing.T, ids ...string) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Equal(k.ids, ids) {
		t.Errorf("it has %q, want %q", k.ids, ids)
	}
}

// What is recorded is sent at once, and in its order; what a receiver that is down does
// not take it gets when it is back, from another node too, and nothing twice.
func TestStream_SendsUntilTaken(t *testing.T) {
	inTime(t, func(r *rig) {
		k := &taker{t: t}
		r.answer = k.answer
		r.recorded("before", time.Now().Add(-time.Second), 1)
		first := r.stream()
		synctest.Wait()
		begun := time.Now()
		r.act(first, "z")
		synctest.Wait()
		k.wants(t, "z")
		if !time.Now().Equal(begun) {
			t.Error("it was not sent at once")
		}
		k.be(true)
		for _, id := range []string{"y", "x", "w"} {
			r.act(first, id)
			time.Sleep(20 * time.Minute)
		}
		tries := r.count()
		if tries < 40 || tries > 80 {
			t.Errorf("%d attempts in an hour", tries)
		}
		if waited := testutil.ToFloat64(first.waiting); waited < 3500 || waited > 3600 {
			t.Errorf("the oldest entry is said to wait for %v s, want an hour", waited)
		}
		_ = first.Stop(r.Context()) // it never fails
		second := r.stream()
		k.be(false)
		time.Sleep(time.Minute + 2*pollInterval)
		k.wants(t, "z", "y", "x", "w")
		if sent, waited := testutil.ToFloat64(second.entries), testutil.ToFloat64(second.waiting); sent != 3 || waited != 0 {
			t.Errorf("%v entries are said to be sent and to wait for %v s, want 3 and 0", sent, waited)
		}
		_ = second.Stop(r.Context()) // it never fails
		r.stream()
		time.Sleep(time.Hour)
		k.wants(t, "z", "y", "x", "w")
	})
}

// Many entries come in several bodies, and of two nodes each sends what the other has
// not.
func TestStream_ManyByTwo(t *testing.T) {
	inTime(t, func(r *rig) {
		k := &taker{t: t, down: true}
		r.answer = k.answer
		nodes := []*Stream{r.stream(), r.stream()}
		var want []string
		for i := range batchEntries + 100 {
			id := fmt.Sprintf("%04d", i)
			want = append(want, id)
			if i > 0 && i%150 == 0 { // large ones
				time.Sleep(time.Millisecond)
				r.recorded(id, time.Now(), batchBytes/2)
			} else {
				time.Sleep(time.Millisecond)
				r.act(nodes[i%2], id)
			}
		}
		k.be(false)
		time.Sleep(5 * time.Minute)
		k.wants(t, want...)
		if k.most > batchBytes+4096 {
			t.Errorf("a body had %d bytes", k.most)
		}
		if sent := testutil.ToFloat64(nodes[0].entries) + testutil.ToFloat64(nodes[1].entries); int(sent) != len(want) {
			t.Errorf("%v entries are said to be sent, want %d", sent, len(want))
		}
	})
}

// An entry that is recorded late, by a node whose clock is behind, is sent all the same,
// up to a bound.
func TestStream_LateEntries(t *testing.T) {
	inTime(t, func(r *rig) {
		k := &taker{t: t}
		r.answer = k.answer
		s := r.stream()
		time.Sleep(time.Hour)
		r.act(s, "now")
		synctest.Wait()
		r.recorded("late", time.Now().Add(-late), 1)
		r.recorded("too late", time.Now().Add(-late-time.Nanosecond), 1)
		time.Sleep(2 * pollInterval)
		k.wants(t, "now", "late")
	})
}

// What a node had begun to send when it stopped is sent at once by the next; when it
// crashed, once it would have had its answer.
func TestStream_WhatEndsWithANode(t *testing.T) {
	inTime(t, func(r *rig) {
		k := &taker{t: t}
		hang := true
		r.answer = func(request *http.Request, n int) (*http.Response, error) {
			if hang {
				<-request.Context().Done()
				return nil, request.Context().Err()
			}
			return k.answer(request, n)
		}
		first := r.stream()
		r.act(first, "one")
		time.Sleep(time.Second)
		_ = first.Stop(r.Context()) // it never fails
		hang = false
		second := r.stream()
		time.Sleep(time.Millisecond)
		k.wants(t, "one")
		_ = second.Stop(r.Context()) // it never fails

		p, now, err := second.load(r.Context())
		if err != nil {
			t.Fatal(err)
		}
		until := now.Add(takenFor)
		p.Until = &until
		if err := second.save(r.Context(), &p); err != nil { // by one that crashes then
			t.Fatal(err)
		}
		r.act(second, "two")
		r.stream()
		time.Sleep(takenFor - time.Second)
		k.wants(t, "one")
		time.Sleep(3 * time.Second)
		k.wants(t, "one", "two")
	})
}

// A secret is replaced while both sign, and entries are recorded where the store is,
// and nowhere else.
func TestStream_Secrets(t *testing.T) {
	inTime(t, func(r *rig) {
		k := &taker{t: t}
		r.answer = k.answer
		s := r.stream()
		s.SetSecrets([]string{secondSecret, firstSecret})
		r.act(s, "one")
		synctest.Wait()
		k.wants(t, "one")
		got, _ := r.all()
		if n := len(strings.Fields(got[0].Header.Get(webhook.HeaderSignature))); n != 2 {
			t.Errorf("%d signatures, want 2", n)
		}
		s.SetSecrets([]string{"no secret"})
		r.act(s, "two")
		time.Sleep(time.Minute)
		if r.count() != 1 {
			t.Error("a body without a signature was sent")
		}
		s.SetSecrets([]string{firstSecret})
		time.Sleep(2 * time.Minute)
		k.wants(t, "one", "two")
		if err := s.Of(r.store).AppendAudit(r.Context(), store.AuditEntry{ID: "three"}); err == nil {
			t.Error("an entry without an action is recorded")
		}
	})
}
