package commit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/internal/must"
)

// compactions runs a test in a synctest bubble and waits for all compactions.
func compactions(t *testing.T, test func(t *testing.T, s *CompactionRunner)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var all sync.WaitGroup
		s := NewCompactionRunner(&all)
		test(t, s)
		s.Stop()
		all.Wait()
		synctest.Wait()
		if len(s.running) > 0 {
			t.Errorf("%d compactions are left", len(s.running))
		}
	})
}

func TestAnCompactionRunsOnceAndSaysHowItEnded(t *testing.T) {
	t.Parallel()
	compactions(t, func(t *testing.T, s *CompactionRunner) {
		began := 0
		run := func(context.Context) (int64, error) {
			began++
			time.Sleep(time.Minute) // the test asks all the time
			return 7, nil
		}
		for range 59 {
			if got := s.StartOrQuery("job", "key", run); got != (CompactionState{}) {
				t.Fatalf("it is %+v", got)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Second)
		if got := s.StartOrQuery("job", "key", run); got != (CompactionState{Done: true, Size: 7}) || began != 1 || !s.Has("key") {
			t.Errorf("it is %+v, and has begun %d times", got, began)
		}
		time.Sleep(2 * ownerSilenceLimit)
		if s.Has("key") {
			t.Error("it is not forgotten")
		}
		for key, run := range map[string]func(context.Context) (int64, error){
			"no":    func(context.Context) (int64, error) { return 0, errors.New("no") },
			"panic": func(context.Context) (int64, error) { panic("no") },
		} {
			s.StartOrQuery("job", key, run)
			synctest.Wait()
			if got := s.StartOrQuery("job", key, run); !got.Done || !strings.Contains(got.Failed, key) {
				t.Errorf("%s: it is %+v", key, got)
			}
		}
	})
}

// A compaction ends if its owner is silent for too long, or if its job is over.
func TestCompactionsEndWithoutAnOwner(t *testing.T) {
	t.Parallel()
	compactions(t, func(t *testing.T, s *CompactionRunner) {
		var ended []string
		run := func(name string) func(ctx context.Context) (int64, error) {
			return func(ctx context.Context) (int64, error) {
				<-ctx.Done()
				time.Sleep(time.Second) // time to abort its write
				ended = append(ended, name)
				return 0, ctx.Err()
			}
		}
		s.StartOrQuery("a", "key", run("silent"))
		time.Sleep(ownerSilenceLimit + 2*time.Second)
		if s.Has("key") || len(ended) != 1 {
			t.Errorf("%v ended", ended)
		}
		s.StartOrQuery("a", "1", run("1"))
		s.StartOrQuery("b", "2", run("2"))
		began := time.Now()
		wait := s.CancelJob("a")
		wait()
		if took := time.Since(began); took > time.Second {
			t.Errorf("CancelJob took %v, so it waited until the owner counted as silent", took)
		}
		if len(ended) != 2 || ended[1] != "1" {
			t.Errorf("%v ended", ended)
		}
		if s.CancelJob("c") != nil {
			t.Error("there is something to wait for of a job without compactions")
		}
	})
}

// copier counts the bytes that the bucket is asked to copy.
type copier struct {
	blob.Appender
	copied int64
}

func (c *copier) Append(_ blob.Object, _, size int64) error {
	c.copied += size
	return nil
}

// The bucket itself copies long ranges.
func TestLongRangesAreCopiedByTheBucket(t *testing.T) {
	t.Parallel()
	bucket := maker(t, 1).Bucket
	content := make([]byte, 2*copiedFrom)
	must.Get(blob.Write(t.Context(), bucket, "k", "", func(w io.Writer) error { _, err := w.Write(content); return err }))(t)
	object := blob.NewLazyObjects(t.Context(), bucket, 1).Object("k", int64(len(content)))
	defer object.Close()
	for length, want := range map[int64]int64{copiedFrom - 1: 0, copiedFrom: copiedFrom, 2 * copiedFrom: 2 * copiedFrom} {
		var through bytes.Buffer
		to := &copier{}
		r := &rangeWriter{Writer: bufio.NewWriter(&through), to: to}
		must.Succeed(t, errors.Join(r.WriteRange(object, 0, length), r.Flush()))
		if to.copied != want || int64(through.Len()) != length-want {
			t.Errorf("%d bytes: the bucket copied %d, %d went through the node", length, to.copied, through.Len())
		}
	}
}
