package blobtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
)

// aboutSameTime compares times with a tolerance: the time that Commit returns can
// differ from the time that the bucket stored.
var aboutSameTime = cmpopts.EquateApproxTime(time.Minute)

func testPutAndGet(s *suite) {
	if s.Bucket.Name() == "" {
		s.Error("Name returns \"\", want the name of the bucket")
	}
	for _, size := range []int{0, 1, 100, 4096, 65535, 65536, 65537, 1 << 20} {
		key, content := fmt.Sprintf("size/%d", size), random(size)
		before := time.Now()
		info := s.put(key, content)
		s.wantContent(key, content)
		if info.Key != key || info.Size != int64(size) || info.Modified.Before(before.Add(-time.Minute)) || info.Modified.After(time.Now().Add(time.Minute)) {
			s.Errorf("commit returns %+v, want the key, the size and the time of the object", info)
		}
		if !strings.HasPrefix(info.ETag, `"`) || !strings.HasSuffix(info.ETag, `"`) || len(info.ETag) < 3 {
			s.Errorf("the ETag is %s, want a strong one with its quotes", info.ETag)
		}
		stat := s.stat(key)
		if diff := cmp.Diff(info, stat, aboutSameTime); diff != "" {
			s.Errorf("stat differs from commit, want the same (-commit +stat):\n%s", diff)
		}
		s.checkOpenInfo(key, stat)
	}
}

// checkOpenInfo opens an object and then replaces the object. The open object must
// still have the Info of the old version, which is stat.
func (s *suite) checkOpenInfo(key string, stat blob.ObjectInfo) {
	s.Helper()
	o := s.open(key)
	s.put(key, []byte("something else"))
	if diff := cmp.Diff(stat, o.Info()); diff != "" || o.Size() != stat.Size {
		s.Errorf("the open object of %d bytes differs from stat, want the same (-stat +open):\n%s", o.Size(), diff)
	}
}

func testMissing(s *suite) {
	for _, key := range []string{"a", "a/b/c"} {
		s.wantMissing(key)
	}
	s.put("a/b/c", nil)
	for _, key := range []string{"a", "a/b", "a/b/c/d", "a/b/cc"} {
		s.wantMissing(key)
	}
}

func testCommitMakesVisible(s *suite) {
	w := s.create("k/new", random(1<<20))
	s.wantMissing("k/new")
	s.wantKeys("")
	s.commit(w)
	w.Abort() // Abort after Commit must do nothing, because callers defer Abort
	s.wantContent("k/new", random(1<<20))

	old := []byte("old")
	s.put("k/old", old)
	w = s.create("k/old", random(100))
	s.wantContent("k/old", old)
	s.commit(w)
	s.wantContent("k/old", random(100))
}

func testCommitIsDurable(s *suite) {
	info := s.put("deep/er/key", []byte("content"))
	open := s.create("deep/unfinished", []byte("content"))
	s.Bucket = s.Reopen(s)
	s.wantContent("deep/er/key", []byte("content"))
	stat := s.stat("deep/er/key")
	if diff := cmp.Diff(info, stat, aboutSameTime); diff != "" {
		s.Errorf("stat differs after a restart, want the same (-before +after):\n%s", diff)
	}
	s.wantMissing("deep/unfinished")
	s.wantKeys("deep/", "deep/er/key")
	s.wantNoLeftovers()
	open.Abort()
}

func testAbortLeavesNothing(s *suite) {
	old := []byte("old")
	s.put("a/old", old)
	for _, key := range []string{"a/old", "a/new", "new/folder/x"} {
		w := s.create(key, random(1<<20))
		w.Abort()
		w.Abort()
		if _, err := w.Commit(); err == nil {
			s.Errorf("%s: commit after abort succeeds, want an error", key)
		}
		if _, err := w.Write([]byte("x")); err == nil {
			s.Errorf("%s: write after abort succeeds, want an error", key)
		}
	}
	s.wantContent("a/old", old)
	s.wantKeys("", "a/old")
	s.wantNoLeftovers()
}

func testWriterEnds(s *suite) {
	w := s.create("k", []byte("one"))
	s.commit(w)
	if _, err := w.Write([]byte("two")); err == nil {
		s.Error("write after commit succeeds, want an error")
	}
	if _, err := w.Commit(); err == nil {
		s.Error("a second commit succeeds, want an error")
	}
	w.Abort()
	s.wantContent("k", []byte("one"))
	s.wantNoLeftovers()
}

func testReplace(s *suite) {
	for _, content := range [][]byte{random(1 << 20), []byte("short"), nil, random(70000)} {
		s.put("k", content)
		s.wantContent("k", content)
	}
	s.wantKeys("", "k")
}

