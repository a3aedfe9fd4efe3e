package webhook

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// TestSign_Specification checks the example in the documents of the specification.
func TestSign_Specification(t *testing.T) {
	t.Parallel()
	got, err := Sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), `{"test": 2432232314}`)
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want || err != nil {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	for _, bad := range []string{"", "whsec_!", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"} {
		if _, err := Sign(bad, "a", time.Now(), ""); err == nil || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("the secret %q: %v", bad, err)
		}
	}
}

func TestEndpoint_ReplacedSecretStillSigns(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	e := NewEndpoint(now)
	first := e.Secret
	e.Rotate(now)
	if e.Secret == first || len(e.Secret) < 40 || e.SecretPrefix() == "" || len(e.SecretPrefix()) > 10 {
		t.Fatalf("secrets %d and %d bytes long, shown %q", len(first), len(e.Secret), e.SecretPrefix())
	}
	for after, want := range map[time.Duration][]string{0: {e.Secret, first}, 23 * time.Hour: {e.Secret, first}, 24 * time.Hour: {e.Secret}} {
		header := must.Get(e.SignBody("id", now.Add(after), "{}"))(t)
		got := strings.Split(header, " ")
		for i, secret := range want {
			signature, err := Sign(secret, "id", now.Add(after), "{}")
			if err != nil || len(got) != len(want) || got[i] != signature {
				t.Errorf("after %v: %v, %v", after, got, err)
			}
		}
	}
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	s := DefaultSchedule()
	var least, most time.Duration
	for tries := 1; ; tries++ {
		low, again := s.PauseAfter(tries, 0)
		high, _ := s.PauseAfter(tries, 1)
		if !again {
			if tries != len(s)+1 {
				t.Errorf("%d tries", tries)
			}
			break
		}
		if high < low || high > low*6/5 {
			t.Errorf("pause %d is from %v to %v", tries, low, high)
		}
		least, most = least+low, most+high
	}
	if day := 24 * time.Hour; least < 3*day || most > 4*day {
		t.Errorf("the schedule spans %v to %v, want about three days", least, most)
	}
}

func TestSchedule_After(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0).UTC()
	d := store.WebhookDelivery{ID: "a", Account: "a", Endpoint: "e", Event: JobFailed, Created: now, State: store.DeliveryPending, Due: &now}
	for _, tt := range []struct {
		attempt store.DeliveryAttempt
		tries   int
		state   string
	}{
		{store.DeliveryAttempt{Status: 200}, 0, store.DeliveryDelivered},
		{store.DeliveryAttempt{Status: 299}, 0, store.DeliveryDelivered},
		{store.DeliveryAttempt{Status: 302}, 0, store.DeliveryPending},
		{store.DeliveryAttempt{Status: 404}, 0, store.DeliveryPending},
		{store.DeliveryAttempt{Error: "no answer"}, 0, store.DeliveryPending},
		{store.DeliveryAttempt{Status: 410}, 0, store.DeliveryFailed},
		{store.DeliveryAttempt{Status: 500}, 2, store.DeliveryFailed},
	} {
		before := d
		before.Tries = tt.tries
		after := RetrySchedule{time.Second, time.Minute}.ApplyAttempt(before, tt.attempt, now, 0)
		if err := after.Check(); err != nil || after.State != tt.state || after.Tries != tt.tries+1 || len(after.Attempts) != 1 {
			t.Errorf("%+v after %d: %+v, %v", tt.attempt, tt.tries, after, err)
		}
	}
	for range 50 {
		d = RetrySchedule{time.Second}.ApplyAttempt(d, store.DeliveryAttempt{Status: 500}, now, 0)
	}
	if len(d.Attempts) != maxAttempts || d.Tries != 50 {
		t.Errorf("%d of %d attempts are kept", len(d.Attempts), d.Tries)
	}
	if d = RequeueDelivery(d, now); d.Tries != 0 || d.State != store.DeliveryPending || len(d.Attempts) != maxAttempts || d.Check() != nil {
		t.Errorf("requeued: %+v", d)
	}
	if d = Abandon(d, "why", now); d.State != store.DeliveryFailed || d.Attempts[maxAttempts-1].Error != "why" || d.Check() != nil {
		t.Errorf("given up: %+v", d)
	}
}

