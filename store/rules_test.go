package store

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
)

func newRecord() Record {
	return Record{
		Job:  rowmill.Job{ID: "job-1", Status: rowmill.StatusPending, RunType: rowmill.RunFull, JobTimes: rowmill.JobTimes{Created: time.Unix(1e9, 0)}},
		Spec: rowmill.Spec{Account: "a"},
	}
}

// wantError fails unless err contains says, or is nil when says is empty.
func wantError(t *testing.T, name string, err error, says string) {
	t.Helper()
	if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
		t.Errorf("%s: %v, want %q", name, err, says)
	}
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{
		"a":                            "",
		strings.Repeat("a", MaxName):   "",
		"":                             "the account is empty",
		strings.Repeat("a", MaxName+1): "1025 bytes long, at most 1024",
		"a\x00":                        "the account holds a NUL byte",
	} {
		wantError(t, name, CheckName("the account", name), says)
	}
}

func TestCheckNew(t *testing.T) {
	t.Parallel()
	good := &Idempotency{Key: "k", TTL: time.Second}
	for _, c := range []struct {
		spoil func(*Record)
		idem  *Idempotency
		says  string
	}{
		{func(*Record) {}, nil, ""},
		{func(*Record) {}, good, ""},
		{func(r *Record) { r.Job.ID = "" }, nil, "the job id is empty"},
		{func(r *Record) { r.Spec.Account = "" }, nil, "the account is empty"},
		{func(r *Record) { r.Job.Status = rowmill.StatusRunning }, nil, "a new job is"},
		{func(r *Record) { r.Job.Created = time.Time{} }, nil, "time of creation"},
		{func(*Record) {}, &Idempotency{TTL: time.Second}, "the idempotency key is empty"},
		{func(*Record) {}, &Idempotency{Key: "k"}, "must be positive"},
	} {
		rec := newRecord()
		c.spoil(&rec)
		wantError(t, c.says, CheckNew(rec, c.idem), c.says)
	}
}

func TestPart_Check(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		part Part
		says string
	}{
		{Part{Key: "k", Shard: math.MaxInt32, Rows: 1}, ""},
		{Part{}, "the key of a part is empty"},
		{Part{Key: "k", Shard: -1}, "its shard is -1"},
		{Part{Key: "k", Shard: math.MaxInt32 + 1}, "its shard is"},
		{Part{Key: "k", Rows: -1}, "it holds -1 rows"},
		{Part{Key: "k", Rows: MaxRows + 1}, "it holds 9007199254740992 rows"},
		{Part{Key: "k", Totals: RowTotals{OutputTokens: -1}}, "its totals are negative"},
	} {
		wantError(t, c.says, c.part.Check(), c.says)
	}
}

func TestRecord_ChangeRefusesFixedFields(t *testing.T) {
	t.Parallel()
	rows, other := int64(5), int64(6)
	for says, change := range map[string]func(*Record){
		"":                       func(r *Record) { r.Job.Status = rowmill.StatusRunning }, // skips steps in between
		"its id cannot":          func(r *Record) { r.Job.ID = "b" },
		"creation cannot":        func(r *Record) { r.Job.Created = time.Unix(2e9, 0) },
		"run type cannot":        func(r *Record) { r.Job.RunType = rowmill.RunEstimate },
		"the key that submitted": func(r *Record) { r.Job.KeyID = new(string); *r.Job.KeyID = "k" },
		"only Reserve can":       func(r *Record) { r.Reserved = 1 },
		"only Claim and Release": func(r *Record) { r.Epoch = 1 },
		"only the store can":     func(r *Record) { r.Version = 9 },
		"number of rows is 5":    func(r *Record) { r.Job.NumRows = &other },
		"number of rows is 5 an": func(r *Record) { *r.Job.NumRows = 7 }, // through the pointer
	} {
		rec := newRecord()
		count := rows
		rec.Job.NumRows = &count
		err := rec.ApplyChange(func(r *Record) error { change(r); return nil }, false)
		wantError(t, says, err, says)
	}
}

func TestRecord_ChangeFollowsStateMachine(t *testing.T) {
	t.Parallel()
	rec := newRecord()
	rec.Job.Status = rowmill.StatusFailed
	var step *rowmill.TransitionError
	if err := rec.ApplyChange(func(r *Record) error { r.Job.Status = rowmill.StatusRunning; return nil }, false); !errors.As(err, &step) {
		t.Errorf("got %v", err)
	}
	rec = newRecord()
	own := errors.New("own")
	if err := rec.ApplyChange(func(*Record) error { return own }, false); err != own { //nolint:errorlint // passed through as it is
		t.Errorf("got %v", err)
	}
	wantError(t, "finish", rec.ApplyChange(func(*Record) error { return nil }, true), "the change leaves it")
}

func TestRecord_Cancel(t *testing.T) {
	t.Parallel()
	now := time.Unix(2e9, 0)
	rec := newRecord()
	if err := rec.Cancel(now, nil); err != nil || rec.Job.Status != rowmill.StatusCancelled {
		t.Errorf("got %v, %s", err, rec.Job.Status)
	}
	if err := rec.Cancel(now, nil); !errors.Is(err, rowmill.ErrTerminal) {
		t.Errorf("the second one got %v", err)
	}
	rec = newRecord()
	wantError(t, "status", rec.Cancel(now, func(r *Record) { r.Job.Status = rowmill.StatusFailed }), "only Cancel may change the status")
	rec = newRecord()
	wantError(t, "id", rec.Cancel(now, func(r *Record) { r.Job.ID = "b" }), "cancel job job-1: its id cannot change")
}

// TestTotalsAreSums checks that Plus adds every counter.
func TestTotalsAreSums(t *testing.T) {
	t.Parallel()
	var a, b RowTotals
	one, two := reflect.ValueOf(&a).Elem(), reflect.ValueOf(&b).Elem()
	for i := range one.NumField() {
		one.Field(i).SetInt(int64(i + 1))
		two.Field(i).SetInt(int64(100 * (i + 1)))
	}
	sum := a.Plus(b)
	for i := range one.NumField() {
		if got, want := reflect.ValueOf(sum).Field(i).Int(), int64(101*(i+1)); got != want {
			t.Errorf("%s is %d, want %d", one.Type().Field(i).Name, got, want)
		}
	}
	if left := sum.Minus(b); left != a {
		t.Errorf("%+v are left, want %+v", left, a)
	}
}
