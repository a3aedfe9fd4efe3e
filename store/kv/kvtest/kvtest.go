// Package kvtest is the conformance suite of kv.Backend: it tests every rule of package
// kv. It knows no backend.
package kvtest

import (
	"context"
	"testing"
	"time"

	"github.com/rowmill/rowmill/store/kv"
)

// A Harness gives the suite new, empty storage for tables, and control of the clock.
type Harness struct {
	// Open opens a backend on the storage. The suite closes the backend, and may then open
	// another one to check stored data.
	Open func(t testing.TB) kv.Backend
	// Advance moves the clock that decides when sessions expire.
	Advance func(d time.Duration)
	// Damage changes the byte at index at of a stored value in the form of kv.Seal. No
	// backend is open on the storage during the call.
	Damage func(t testing.TB, table kv.Table, key []byte, at int)
	// Serial means that the backend runs transactions one after the other: no transaction
	// can run during another one.
	Serial bool
	// TTL is the ttl of sessions in tests that let sessions expire. It must be short if
	// Advance sleeps. Zero means one minute.
	TTL time.Duration
}

// Run runs the suite. It calls fresh once for each test.
func Run(t *testing.T, fresh func(t *testing.T) Harness) {
	for _, tt := range []struct {
		name string
		run  func(*suite)
	}{
		{"OwnWrites", testOwnWrites},
		{"EmptyIsNotNone", testEmptyIsNotNone},
		{"Scan", testScan},
		{"ScanMany", testScanMany},
		{"ScanRanges", testScanRanges},
		{"IDsGrow", testIDsGrow},
		{"KeptOverReopen", testKeptOverReopen},
		{"FailureLeavesNothing", testFailureLeavesNothing},
		{"ViewWritesNothing", testViewWritesNothing},
		{"ViewIsOneMoment", testViewIsOneMoment},
		{"KeysAreBounded", testKeysAreBounded},
		{"Conflicts", testConflicts},
		{"NoUpdateIsLost", testNoUpdateIsLost},
		{"OneCreatesAKey", testOneCreatesAKey},
		{"GuardKey", testGuardKey},
		{"ErrorsCountAtOneMoment", testErrorsCountAtOneMoment},
		{"Add", testAdd},
		{"AddsDoNotConflict", testAddsDoNotConflict},
		{"Sessions", testSessions},
		{"FenceHoldsAtCommit", testFenceHoldsAtCommit},
		{"Damage", testDamage},
		{"ContextAndClose", testContextAndClose},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &suite{T: t, Harness: fresh(t)}
			s.Backend = s.Open(t)
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			tt.run(s)
		})
	}
}

// A suite holds the state of one test: the test, its storage and the open backend.
type suite struct {
	*testing.T
	Harness
	kv.Backend
}

const (
	table kv.Table = "table"
	other kv.Table = "other"
)

// reopen closes the backend, calls between, and opens the backend again.
func (s *suite) reopen(between func()) {
	s.Helper()
	if err := s.Close(); err != nil {
		s.Fatalf("close: %v", err)
	}
	between()
	s.Backend = s.Open(s)
}

// update runs a transaction that must succeed.
func (s *suite) update(run func(t kv.Tx) error) {
	s.Helper()
	if err := s.Update(s.Context(), run); err != nil {
		s.Fatalf("update: %v", err)
	}
}

// put writes values in one transaction. pairs is a list of key, value, key, value and so
// on.
func (s *suite) put(pairs ...string) {
	s.Helper()
	s.update(func(t kv.Tx) error {
		for i := 0; i < len(pairs); i += 2 {
			t.Put(table, []byte(pairs[i]), []byte(pairs[i+1]))
		}
		return nil
	})
}

// get returns the value of a key; found is false when the key has none.
func (s *suite) get(key string) (value string, found bool) {
	s.Helper()
	err := s.View(s.Context(), func(t kv.Tx) error {
		raw, err := t.Get(table, []byte(key))
		value, found = string(raw), raw != nil
		return err
	})
	if err != nil {
		s.Fatalf("get %s: %v", key, err)
	}
	return value, found
}

// wantValue compares the value of a key with the expected value.
func (s *suite) wantValue(key, value string) {
	s.Helper()
	if got, found := s.get(key); !found || got != value {
		s.Errorf("%s is %q, found %v; want %q", key, got, found, value)
	}
}

// scanKeys returns the keys in ranges, read by one scan.
func (s *suite) scanKeys(ranges ...kv.Range) (keys []string) {
	s.Helper()
	err := s.View(s.Context(), func(t kv.Tx) error {
		keys = []string{}
		for e, err := range t.Scan(ranges...) {
			if err != nil {
				return err
			}
			keys = append(keys, string(e.Key))
		}
		return nil
	})
	if err != nil {
		s.Fatalf("scan: %v", err)
	}
	return keys
}

// endedContext returns a cancelled context.
func endedContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
