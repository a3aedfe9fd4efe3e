// Package blobtest is the conformance suite of blob.Bucket: it tests every
// sentence of the contract, including the HTTP side of signed URLs. Every
// implementation must pass Run. The package knows no implementation.
package blobtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/internal/must"
)

// Harness is a new, empty bucket whose signed URLs can be fetched.
type Harness struct {
	// Bucket is the bucket.
	Bucket blob.Bucket
	// Reopen simulates that this process is killed and another process starts. It
	// returns the bucket as the new process opens it. Data of open writers is lost.
	Reopen func(t testing.TB) blob.Bucket
	// Advance moves the clock that decides whether URLs have expired. If Advance is
	// nil, the tests wait in real time, and use only URLs that expire soon.
	Advance func(d time.Duration)
	// Foreign is true if a server other than ours checks signed URLs, with its own
	// rules: it may answer 400 instead of 403 for a broken URL, and may ignore If-Range
	// and an unknown Authorization header.
	Foreign bool
	// Unpinned is true if the bucket cannot keep an open object: after a replacement or
	// deletion, a reader may fail with blob.ErrLost.
	Unpinned bool
	// Leftovers counts the data of unfinished writers in the bucket, such as temporary
	// files and unfinished uploads.
	Leftovers func(t testing.TB) int
	// BigObject is the size of the big object in bytes. Zero means 64 MiB.
	BigObject int64
	// Small leaves out tests that write hundreds of megabytes. Set it for a
	// variant of a bucket if other variants of the bucket run these tests.
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

// RunObjects runs the tests that need no signed URLs.
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

// test is one test of the suite.
type test struct {
	name  string
	run   func(*suite)
	large bool // the test writes hundreds of megabytes
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
				t.Skip("the test writes hundreds of megabytes")
			}
			s := &suite{T: t, Harness: h, Bucket: h.Bucket}
			tt.run(s)
		})
	}
}

// suite is the state of one running test: its bucket and harness.
type suite struct {
	*testing.T
	Harness
	blob.Bucket
}

// random returns n bytes that do not compress.
func random(n int) []byte {
	out := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = r.Read(out) // never fails
	return out
}

// must ends the test at once if err is not nil.
func (s *suite) must(err error) {
	s.Helper()
	must.Succeed(s, err)
}

// put stores an object. An error ends the test.
func (s *suite) put(key string, content []byte) blob.ObjectInfo {
	s.Helper()
	info, err := put(s, s.Bucket, key, content)
	s.must(err)
	return info
}

func put(s *suite, b blob.Bucket, key string, content []byte) (blob.ObjectInfo, error) {
	return blob.Write(s.Context(), b, key, "application/octet-stream", func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// open opens an object, which is closed at the end of the test. An error ends the test.
func (s *suite) open(key string) blob.Object {
	s.Helper()
	o, err := s.Open(s.Context(), key)
	s.must(err)
	s.Cleanup(func() { _ = o.Close() }) // the test may have closed the object already
	return o
}

// stat describes an object. An error ends the test.
func (s *suite) stat(key string) blob.ObjectInfo {
	s.Helper()
	info, err := s.Stat(s.Context(), key)
	s.must(err)
	return info
}

// commit commits a writer. An error ends the test.
func (s *suite) commit(w blob.Writer) {
	s.Helper()
	_, err := w.Commit()
	s.must(err)
}

// get reads a whole object. An error ends the test.
func (s *suite) get(key string) []byte {
	s.Helper()
	content, err := get(s, s.Bucket, key)
	s.must(err)
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

// wantContent checks that the object at key has the content want.
func (s *suite) wantContent(key string, want []byte) {
	s.Helper()
	if got := s.get(key); !bytes.Equal(got, want) {
		s.Errorf("%s holds %d bytes %.40q, want %d bytes %.40q", key, len(got), got, len(want), want)
	}
}

// wantMissing checks that nothing is visible under a key.
func (s *suite) wantMissing(key string) {
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
	s.must(err)
	keys := []string{}
	for _, info := range infos {
		keys = append(keys, info.Key)
	}
	return keys
}

// wantKeys checks that exactly the keys want exist under a prefix.
func (s *suite) wantKeys(prefix string, want ...string) {
	s.Helper()
	if diff := cmp.Diff(want, s.keys(prefix), cmpopts.EquateEmpty()); diff != "" {
		s.Errorf("prefix %q (-want +got):\n%s", prefix, diff)
	}
}

// wantNoLeftovers checks that no writer left data behind.
func (s *suite) wantNoLeftovers() {
	s.Helper()
	if n := s.Leftovers(s); n != 0 {
		s.Errorf("%d unfinished objects are left, want none", n)
	}
}

// create opens a writer and writes content, without a commit. An error ends the test.
func (s *suite) create(key string, content []byte) blob.Writer {
	s.Helper()
	w, err := s.Create(s.Context(), key, "application/octet-stream")
	s.must(err)
	_, err = w.Write(content)
	s.must(err)
	return w
}
