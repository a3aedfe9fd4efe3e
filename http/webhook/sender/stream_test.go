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

	"github.com/rowmill/rowmill/http/webhook"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// Secrets for tests: "whsec_" and 24 bytes in base64.
const (
	firstSecret  = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
	secondSecret = "whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4"
)

// stream starts an AuditStream that stops with the test.
func (r *rig) stream() *AuditStream {
	r.Helper()
	s, err := NewAuditStream(r.Context(), AuditStreamConfig{URL: "http://siem/audit", Secrets: []string{firstSecret}, Config: Config{
		Store: r.store, Transport: &r.receiver, Reason: func(error) string { return "no answer" }, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	}})
	must.Succeed(r, err)
	s.Start()
	r.streams = append(r.streams, s)
	return s
}

// appendAudit records an entry through the stream, as a node does.
func (r *rig) appendAudit(s *AuditStream, id string) {
	r.Helper()
	must.Succeed(r, s.WrapStore(r.store).AppendAudit(r.Context(), entryOf(id, time.Time{}, 1)))
}

// appendAuditAt records an entry with a time, as a node without a stream does.
func (r *rig) appendAuditAt(id string, at time.Time, bytes int) {
	r.Helper()
	must.Succeed(r, r.store.AppendAudit(r.Context(), entryOf(id, at, bytes)))
}

func entryOf(id string, at time.Time, bytes int) store.AuditEntry {
	return store.AuditEntry{ID: id, At: at, Account: "a", Action: "key.create", Details: json.RawMessage(`"` + strings.Repeat("x", bytes) + `"`)}
}

// A siem is a receiver of a stream that keeps the accepted entry ids.
type siem struct {
	t    *testing.T
	mu   sync.Mutex
	down bool
	ids  []string // of accepted entries, in order of arrival
	most int      // size of the largest body in bytes
}

func (k *siem) answer(request *http.Request, _ int) (*http.Response, error) {
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

func (k *siem) setDown(down bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.down = down
}

func (k *siem) wantIDs(t *testing.T, ids ...string) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Equal(k.ids, ids) {
		t.Errorf("accepted entries %q, want %q", k.ids, ids)
	}
}

// Entries are sent at once and in order. A receiver that was down gets the missed
// entries when it is back, also from another node, and none twice.
func TestStream_SendsUntilAccepted(t *testing.T) {
	inVirtualTime(t, func(r *rig) {
		k := &siem{t: t}
		r.answer = k.answer
		r.appendAuditAt("before", time.Now().Add(-time.Second), 1)
		first := r.stream()
		synctest.Wait()
		begun := time.Now()
		r.appendAudit(first, "z")
		synctest.Wait()
		k.wantIDs(t, "z")
		if !time.Now().Equal(begun) {
			t.Error("the entry was not sent at once")
		}
		k.setDown(true)
		for _, id := range []string{"y", "x", "w"} {
			r.appendAudit(first, id)
			time.Sleep(20 * time.Minute)
		}
		tries := r.count()
		if tries < 40 || tries > 80 {
			t.Errorf("%d attempts in an hour", tries)
		}
		if waited := testutil.ToFloat64(first.waiting); waited < 3500 || waited > 3600 {
			t.Errorf("the metric says that the oldest entry waits %v s, want an hour", waited)
		}
		_ = first.Stop(r.Context()) // never fails
		second := r.stream()
		k.setDown(false)
		time.Sleep(time.Minute + 2*pollInterval)
		k.wantIDs(t, "z", "y", "x", "w")
		if sent, waited := testutil.ToFloat64(second.entries), testutil.ToFloat64(second.waiting); sent != 3 || waited != 0 {
			t.Errorf("the metrics say %v entries sent and %v s waiting, want 3 and 0", sent, waited)
		}
		_ = second.Stop(r.Context()) // never fails
		r.stream()
		time.Sleep(time.Hour)
		k.wantIDs(t, "z", "y", "x", "w")
	})
}

