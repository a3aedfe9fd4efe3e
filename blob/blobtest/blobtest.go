// Package blobtest is the conformance suite of blob.Bucket: every sentence of
// the contract as a test, the HTTP side of signed URLs included. An adapter
// passes Run or is not a bucket. It knows no adapter.
package blobtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
)

// Harness is a fresh, empty bucket whose signed URLs can be fetched.
type Harness struct {
	// Bucket is the bucket.
	Bucket blob.Bucket
	// Reopen returns the bucket as a process sees it that starts after this
	// one was killed. Writers that were open are lost.
	Reopen func(t testing.TB) blob.Bucket
	// Advance lets d pass on the clock that judges URLs. Where it is nil, time
	// passes by itself, and only short lives are tried.
	Advance func(d time.Duration)
	// Foreign says that another's server judges signed URLs, by its own rules:
	// it may refuse a broken one with 400 as well as with 403, and may overlook
	// If-Range and an Authorization header that it does not know.
	Foreign bool
	// Unpinned says that the bucket cannot keep an object that is open: once it
	// is replaced or deleted, a reader may end with blob.ErrLost.
	Unpinned bool
	// Leftovers counts what unfinished writers have left where the bucket
	// keeps it: temporary files, unfinished uploads.
	Leftovers func(t testing.TB) int
	// BigObject is the size of the big object in bytes. Zero is 64 MiB.
	BigObject int64
	// Small leaves out what writes hundreds of megabytes, for a bucket that is one of many
	// and differs from the others in something else.
	Small bool
}

// Run runs the suite. fresh is called once for each test.
func Run(t *testing.T, fresh func(t *testing.T) Harness) {
	RunObjects(t, fresh)
	runAll(t, fresh, []test{
		{name: "SignedGet", run: testSignedGet},
		{name: "SignedHead", run: testSignedHead},
		{name: "SignedMethods", run: testSignedMethods},
		{name: "SignedRange", run: testSignedRange},
		{name: "SignedConditions", run: testSignedConditions},
		{name: "SignedExpiry", run: testSignedExpiry},
		{name: "SignedTampering", run: testSignedTampering},
		{name: "SignedAuthorization", run: testSignedAuthorization},
		{name: "SignedMissing", run: testSignedMissing},
		{name: "SignedFilename", run: testSignedFilename},
		{name: "SignRefuses", run: testSignRefuses},
	})
}

// RunObjects runs what is not about signed URLs, for a bucket without any.
func RunObjects(t *testing.T, fresh func(t *testing.T) Harness) {
	runAll(t, fresh, []test{
		{name: "PutAndGet", run: testPutAndGet},
		{name: "Missing", run: testMissing},
		{name: "CommitMakesVisible", run: testCommitMakesVisible},
		{name: "CommitIsDurable", run: testCommitIsDurable},
		{name: "AbortLeavesNothing", run: testAbortLeavesNothing},
		{name: "WriterEnds", run: testWriterEnds},
		{name: "Replace", run: testReplace},
		{name: "Copy", run: testCopy},
		{name: "Append", run: testAppend, large: true},
		{name: "ReaderKeepsWhatItOpened", run: testReaderKeepsWhatItOpened},
		{name: "ReadAt", run: testReadAt},
		{name: "BigObject", run: testBigObject},
		{name: "Keys", run: testKeys},
		{name: "BadKeys", run: testBadKeys},
		{name: "List", run: testList},
		{name: "Folders", run: testFolders},
		{name: "Delete", run: testDelete},
		{name: "DeletePrefix", run: testDeletePrefix},
		{name: "DeletePrefixUnfinished", run: testDeletePrefixUnfinished},
		{name: "ETag", run: testETag},
		{name: "ConcurrentWriters", run: testConcurrentWriters},
		{name: "ConcurrentKeys", run: testConcurrentKeys},
		{name: "Context", run: testContext},
	})
}

// A test is one of the suite.
type test struct {
	name  string
	run   func(*suite)
	large bool // it writes hundreds of megabytes
}

func runAll(t *testing.T, fresh func(t *testing.T) Harness, tests []test) {
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := fresh(t)
			if h.BigObject == 0 {
				h.BigObject = 64 << 20
			}
			if h.Small && tt.large {
				t.Skip("it writes hundreds of megabytes")
			}
			s := &suite{T: t, Harness: h, Bucket: h.Bucket}
			tt.run(s)
		})
	}
}

// A suite is one test with its bucket.
type suite struct {
	*testing.T
	Harness
	blob.Bucket
}

// random are n bytes that do not compress.
func random(n int) []byte {
	out := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = r.Read(out) // never fails
	return out
}

// put must store an object.
func (s *suite) put(key string, content []byte) blob.Info {
	s.Helper()
	info, err := put(s, s.Bucket, key, content)
	if err != nil {
		s.Fatal(err)
	}
	return info
}

func put(s *suite, b blob.Bucket, key string, content []byte) (blob.Info, error) {
	w, err := b.Create(s.Context(), key, "application/octet-stream")
	if err != nil {
		return blob.Info{}, err
	}
	defer w.Abort()
	if _, err := w.Write(content); err != nil {
		return blob.Info{}, err
	}
	return w.Commit()
}

// get must find an object.
func (s *suite) get(key string) []byte {
	s.Helper()
	content, err := get(s, s.Bucket, key)
	if err != nil {
		s.Fatal(err)
	}
	return content
}

func get(s *suite, b blob.Bucket, key string) ([]byte, error) {
	o, err := b.Open(s.Context(), key)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(blob.NewReader(o))
	if err == nil && int64(len(content)) != o.Size() {
		err = fmt.Errorf("%s has %d bytes, its size is %d", key, len(content), o.Size())
	}
	return content, errors.Join(err, o.Close())
}

// holds compares an object's content.
func (s *suite) holds(key string, want []byte) {
	s.Helper()
	if got := s.get(key); !bytes.Equal(got, want) {
		s.Errorf("%s holds %d bytes %.40q, want %d bytes %.40q", key, len(got), got, len(want), want)
	}
}

// missing checks that nothing is visible under a key.
func (s *suite) missing(key string) {
	s.Helper()
	if _, err := s.Stat(s.Context(), key); !errors.Is(err, rowmill.ErrNotFound) {
		s.Errorf("stat of %s: %v, want ErrNotFound", key, err)
	}
	o, err := s.Open(s.Context(), key)
	if !errors.Is(err, rowmill.ErrNotFound) {
		s.Errorf("open of %s: %v, want ErrNotFound", key, err)
	}
	if err == nil {
		_ = o.Close()
	}
}

// keys lists the keys under a prefix.
func (s *suite) keys(prefix string) []string {
	s.Helper()
	infos, err := s.List(s.Context(), prefix)
	if err != nil {
		s.Fatal(err)
	}
	keys := []string{}
	for _, info := range infos {
		keys = append(keys, info.Key)
	}
	return keys
}

// create must open a writer and write content.
func (s *suite) create(key string, content []byte) blob.Writer {
	s.Helper()
	w, err := s.Create(s.Context(), key, "application/octet-stream")
	if err != nil {
		s.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		s.Fatal(err)
	}
	return w
}
