package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// testKeys stores objects under every kind of allowed key.
func testKeys(s *suite) {
	keys := []string{
		"a", "...", ".hidden", "a..b", "-", "~", "=", "_", "0", "A-Z_a.z~9=",
		"jobs/job-01890a5d-ac96-774b-bcce-b302099a8057/parts/3-7.parquet", "tmp/x", "type", "lock",
		strings.Repeat("x", 200), strings.Repeat("d/", 254) + "kk", // 512 bytes with the "k/" below
	}
	for _, key := range keys {
		s.put("k/"+key, []byte(key))
	}
	for _, key := range keys {
		s.wantContent("k/"+key, []byte(key))
	}
	if got := s.keys("k/"); len(got) != len(keys) {
		s.Errorf("%d keys are listed, want %d", len(got), len(keys))
	}
}

func testBadKeys(s *suite) {
	s.put("a/b", nil)
	for _, key := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a/..", "./a",
		"a b", "a\\b", "a\x00b", "a\nb", "a+b", "a%2fb", "ä", "a:b", "a*", "a?b", "a#b",
		strings.Repeat("x", 513), strings.Repeat("d/", 256) + "k",
	} {
		ctx := s.Context()
		w, create := s.Create(ctx, key, "")
		if create == nil {
			w.Abort()
		}
		o, open := s.Open(ctx, key)
		if open == nil {
			_ = o.Close()
		}
		_, stat := s.Stat(ctx, key)
		_, sign := s.SignURL(ctx, "GET", key, "", time.Minute)
		for call, err := range map[string]error{
			"Create": create, "Open": open, "Stat": stat, "SignURL": sign, "Delete": s.Delete(ctx, key),
		} {
			if err == nil {
				s.Errorf("%s accepts the key %.40q, want an error", call, key)
			}
		}
	}
	for _, prefix := range []string{"a", "/", "//", "../", "a/../", "./", "a//", "a b/", "a/b", strings.Repeat("d/", 257)} {
		if _, err := s.List(s.Context(), prefix); err == nil {
			s.Errorf("List accepts the prefix %.40q, want an error", prefix)
		}
		if err := s.DeletePrefix(s.Context(), prefix); err == nil {
			s.Errorf("DeletePrefix accepts the prefix %.40q, want an error", prefix)
		}
	}
	if err := s.DeletePrefix(s.Context(), ""); err == nil {
		s.Error("DeletePrefix accepts the empty prefix, want an error")
	}
	s.wantContent("a/b", nil)
}

// testConcurrentWriters writes and reads a single key concurrently: each reader
// must see one complete version.
func testConcurrentWriters(s *suite) {
	version := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 50_000+i) }
	s.put("a/k", version(0))
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for range 3 {
		readers.Go(func() {
			for {
				got, err := get(s, s.Bucket, "a/k")
				if err != nil || len(got) == 0 || !bytes.Equal(got, version(int(got[0]))) {
					s.Errorf("read %d bytes that are no version of the object, %v, want one version", len(got), err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for i := 1; i <= 8; i++ {
		writers.Go(func() {
			for range 5 {
				if _, err := put(s, s.Bucket, "a/k", version(i)); err != nil {
					s.Errorf("put: %v", err)
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	s.wantNoLeftovers()
}

// testConcurrentKeys makes objects in new folders concurrently.
func testConcurrentKeys(s *suite) {
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 10 {
				key := fmt.Sprintf("d%d/e/k%d", i, g)
				if _, err := put(s, s.Bucket, key, []byte(key)); err != nil {
					s.Errorf("put %s: %v", key, err)
				}
			}
		})
	}
	wg.Wait()
	keys := s.keys("")
	if len(keys) != 80 {
		s.Errorf("%d objects, want 80", len(keys))
	}
	for _, key := range keys {
		s.wantContent(key, []byte(key))
	}
}

func testContext(s *suite) {
	s.put("a/k", []byte("x"))
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	_, create := s.Create(ctx, "a/new", "")
	_, open := s.Open(ctx, "a/k")
	_, stat := s.Stat(ctx, "a/k")
	_, list := s.List(ctx, "a/")
	_, folders := s.Folders(ctx, "a/", "", 1)
	_, sign := s.SignURL(ctx, "GET", "a/k", "", time.Minute)
	for call, err := range map[string]error{
		"Create": create, "Open": open, "Stat": stat, "List": list, "Folders": folders, "SignURL": sign,
		"Delete": s.Delete(ctx, "a/k"), "DeletePrefix": s.DeletePrefix(ctx, "a/"),
	} {
		if !errors.Is(err, context.Canceled) {
			s.Errorf("%s: %v, want context.Canceled", call, err)
		}
	}
	s.wantContent("a/k", []byte("x"))
}