// Many entries need several bodies. Two nodes send each entry once.
func TestStream_TwoNodesSendOnce(t *testing.T) {
	inVirtualTime(t, func(r *rig) {
		k := &siem{t: t, down: true}
		r.answer = k.answer
		nodes := []*AuditStream{r.stream(), r.stream()}
		var want []string
		for i := range batchEntries + 100 {
			id := fmt.Sprintf("%04d", i)
			want = append(want, id)
			if i > 0 && i%150 == 0 { // a large entry
				time.Sleep(time.Millisecond)
				r.appendAuditAt(id, time.Now(), batchBytes/2)
			} else {
				time.Sleep(time.Millisecond)
				r.appendAudit(nodes[i%2], id)
			}
		}
		k.setDown(false)
		time.Sleep(5 * time.Minute)
		k.wantIDs(t, want...)
		if k.most > batchBytes+4096 {
			t.Errorf("a body had %d bytes", k.most)
		}
		if sent := testutil.ToFloat64(nodes[0].entries) + testutil.ToFloat64(nodes[1].entries); int(sent) != len(want) {
			t.Errorf("the metrics say %v entries sent, want %d", sent, len(want))
		}
	})
}

// An entry that is recorded late, by a node with a slow clock,
// is sent if it is at most lateTolerance late.
func TestStream_LateEntries(t *testing.T) {
	inVirtualTime(t, func(r *rig) {
		k := &siem{t: t}
		r.answer = k.answer
		s := r.stream()
		time.Sleep(time.Hour)
		r.appendAudit(s, "now")
		synctest.Wait()
		r.appendAuditAt("late", time.Now().Add(-lateTolerance), 1)
		r.appendAuditAt("too late", time.Now().Add(-lateTolerance-time.Nanosecond), 1)
		time.Sleep(2 * pollInterval)
		k.wantIDs(t, "now", "late")
	})
}

// Entries that a stopped node was sending are sent by the next node at once; entries of
// a crashed node when its claim expires.
func TestStream_NextNodeRepeats(t *testing.T) {
	inVirtualTime(t, func(r *rig) {
		k := &siem{t: t}
		hang := true
		r.answer = func(request *http.Request, n int) (*http.Response, error) {
			if hang {
				<-request.Context().Done()
				return nil, request.Context().Err()
			}
			return k.answer(request, n)
		}
		first := r.stream()
		r.appendAudit(first, "one")
		time.Sleep(time.Second)
		_ = first.Stop(r.Context()) // never fails
		hang = false
		second := r.stream()
		time.Sleep(time.Millisecond)
		k.wantIDs(t, "one")
		_ = second.Stop(r.Context()) // never fails

		p, now, err := second.loadPosition(r.Context())
		must.Succeed(t, err)
		until := now.Add(claimTTL)
		p.Until = &until
		if err := second.savePosition(r.Context(), &p); err != nil { // by a node that crashes then
			t.Fatal(err)
		}
		r.appendAudit(second, "two")
		r.stream()
		time.Sleep(claimTTL - time.Second)
		k.wantIDs(t, "one")
		time.Sleep(3 * time.Second)
		k.wantIDs(t, "one", "two")
	})
}

// Both secrets sign while one replaces the other, and a body that cannot be signed is
// not sent. An entry that the store refuses is an error.
func TestStream_Secrets(t *testing.T) {
	inVirtualTime(t, func(r *rig) {
		k := &siem{t: t}
		r.answer = k.answer
		s := r.stream()
		s.SetSecrets([]string{secondSecret, firstSecret})
		r.appendAudit(s, "one")
		synctest.Wait()
		k.wantIDs(t, "one")
		got, _ := r.all()
		if n := len(strings.Fields(got[0].Header.Get(webhook.HeaderSignature))); n != 2 {
			t.Errorf("%d signatures, want 2", n)
		}
		s.SetSecrets([]string{"no secret"})
		r.appendAudit(s, "two")
		time.Sleep(time.Minute)
		if r.count() != 1 {
			t.Error("a body without a signature was sent")
		}
		s.SetSecrets([]string{firstSecret})
		time.Sleep(2 * time.Minute)
		k.wantIDs(t, "one", "two")
		if err := s.WrapStore(r.store).AppendAudit(r.Context(), store.AuditEntry{ID: "three"}); err == nil {
			t.Error("an entry without an action is recorded")
		}
	})
}