func testCopy(s *suite) {
	copied := func(from, to string) {
		s.Helper()
		s.must(s.Copy(s.Context(), from, to))
	}
	for _, content := range [][]byte{random(1 << 20), []byte("short"), nil} {
		s.put("files/a", content)
		copied("files/a", "jobs/b/raw")
		copied("files/a", "jobs/b/raw") // again, and over an existing object
		s.wantContent("jobs/b/raw", content)
		s.put("files/a", []byte("another"))
		s.wantContent("jobs/b/raw", content)
		s.must(s.Delete(s.Context(), "files/a"))
		s.wantContent("jobs/b/raw", content)
		s.put("files/a", content)
		copied("files/a", "files/c")
		s.must(s.DeletePrefix(s.Context(), "jobs/"))
		s.wantContent("files/a", content)
		s.wantContent("files/c", content)
	}
	if err := s.Copy(s.Context(), "files/none", "files/d"); !errors.Is(err, rowmill.ErrNotFound) {
		s.Errorf("copy of a missing object: %v, want ErrNotFound", err)
	}
	if err := s.Copy(s.Context(), "files/a", "no//key"); err == nil {
		s.Error("copy to an invalid key succeeds, want an error")
	}
	s.wantKeys("files/", "files/a", "files/c")
}

// testAppend tests writers that are a blob.Appender: appended and written bytes
// must be in the order of the calls, for all sizes.
func testAppend(s *suite) {
	w := s.create("jobs/none", nil)
	_, appends := w.(blob.Appender)
	w.Abort()
	if !appends {
		s.Skip("the bucket's writers are not a blob.Appender")
	}
	const mib = 1 << 20
	sources := make(map[string][]byte)
	open := func(key string, size int) blob.Object {
		sources[key] = random(size)
		s.put(key, sources[key])
		return s.open(key)
	}
	small, large := open("parts/small", 1000), open("parts/large", 23*mib)
	type piece struct {
		from         blob.Object // nil: size bytes are passed to Write instead of Append
		offset, size int64
	}
	for name, pieces := range map[string][]piece{
		"nothing": {}, "no bytes": {{large, 5, 0}, {small, 1000, 0}},
		"small":  {{small, 0, 1000}},
		"whole":  {{large, 0, 23 * mib}},
		"within": {{large, 7, 12*mib + 1}},
		"as a result is made": {
			{nil, 0, 4}, {large, 4, 11 * mib}, {large, 9 * mib, 6 * mib}, {large, 0, 2 * mib}, {small, 1, 500}, {large, 3, 20 * mib}, {nil, 0, 70_000},
		},
		"much is written": {{nil, 0, 21 * mib}, {large, 1, 6 * mib}, {nil, 0, 3 * mib}, {large, 0, 7 * mib}, {small, 0, 1}},
	} {
		key := "jobs/" + strings.ReplaceAll(name, " ", "-")
		w := s.create(key, nil).(blob.Appender)
		var want []byte
		for _, p := range pieces {
			var err error
			if p.from == nil {
				content := random(int(p.size))
				want = append(want, content...)
				_, err = w.Write(content)
			} else {
				want = append(want, sources[p.from.Info().Key][p.offset:p.offset+p.size]...)
				err = w.Append(p.from, p.offset, p.size)
			}
			if err != nil {
				s.Fatalf("%s: %v", name, err)
			}
		}
		info, err := w.Commit()
		if err != nil || info.Size != int64(len(want)) {
			s.Fatalf("%s: committed %+v, %v; want %d bytes", name, info, err, len(want))
		}
		if got := s.get(key); !bytes.Equal(got, want) {
			s.Errorf("%s: %d bytes, want %d, and they differ", name, len(got), len(want))
		}
		if err := w.Append(small, 0, 1); err == nil {
			s.Errorf("%s: append after commit succeeds, want an error", name)
		}
	}

	aborted := s.create("jobs/aborted", []byte("x")).(blob.Appender)
	s.must(aborted.Append(large, 0, 12*mib))
	aborted.Abort()
	s.wantMissing("jobs/aborted")
	beyond := s.create("jobs/beyond", nil).(blob.Appender)
	err := beyond.Append(large, 20*mib, 12*mib)
	if _, commitErr := beyond.Commit(); commitErr == nil {
		s.Errorf("appending bytes beyond the end of an object succeeds, want an error from Append or Commit: %v", err)
	}
	s.wantMissing("jobs/beyond")
	for i, size := range []int64{12 * mib, 100, 12 * mib, 100} {
		gone := open("parts/gone", 12*mib)
		if i < 2 {
			s.must(s.Delete(s.Context(), "parts/gone"))
		} else {
			s.put("parts/gone", random(12*mib+1))
		}
		w := s.create("jobs/gone", nil).(blob.Appender)
		err := w.Append(gone, 0, size)
		_, commitErr := w.Commit()
		switch known := errors.Is(err, rowmill.ErrNotFound) || errors.Is(err, blob.ErrLost); {
		case err == nil && commitErr == nil:
			s.wantContent("jobs/gone", sources["parts/gone"][:size])
		case err != nil && (!known || commitErr == nil), err == nil && !errors.Is(commitErr, rowmill.ErrNotFound) && !errors.Is(commitErr, blob.ErrLost):
			s.Errorf("%d bytes of an object that was deleted or replaced: %v, then %v", size, err, commitErr)
		}
	}
	s.wantNoLeftovers()
}

