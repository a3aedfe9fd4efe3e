package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// file returns the n-th file of an account. It expires n hours after the start, or
// never if n is 0.
func (s *suite) file(account, purpose string, n int) store.File {
	f := store.File{
		ID: fmt.Sprintf("file-%04d", n), Account: account, Purpose: purpose, Name: "a name\x00 of \"any\" text", Size: int64(n),
		Created: s.start.Truncate(time.Second), Key: fmt.Sprintf("files/%04d", n),
	}
	if n > 0 {
		at := f.Created.Add(time.Duration(n) * time.Hour)
		f.Expires = &at
	}
	return f
}

func (s *suite) createFile(f store.File) {
	s.Helper()
	s.must(s.CreateFile(s.Context(), f))
}

// readPages reads a list with read, in pages of two ids, and returns all ids. It calls
// between after each page.
func (s *suite) readPages(ascending bool, read func(store.PageRequest) ([]string, bool, error), between func()) (ids []string) {
	s.Helper()
	page := store.PageRequest{Limit: 2, Ascending: ascending}
	for {
		found, more, err := read(page)
		if err != nil || len(found) > page.Limit || more && len(found) < page.Limit {
			s.Fatalf("a page has %d ids for a limit of %d, and more is %v: %v", len(found), page.Limit, more, err)
		}
		ids = append(ids, found...)
		if !more {
			return ids
		}
		page.After = found[len(found)-1]
		between()
	}
}

func testFiles(s *suite) {
	for n := range 5 {
		s.createFile(s.file("a", []string{"batch", "other"}[n%2], n))
	}
	s.createFile(s.file("a\x01", "batch", 8)) // an account name with a common prefix must not mix the lists
	s.createFile(s.file("b", "batch", 9))
	s.createFile(s.file("a", "batch", 4)) // a repeated call must change nothing
	changed := s.file("a", "batch", 4)
	changed.Size++
	s.wantError("another file of the same id", rowmill.ErrConflict)(s.CreateFile(s.Context(), changed))
	got := must.Get(s.GetFile(s.Context(), "file-0003"))(s)
	s.wantEqual("a file", s.file("a", "other", 3), got)
	list := func(account, purpose string) func(store.PageRequest) ([]string, bool, error) {
		return func(page store.PageRequest) (ids []string, more bool, err error) {
			files, more, err := s.ListFiles(s.Context(), account, purpose, page)
			for _, f := range files {
				ids = append(ids, f.ID[len("file-"):])
			}
			return ids, more, err
		}
	}
	whole := func(account, purpose string, ascending bool) []string {
		read := list(account, purpose)
		return s.readPages(ascending, func(p store.PageRequest) ([]string, bool, error) {
			if p.After != "" {
				p.After = "file-" + p.After
			}
			return read(p)
		}, func() {})
	}
	for _, tt := range []struct {
		account, purpose string
		want             []string
	}{
		{"a", "", []string{"0000", "0001", "0002", "0003", "0004"}},
		{"a", "batch", []string{"0000", "0002", "0004"}},
		{"a", "none", nil},
		{"b", "", []string{"0009"}},
		{"nobody", "", nil},
	} {
		if got := whole(tt.account, tt.purpose, true); !slices.Equal(got, tt.want) {
			s.Errorf("account %s has the files %v with purpose %q, want %v", tt.account, got, tt.purpose, tt.want)
		}
		slices.Reverse(tt.want)
		if got := whole(tt.account, tt.purpose, false); !slices.Equal(got, tt.want) {
			s.Errorf("account %s has, newest first, the files %v with purpose %q, want %v", tt.account, got, tt.purpose, tt.want)
		}
	}
	s.wantError("a page of nothing was given", errAny)(s.ListFiles(s.Context(), "a", "", store.PageRequest{}))
	expired := func(hours, limit int) (ids []string) {
		s.Helper()
		files := must.Get(s.ExpiredFiles(s.Context(), s.start.Add(time.Duration(hours)*time.Hour), limit))(s)
		for _, f := range files {
			ids = append(ids, f.ID)
		}
		return ids
	}
	if got := expired(3, 2); !slices.Equal(got, []string{"file-0001", "file-0002"}) {
		s.Errorf("expired files are %v, want file-0001 and file-0002", got)
	}
	for _, id := range []string{"file-0001", "file-0000"} {
		s.must(s.DeleteFile(s.Context(), id))
		s.wantError("deleted twice", rowmill.ErrNotFound)(s.DeleteFile(s.Context(), id))
		s.wantError("a deleted file", rowmill.ErrNotFound)(s.GetFile(s.Context(), id))
	}
	if got := expired(3, 9); !slices.Equal(got, []string{"file-0002", "file-0003"}) {
		s.Errorf("after file-0001 was deleted, expired files are %v, want file-0002 and file-0003", got)
	}
	if got := whole("a", "batch", true); !slices.Equal(got, []string{"0002", "0004"}) {
		s.Errorf("after two deletions the files are %v, want 0002 and 0004", got)
	}
	s.reopen()
	if got := whole("a", "", true); !slices.Equal(got, []string{"0002", "0003", "0004"}) {
		s.Errorf("after a restart the files are %v, want 0002, 0003 and 0004", got)
	}
	s.wantError("a file without an id was taken", errAny)(s.CreateFile(s.Context(), store.File{}))
}

// batch creates a batch of an account and returns its id.
func (s *suite) batch(account, dialect string) string {
	s.Helper()
	rec := s.newRecord(account)
	deadline := s.start.Add(time.Hour).Truncate(time.Second)
	rec.Spec.Raw = &rowmill.RawBatch{Dialect: dialect, Path: "/v1/p", InputFile: "file-1", Window: "1h", Deadline: &deadline, Metadata: map[string]string{"k": "v"}}
	stored, _, err := s.Create(s.Context(), rec, nil)
	must.Succeed(s, err)
	s.wantEqual("the stored batch", rec.Spec.Raw, stored.Spec.Raw)
	return stored.Job.ID
}

func testBatches(s *suite) {
	var want []string
	for range 5 {
		want = append(want, s.batch("a", rowmill.DialectOpenAI))
		s.batch("a", rowmill.DialectAnthropic)
		s.batch("b", rowmill.DialectOpenAI)
		s.create("a") // a job that is not a batch
	}
	slices.Sort(want)
	read := func(page store.PageRequest) (ids []string, more bool, err error) {
		batches, more, err := s.ListBatches(s.Context(), "a", rowmill.DialectOpenAI, page)
		for _, b := range batches {
			ids = append(ids, b.Job.ID)
		}
		return ids, more, err
	}
	later := slices.Clone(want)
	got := s.readPages(true, read, func() { later = append(later, s.batch("a", rowmill.DialectOpenAI)) })
	if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
		s.Errorf("the batches, oldest first, are %v, want %v", got, want)
	}
	slices.Sort(later)
	slices.Reverse(later)
	if got := s.readPages(false, read, func() { s.batch("a", rowmill.DialectOpenAI) }); !slices.Equal(got, later) {
		s.Errorf("the batches, newest first, are %v, want %v", got, later)
	}
	if ids, more, err := read(store.PageRequest{Limit: 100, After: want[0], Ascending: false}); len(ids) != 0 || more || err != nil {
		s.Errorf("before the first batch the list has %v, more is %v, %v; want nothing", ids, more, err)
	}
	session := s.session()
	f := s.claim(want[0], session)
	s.must(s.Update(s.Context(), f, func(r *store.Record) error { return nil }))
}