func TestEndpoint_Wanted(t *testing.T) {
	t.Parallel()
	expired := &rowmill.Failure{Code: rowmill.CodeWindowExpired}
	native := &rowmill.Spec{}
	openai, anthropic := &rowmill.Spec{Raw: &rowmill.RawBatch{Dialect: rowmill.DialectOpenAI}}, &rowmill.Spec{Raw: &rowmill.RawBatch{Dialect: rowmill.DialectAnthropic}}
	for _, tt := range []struct {
		events []string
		status rowmill.Status
		reason *rowmill.Failure
		spec   *rowmill.Spec
		want   []string
	}{
		{nil, rowmill.StatusSucceeded, nil, native, []string{JobSucceeded}},
		{nil, rowmill.StatusFailed, expired, native, []string{JobFailed}},
		{nil, rowmill.StatusCancelled, nil, native, []string{JobCancelled}},
		{nil, rowmill.StatusRunning, nil, native, nil},
		{nil, rowmill.StatusSucceeded, nil, openai, []string{BatchCompleted}},
		{nil, rowmill.StatusFailed, nil, openai, []string{BatchFailed}},
		{nil, rowmill.StatusFailed, expired, openai, []string{BatchExpired}},
		{nil, rowmill.StatusCancelled, nil, openai, []string{BatchCancelled}},
		{nil, rowmill.StatusSucceeded, nil, anthropic, []string{JobSucceeded}},
		{[]string{BatchCompleted}, rowmill.StatusSucceeded, nil, openai, []string{BatchCompleted}},
		{[]string{BatchCompleted}, rowmill.StatusSucceeded, nil, native, nil},
		{[]string{BatchCompleted}, rowmill.StatusFailed, nil, openai, nil},
		{[]string{JobFailed}, rowmill.StatusFailed, expired, openai, []string{JobFailed}},
		{[]string{BatchExpired, JobFailed}, rowmill.StatusFailed, expired, openai, []string{BatchExpired, JobFailed}},
		{[]string{JobSucceeded}, rowmill.StatusSucceeded, nil, native, []string{JobSucceeded}},
	} {
		e := Endpoint{Events: tt.events}
		if got := e.wantedTypes(&rowmill.Job{Status: tt.status, FailureReason: tt.reason}, tt.spec); !slices.Equal(got, tt.want) {
			t.Errorf("an endpoint with events %v gets %v for status %s, want %v", tt.events, got, tt.status, tt.want)
		}
	}
}

func TestBody(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 123_456_789)
	rows, cost, name := int64(7), 0.25, "<nightly>"
	job := rowmill.Job{
		ID: "job-0190f0a0-0000-7000-8000-0000000000ab", Status: rowmill.StatusFailed, RunType: rowmill.RunFull, Labels: rowmill.Labels{Name: &name}, Model: "m", NumRows: &rows, JobUsage: rowmill.JobUsage{JobCost: &cost},
		FailureReason: &rowmill.Failure{Code: "c", Message: "why"},
	}
	job.FailedRows = 3
	got, err := eventBody(JobFailed, &job, nil, at)
	must.Succeed(t, err)
	var event struct {
		Type, Timestamp string
		Data            map[string]any
	}
	if err := json.Unmarshal([]byte(got), &event); err != nil || event.Type != JobFailed || event.Timestamp != "2027-01-15T08:00:00.123Z" {
		t.Errorf("%v: %s", err, got)
	}
	for field, want := range map[string]any{"job_id": job.ID, "status": "FAILED", "name": name, "num_rows": 7.0, "rows_failed": 3.0, "cost": cost, "batch_id": nil} {
		if value, there := event.Data[field]; value != want && !strings.EqualFold(field, "status") || !there {
			t.Errorf("%s is %v, want %v", field, event.Data[field], want)
		}
	}
	raw := &rowmill.RawBatch{Dialect: rowmill.DialectOpenAI}
	got, err = eventBody(BatchFailed, &job, raw, at)
	again, _ := eventBody(BatchFailed, &job, raw, at)
	id, rest, _ := strings.Cut(strings.TrimPrefix(got, `{"id":"evt_`), `"`)
	if want := `,"object":"event","created_at":1800000000,"type":"batch.failed","data":{"id":"batch_0190f0a000007000800000000000" + "00ab"}}`; err != nil || got != again || len(id) != 32 || rest != strings.ReplaceAll(want, `" + "`, "") {
		t.Errorf("%v: %s", err, got)
	}
}

func TestIDs_SortByTime(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0)
	a, b := deriveID("msg_", at, "x"), deriveID("msg_", at.Add(time.Millisecond), "a")
	if a >= b || a != deriveID("msg_", at, "x") || a == deriveID("msg_", at, "y") {
		t.Errorf("%s, %s", a, b)
	}
}

func TestSample(t *testing.T) {
	t.Parallel()
	for _, kind := range EventTypes() {
		e := Endpoint{ID: "we_1", Events: []string{kind}}
		id, text, err := e.NewSampleEvent(e.SampleType(), time.Now())
		if err != nil || !json.Valid([]byte(text)) || !strings.Contains(text, `"type":"`+kind+`"`) || id == "" {
			t.Errorf("%s: %s, %v", kind, text, err)
		}
	}
}