func testReaderKeepsWhatItOpened(s *suite) {
	for name, change := range map[string]func(key string) error{
		"replace":       func(key string) error { _, err := put(s, s.Bucket, key, random(10)); return err },
		"delete":        func(key string) error { return s.Delete(s.Context(), key) },
		"delete-prefix": func(key string) error { return s.DeletePrefix(s.Context(), key[:strings.Index(key, "/")+1]) },
	} {
		key, content := name+"/k", random(1<<20)
		s.put(key, content)
		o := s.open(key)
		s.must(change(key))
		got, err := io.ReadAll(blob.NewReader(o))
		lost := s.Unpinned && errors.Is(err, blob.ErrLost)
		if err != nil && !lost || !bytes.Equal(got, content[:len(got)]) || !lost && len(got) < len(content) {
			s.Errorf("%s: the open object gives %d bytes, %v", name, len(got), err)
		}
		if err := o.Close(); err != nil {
			s.Errorf("%s: close: %v", name, err)
		}
	}
}

func testReadAt(s *suite) {
	content := random(100_000)
	s.put("k", content)
	o := s.open("k")
	for _, r := range [][2]int{{0, 1}, {0, 100_000}, {99_999, 1}, {4095, 2}, {50_000, 50_000}, {7, 0}} {
		got := make([]byte, r[1])
		if n, err := o.ReadAt(got, int64(r[0])); n != r[1] || err != nil && !errors.Is(err, io.EOF) {
			s.Errorf("read %d bytes at %d: %d bytes, %v, want all bytes", r[1], r[0], n, err)
		}
		if !bytes.Equal(got, content[r[0]:r[0]+r[1]]) {
			s.Errorf("%d bytes at %d differ, want the content of the object", r[1], r[0])
		}
	}
	over := make([]byte, 10)
	if n, err := o.ReadAt(over, 99_995); n != 5 || !errors.Is(err, io.EOF) {
		s.Errorf("beyond the end: %d, %v; want 5 and EOF", n, err)
	}
	if n, err := o.ReadAt(over, 100_000); n != 0 || !errors.Is(err, io.EOF) {
		s.Errorf("at the end: %d, %v; want 0 and EOF", n, err)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			got := make([]byte, 1000)
			for at := g; at < 99_000; at += 997 {
				if _, err := o.ReadAt(got, int64(at)); err != nil || !bytes.Equal(got, content[at:at+1000]) {
					s.Errorf("read at %d while others read: %v, want the content of the object", at, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// testBigObject writes an object in pieces of odd sizes and checks it piece by
// piece.
func testBigObject(s *suite) {
	w := s.create("big", nil)
	defer w.Abort()
	piece := random(1<<20 + 7)
	for left := s.BigObject; left > 0; {
		n := min(left, int64(len(piece)))
		_, err := w.Write(piece[:n])
		s.must(err)
		left -= n
	}
	info, err := w.Commit()
	if err != nil || info.Size != s.BigObject {
		s.Fatalf("committed %d bytes, %v, want the size of the big object", info.Size, err)
	}
	o := s.open("big")
	got := make([]byte, len(piece))
	for at := int64(0); at < s.BigObject; at += int64(len(piece)) {
		n := min(s.BigObject-at, int64(len(piece)))
		if _, err := o.ReadAt(got[:n], at); err != nil && !errors.Is(err, io.EOF) {
			s.Fatal(err)
		}
		if !bytes.Equal(got[:n], piece[:n]) {
			s.Fatalf("the piece at %d differs, want the bytes that were written", at)
		}
	}
}

func testList(s *suite) {
	s.wantKeys("")
	all := []string{"a-b", "a.b/c", "a/b", "a/b-c/d", "a/c/d", "a/c/e", "a0", "b", "job-1/x", "job-10/x", "job-2/x"}
	for i, key := range slices.Backward(all) {
		s.put(key, random(i))
	}
	s.create("a/unfinished", random(9)) // never committed, so it must not be listed
	for prefix, want := range map[string][]string{
		"":       all,
		"a/":     {"a/b", "a/b-c/d", "a/c/d", "a/c/e"},
		"a/c/":   {"a/c/d", "a/c/e"},
		"a/b/":   {},
		"b/":     {},
		"job-1/": {"job-1/x"},
		"none/":  {},
		"a/b/c/": {},
	} {
		s.wantKeys(prefix, want...)
	}
	infos, err := s.List(s.Context(), "")
	s.must(err)
	for i, info := range infos {
		stat := s.stat(info.Key)
		if diff := cmp.Diff(stat, info); diff != "" || info.Size != int64(i) {
			s.Errorf("%s is listed with %d bytes, want the result of stat (-stat +list):\n%s", info.Key, info.Size, diff)
		}
	}
}

func testFolders(s *suite) {
	for _, key := range []string{"a/b/1", "a/b/2", "a/b0/1", "a/b-c/d/1", "a/c", "a/d/1", "ab/x/1"} {
		s.put(key, []byte("x"))
	}
	for _, tt := range []struct {
		prefix, after string
		limit         int
		want          []string
	}{
		{"a/", "", 10, []string{"b-c", "b", "b0", "d"}},
		{"a/", "", 2, []string{"b-c", "b"}},
		{"a/", "b-c", 2, []string{"b", "b0"}},
		{"a/", "b", 1, []string{"b0"}},
		{"a/", "bb", 10, []string{"d"}},
		{"a/", "d", 10, nil},
		{"none/", "", 10, nil},
		{"", "", 10, []string{"a", "ab"}},
		{"", "a", 10, []string{"ab"}},
	} {
		got, err := s.Folders(s.Context(), tt.prefix, tt.after, tt.limit)
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			s.Errorf("folders of %s after %q, %d of them: %v (-want +got):\n%s", tt.prefix, tt.after, tt.limit, err, diff)
		}
	}
	if _, err := s.Folders(s.Context(), "a", "", 1); err == nil {
		s.Error("Folders accepts a prefix without a slash, want an error")
	}
}

func testDelete(s *suite) {
	s.put("a/b", nil)
	s.put("a/c", []byte("c"))
	for range 2 {
		if err := s.Delete(s.Context(), "a/b"); err != nil {
			s.Errorf("delete: %v", err)
		}
	}
	for _, key := range []string{"a", "x/y/z", "a/c/d"} {
		if err := s.Delete(s.Context(), key); err != nil {
			s.Errorf("delete of %s, which is not an object: %v, want no error", key, err)
		}
	}
	s.wantMissing("a/b")
	s.wantContent("a/c", []byte("c"))
	s.put("a/b", []byte("again"))
	s.Bucket = s.Reopen(s)
	s.wantContent("a/b", []byte("again"))
}

func testDeletePrefix(s *suite) {
	for _, key := range []string{"jobs/1/in", "jobs/1/parts/a", "jobs/1/parts/b", "jobs/10/in", "jobs/1-x", "other"} {
		s.put(key, []byte(key))
	}
	for _, prefix := range []string{"jobs/1/", "jobs/1/", "none/", "other/"} {
		if err := s.DeletePrefix(s.Context(), prefix); err != nil {
			s.Errorf("delete prefix %s: %v", prefix, err)
		}
		s.wantKeys("", "jobs/1-x", "jobs/10/in", "other")
	}
	s.put("jobs/1/parts/a", []byte("again"))
	s.Bucket = s.Reopen(s)
	s.wantContent("jobs/1/parts/a", []byte("again"))
	s.wantMissing("jobs/1/parts/b")
}

// testDeletePrefixUnfinished deletes a prefix under open writers. Their Commit
// must fail, and nothing unfinished may stay under the prefix.
func testDeletePrefixUnfinished(s *suite) {
	s.put("j/1/done", nil)
	under := []blob.Writer{s.create("j/1/a", random(1<<20)), s.create("j/1/new/b", random(10))}
	beside := s.create("j/2/c", random(10))
	s.must(s.DeletePrefix(s.Context(), "j/1/"))
	if n := s.Leftovers(s); n > 1 {
		s.Errorf("%d unfinished objects are left, want at most the writer beside the prefix", n)
	}
	s.wantKeys("")
	for i, w := range under {
		if _, err := w.Commit(); err == nil {
			s.Errorf("writer %d commits an object after its prefix was deleted, want an error", i)
		}
		w.Abort()
	}
	if _, err := beside.Commit(); err != nil {
		s.Errorf("commit of an object outside the deleted prefix: %v, want no error", err)
	}
	s.wantKeys("", "j/2/c")
	s.wantNoLeftovers()
	s.put("j/1/a", []byte("again"))
	s.wantContent("j/1/a", []byte("again"))
}

// testETag replaces an object 200 times in quick succession, with content of equal
// size. Each version must have another ETag.
func testETag(s *suite) {
	seen := map[string]int{}
	for i := range 200 {
		info := s.put("k", fmt.Appendf(nil, "%04d", i))
		if before, ok := seen[info.ETag]; ok {
			s.Fatalf("versions %d and %d have the same ETag %s, want two ETags", before, i, info.ETag)
		}
		seen[info.ETag] = i
	}
}
