package sources_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"go.uber.org/goleak"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/s3"
	"github.com/rowmill/rowmill/input/sources"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/s3test"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A lake is a place with a way to change its files.
type lake struct {
	sources.Place
	put    func(t testing.TB, path, content string)
	remove func(t testing.TB, path string)
}

func folderLake(t *testing.T) lake {
	dir := t.TempDir()
	return lake{
		Place: sources.NewFolder(dir, nil),
		put: func(t testing.TB, path, content string) {
			t.Helper()
			name := filepath.Join(dir, path)
			must.Succeed(t, os.MkdirAll(filepath.Dir(name), 0o700))
			must.Succeed(t, os.WriteFile(name, []byte(content), 0o600))
		},
		remove: func(t testing.TB, path string) { t.Helper(); must.Succeed(t, os.Remove(filepath.Join(dir, path))) },
	}
}

// credentialsFile writes a file with the keys of the server in the profile "lake".
func credentialsFile(t *testing.T, server *s3test.Server, secret string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "credentials")
	text := fmt.Sprintf("[default]\naws_access_key_id = nobody\naws_secret_access_key = none\n[lake]\naws_access_key_id = %s\naws_secret_access_key = %s\n", server.AccessKey, secret)
	must.Succeed(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func openS3(t *testing.T, config s3.SourceConfig) *s3.Source {
	t.Helper()
	place := must.Get(s3.NewSource(config))(t)
	t.Cleanup(func() { must.Succeed(t, place.Close()) })
	return place
}

func s3Lake(t *testing.T) lake {
	server := s3test.Start(t)
	client := must.Get(minio.New(strings.TrimPrefix(server.Endpoint, "http://"), &minio.Options{Creds: credentials.NewStaticV4(server.AccessKey, server.SecretKey, ""), Region: s3test.Region}))(t)
	return lake{
		Place: openS3(t, s3.SourceConfig{
			Endpoint: server.Endpoint, Region: s3test.Region, Bucket: server.Bucket, Prefix: "lake/of/all",
			Credentials: s3.FileCredentials, File: credentialsFile(t, server, server.SecretKey), Profile: "lake",
		}),
		put: func(t testing.TB, path, content string) {
			t.Helper()
			must.Get(client.PutObject(context.Background(), server.Bucket, "lake/of/all/"+path, strings.NewReader(content), int64(len(content)), minio.PutObjectOptions{}))(t)
		},
		remove: func(t testing.TB, path string) {
			t.Helper()
			must.Succeed(t, client.RemoveObject(context.Background(), server.Bucket, "lake/of/all/"+path, minio.RemoveObjectOptions{}))
		},
	}
}

// find returns the files of a pattern in the source "lake".
func find(t testing.TB, place sources.Place, pattern string, prefixes ...string) *sources.Files {
	t.Helper()
	return must.Get(sources.New([]sources.Source{{Name: "lake", Place: place, Prefixes: prefixes}}).Find("default", "lake:"+pattern))(t)
}

func paths(files []sources.File) (all []string) {
	for _, f := range files {
		all = append(all, f.Path)
	}
	return all
}

// fails verifies that err is a failure of a job with this text in its message.
func fails(t testing.TB, err error, text string) {
	t.Helper()
	var failure *rowmill.Failure
	if !errors.As(err, &failure) || failure.Code != rowmill.CodeDownloadFailed || !strings.Contains(failure.Message, text) {
		t.Errorf("got %v, want a failure with %q", err, text)
	}
}

// TestPlaces is the suite for all places.
func TestPlaces(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) lake{"folder": folderLake, "S3": s3Lake} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := open(t)
			t.Run("list", func(t *testing.T) { testList(t, l) })
			t.Run("read", func(t *testing.T) { testRead(t, l) })
			t.Run("change", func(t *testing.T) { testChange(t, l) })
			t.Run("write", func(t *testing.T) { testWrite(t, l) })
		})
	}
}

// testWrite writes files: a reader sees the whole old or the whole new file, and nothing of a write
// that failed.
func testWrite(t *testing.T, l lake) {
	sink := must.Get(sources.New([]sources.Source{{Name: "lake", Place: l, Writable: true}}).FindSink("default", "lake:out//answers"))(t)
	read := func() (text string) {
		t.Helper()
		files, err := find(t, l, "out/**").List(t.Context())
		if err != nil {
			return ""
		}
		for _, file := range files {
			o := must.Get(find(t, l, "out/**").Open(t.Context(), file))(t)
			text += file.Path + "=" + string(must.Get(io.ReadAll(blob.NewReader(o)))(t)) + " "
			o.Close()
		}
		return text
	}
	write := func(text string, end error) error {
		return sink.Write(t.Context(), "day=1/a.parquet", func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			before := read()
			if strings.Contains(before, text) {
				t.Errorf("a reader sees %q during the write of %q", before, text)
			}
			return errors.Join(err, end)
		})
	}
	failed := errors.New("failed")
	if err := write("none", failed); !errors.Is(err, failed) || read() != "" {
		t.Errorf("after a write that failed with %v there is %q", err, read())
	}
	must.Succeed(t, write("first", nil))
	if got, want := read(), "out/answers/day=1/a.parquet=first "; got != want {
		t.Errorf("there is %q, want %q", got, want)
	}
	if err := write("second", failed); !errors.Is(err, failed) {
		t.Errorf("a write that fails: %v", err)
	}
	if got, want := read(), "out/answers/day=1/a.parquet=first "; got != want {
		t.Errorf("after a write that failed there is %q, want %q", got, want)
	}
	must.Succeed(t, write("third", nil))
	if got, want := read(), "out/answers/day=1/a.parquet=third "; got != want {
		t.Errorf("there is %q, want %q", got, want)
	}
}

func testList(t *testing.T, l lake) {
	for _, file := range []string{
		"reviews/day=2026-11-02/b.csv", "reviews/day=2026-11-01/a.csv", "reviews/day=2026-10-31/a.csv", "reviews/day=2026-11-01/_SUCCESS", "reviews/top.csv",
		"reviews/_temporary/a.csv", "reviews/day=2026-11-01/.a.csv.crc", "city=New%20York/ü ö+&.csv", "other/a.csv",
	} {
		l.put(t, file, "x")
	}
	l.put(t, "reviews/empty.csv", "")
	for pattern, want := range map[string][]string{
		"reviews/day=2026-11-*/*.csv": {"reviews/day=2026-11-01/a.csv", "reviews/day=2026-11-02/b.csv"},
		"reviews/**":                  {"reviews/day=2026-10-31/a.csv", "reviews/day=2026-11-01/a.csv", "reviews/day=2026-11-02/b.csv", "reviews/top.csv"},
		"reviews/**/a.csv":            {"reviews/day=2026-10-31/a.csv", "reviews/day=2026-11-01/a.csv"},
		"reviews//./top.csv":          {"reviews/top.csv"},
		"reviews/t?p.[a-c]sv":         {"reviews/top.csv"},
		"**/_SUCCESS":                 {"reviews/day=2026-11-01/_SUCCESS"},
		"*=*/*.csv":                   {"city=New%20York/ü ö+&.csv"},
	} {
		files, err := find(t, l, pattern).List(t.Context())
		if got := paths(files); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %v, want %q", pattern, got, err, want)
		}
	}
	for _, pattern := range []string{"reviews", "reviews/empty.csv", "missing/**", "reviews/*/*/*"} {
		_, err := find(t, l, pattern).List(t.Context())
		fails(t, err, "No file with content matches lake:"+pattern)
	}
	all := func(string) bool { return true }
	if found, err := l.List(t.Context(), "reviews/", all, func(found []blob.ObjectInfo) bool { return len(found) <= 2 }); err != nil || len(found) != 3 {
		t.Errorf("a list of more than 2 files: %v, %v", found, err)
	}
	for _, file := range []string{"order/a/x", "order/a-b/x", "order/a0", "order/a.x"} {
		l.put(t, file, "x")
	}
	var seen []string
	must.Get(l.List(t.Context(), "order/", all, func(found []blob.ObjectInfo) bool { seen = append(seen, found[len(found)-1].Key); return true }))(t)
	if want := []string{"order/a-b/x", "order/a.x", "order/a/x", "order/a0"}; !slices.Equal(seen, want) {
		t.Errorf("found %q, want %q: the order of the paths", seen, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := find(t, l, "reviews/**").List(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
}

// listedPlace lists these files.
type listedPlace struct {
	sources.Place
	files []blob.ObjectInfo
}

func (p *listedPlace) List(_ context.Context, _ string, _ func(string) bool, more func([]blob.ObjectInfo) bool) (found []blob.ObjectInfo, err error) {
	for _, file := range p.files {
		if found = append(found, file); !more(found) {
			break
		}
	}
	return found, nil
}

// TestListEarly reads the first files before the others are listed, unless the place does not sort.
func TestListEarly(t *testing.T) {
	t.Parallel()
	p := &listedPlace{}
	for n := range sources.FirstFiles + 10 {
		p.files = append(p.files, blob.ObjectInfo{Key: fmt.Sprintf("%05d", n), Size: int64(n % 2), ETag: "old"})
	}
	f := find(t, p, "*")
	var first []sources.File
	calls := 0
	begun := func(files []sources.File) { first = files; calls++ }
	list := must.Get(f.ListEarly(t.Context(), nil, begun))(t)
	if calls != 1 || len(first) != sources.FirstFiles/2 || len(list) != len(first)+5 || !slices.Equal(list[:len(first)], first) {
		t.Errorf("%d calls, %d first files of %d", calls, len(first), len(list))
	}

	// The second listing has other versions, and a file before the first one.
	for i := range p.files {
		p.files[i].ETag = "new"
	}
	p.files[0] = blob.ObjectInfo{Key: "00000", Size: 1, ETag: "new"}
	again := must.Get(f.ListEarly(t.Context(), first, nil))(t)
	if n := len(first); !slices.Equal(again[:n], first) || again[n].Path != "00000" || len(again) != len(list)+1 || again[n+1].ETag != "new" {
		t.Errorf("the first files are not kept: %v", again[n-1:n+2])
	}

	p.files = p.files[:sources.FirstFiles-1]
	must.Get(f.ListEarly(t.Context(), nil, begun))(t)
	p.files = append(p.files, blob.ObjectInfo{Key: "0", Size: 1}, blob.ObjectInfo{Key: "zz", Size: 1})
	list = must.Get(f.ListEarly(t.Context(), nil, begun))(t)
	if calls != 1 || list[0].Path != "0" || !slices.IsSortedFunc(list, func(a, b sources.File) int { return cmp.Compare(a.Path, b.Path) }) {
		t.Errorf("%d calls for few files, and for files without order: %v", calls-1, list[:2])
	}
}

func testRead(t *testing.T, l lake) {
	long := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	l.put(t, "read/long", string(long))
	f := find(t, l, "read/long")
	files := must.Get(f.List(t.Context()))(t)
	o := must.Get(f.Open(t.Context(), files[0]))(t)
	defer func() { must.Succeed(t, o.Close()) }()
	if got := must.Get(io.ReadAll(blob.NewReader(o)))(t); !bytes.Equal(got, long) {
		t.Errorf("read %d bytes, want %d", len(got), len(long))
	}
	tail := make([]byte, 32)
	if n, err := o.ReadAt(tail, int64(len(long)-16)); n != 16 || !errors.Is(err, io.EOF) || string(tail[:n]) != "0123456789abcdef" {
		t.Errorf("at the end: read %d bytes, %v", n, err)
	}
}

func testChange(t *testing.T, l lake) {
	const text = "the file lake:change/a has changed or was removed"
	for name, change := range map[string]func(){
		"replaced": func() { l.put(t, "change/a", strings.Repeat("b", 1<<20)) },
		"removed":  func() { l.remove(t, "change/a") },
	} {
		l.put(t, "change/a", strings.Repeat("a", 1<<20))
		f := find(t, l, "change/a")
		file := must.Get(f.List(t.Context()))(t)[0]
		change()
		o, err := f.Open(t.Context(), file)
		if err == nil { // Open may do nothing
			_, err = o.ReadAt(make([]byte, 10), 0)
			must.Succeed(t, o.Close())
		}
		fails(t, err, strings.ToUpper(text[:1])+text[1:])
		t.Log(name)
	}
	l.put(t, "change/a", strings.Repeat("a", 1<<20))
	f := find(t, l, "change/a")
	o := must.Get(f.Open(t.Context(), must.Get(f.List(t.Context()))(t)[0]))(t)
	must.Get(o.ReadAt(make([]byte, 10), 0))(t)
	l.put(t, "change/a", strings.Repeat("c", 1<<20))
	_, err := o.ReadAt(make([]byte, 10), 900_000)
	fails(t, err, "lake:change/a has changed")
	must.Succeed(t, o.Close())
}

// TestFolder_Links checks that no link leads out of the place or out of an allowed folder.
func TestFolder_Links(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string) {
		must.Succeed(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	}
	link := func(to, name string) { must.Succeed(t, os.Symlink(to, filepath.Join(dir, name))) }
	write("outside.csv")
	write("lake/private/p.csv")
	write("lake/public/a.csv")
	link("a.csv", "lake/public/inside.csv")
	link("../../outside.csv", "lake/public/out.csv")
	link(filepath.Join(dir, "outside.csv"), "lake/public/absolute.csv")
	link("../private/p.csv", "lake/public/private.csv")
	link("../private", "lake/public/folder")
	link("..", "lake/up")
	place := filepath.Join(dir, "lake")
	public := func(pattern string) ([]string, error) {
		f := find(t, sources.NewFolder(place, []string{"public/"}), pattern, "public/")
		files, err := f.List(t.Context())
		for _, file := range files {
			must.Succeed(t, must.Get(f.Open(t.Context(), file))(t).Close())
		}
		return paths(files), err
	}
	if got, err := public("public/ins*.csv"); err != nil || !slices.Equal(got, []string{"public/inside.csv"}) {
		t.Errorf("a link to a file beside it: %q, %v", got, err)
	}
	for _, pattern := range []string{"public/out.csv", "public/absolute.csv", "public/private.csv", "public/folder/p.csv", "public/folder/*"} {
		_, err := public(pattern)
		fails(t, err, "cannot be listed")
		if strings.Contains(fmt.Sprintf("%+v", err), dir) {
			t.Errorf("%s: the error names a directory of the server: %v", pattern, err)
		}
	}
	_, err := find(t, sources.NewFolder(place, nil), "up/outside.csv").List(t.Context())
	fails(t, err, "cannot be listed")
	if _, err := sources.NewFolder(place, []string{"public/"}).Open(t.Context(), blob.ObjectInfo{Key: "private/p.csv"}); err == nil {
		t.Error("a file outside of the allowed folder was opened")
	}
}

// TestFolder_SameSize changes a file without a change of its size.
func TestFolder_SameSize(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "a.csv")
	must.Succeed(t, os.WriteFile(name, []byte("aaaa"), 0o600))
	f := find(t, sources.NewFolder(dir, nil), "a.csv")
	file := must.Get(f.List(t.Context()))(t)[0]
	must.Succeed(t, os.Chtimes(name, time.Time{}, time.Now().Add(time.Second)))
	_, err := f.Open(t.Context(), file)
	fails(t, err, "has changed")
}

// TestS3_Errors checks that errors say which setting is wrong, without secrets, and without names that
// clients need not know.
func TestS3_Errors(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	wrong, right := credentialsFile(t, server, "a-wrong-secret"), credentialsFile(t, server, server.SecretKey)
	for name, c := range map[string]struct {
		config s3.SourceConfig
		want   string
	}{
		"wrong secret":    {s3.SourceConfig{File: wrong, Profile: "lake"}, "code SignatureDoesNotMatch"},
		"no such profile": {s3.SourceConfig{File: wrong, Profile: "pond"}, "the credentials of the source cannot be read"},
		"no such file":    {s3.SourceConfig{File: wrong + "-missing"}, "the credentials of the source cannot be read"},
		"no such bucket":  {s3.SourceConfig{File: right, Profile: "lake", Bucket: "no-such-bucket"}, "code NoSuchBucket"},
	} {
		var log bytes.Buffer
		c.config.Endpoint, c.config.Region, c.config.Credentials, c.config.Logger = server.Endpoint, s3test.Region, s3.FileCredentials, slog.New(slog.NewTextHandler(&log, nil))
		c.config.Bucket = cmp.Or(c.config.Bucket, server.Bucket)
		_, err := find(t, openS3(t, c.config), "a/**").List(t.Context())
		fails(t, err, "check the setting sources.lake")
		var failure *rowmill.Failure
		if !errors.As(err, &failure) || !strings.Contains(failure.AdditionalContext, c.want) {
			t.Errorf("%s: got %+v, want %q", name, failure, c.want)
			continue
		}
		for _, hidden := range []string{"a-wrong-secret", wrong, server.Endpoint, "no-such-bucket"} {
			if strings.Contains(failure.AdditionalContext, hidden) {
				t.Errorf("%s: %q has %s", name, failure.AdditionalContext, hidden)
			}
		}
		if !strings.Contains(log.String(), "source") || strings.Contains(log.String(), "a-wrong-secret") {
			t.Errorf("%s: the log is %q", name, log.String())
		}
	}
}

// TestFind checks who may read what.
func TestFind(t *testing.T) {
	t.Parallel()
	all := sources.New([]sources.Source{
		{Name: "lake"}, {Name: "archive", Accounts: []string{"acme"}, Prefixes: []string{"public/", "reviews/2026/"}},
	})
	for account, want := range map[string]string{"acme": "archive lake", "default": "lake"} {
		if got := strings.Join(all.Names(account), " "); got != want {
			t.Errorf("%s may read %q, want %q", account, got, want)
		}
	}
	if names := (*sources.Sources)(nil).Names("acme"); names != nil {
		t.Errorf("no sources have the names %q", names)
	}
	for _, c := range []struct{ account, inputs, want string }{
		{"acme", "lake:a/*.csv", ""},
		{"acme", "archive:public/*.csv", ""},
		{"acme", "archive:public//./x/*.csv", ""},
		{"acme", "archive:reviews/2026/**", ""},
		{"default", "archive:public/*.csv", "not found"},
		{"acme", "pond:public/*.csv", "not found"},
		{"acme", "lake://a.csv", "not found"},
		{"acme", "https://lake/a.csv", "not found"},
		{"acme", "archive:private/a.csv", "must begin with a folder that may be read: public/, reviews/2026/"},
		{"acme", "archive:publi*/a.csv", "must begin with a folder"},
		{"acme", "archive:**", "must begin with a folder"},
		{"acme", "archive:public", "must begin with a folder"},
		{"acme", "archive:reviews/202?/a", "must begin with a folder"},
		{"acme", "archive:public/../private/a.csv", "the folder .."},
		{"acme", `archive:public/\.\./private/a.csv`, "the folder .."},
		{"acme", "lake:/a.csv", "slash"},
		{"acme", "lake:", "names no file"},
		{"acme", "lake:a/", "names no file"},
		{"acme", "lake:.", "names no file"},
		{"acme", "lake:a[", "not complete"},
		{"acme", "lake:" + strings.Repeat("a", 1025), "1025 bytes"},
	} {
		f, err := all.Find(c.account, c.inputs)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.inputs, err)
		case c.want == "":
			if again, err := all.Find(c.account, f.String()); err != nil || again.String() != f.String() {
				t.Errorf("%s is %s, and that is %v, %v", c.inputs, f, again, err)
			}
		case err == nil || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: got %v, want %q", c.inputs, err, c.want)
		}
	}
}

func TestPartitions(t *testing.T) {
	t.Parallel()
	for path, want := range map[string][]sources.Partition{
		"a.csv":     nil,
		"k=v.csv":   nil,
		"x/=v/a":    nil,
		"day=1/a":   {{Key: "day", Value: "1"}},
		"a=1/b=/c":  {{Key: "a", Value: "1"}, {Key: "b"}},
		"a=x=y/c":   {{Key: "a", Value: "x=y"}},
		"a=1/a=2/c": {{Key: "a", Value: "2"}},
		"city=New%20York/n=__HIVE_DEFAULT_PARTITION__/p=50%/c": {{Key: "city", Value: "New York"}, {Key: "n"}, {Key: "p", Value: "50%"}},
	} {
		if got := (sources.File{Path: path}).Partitions(); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{"lake": true, "my-lake_2": true, "c": false, "Lake": false, "2lake": false, "s3": false, "job": false, "https": false, "a.b": false, "": false} {
		if err := sources.CheckName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	for folder, want := range map[string]string{"a": "a/", "a/b/": "a/b/", "a//./b": "a/b/", "/a": "", "..": "", "a/../b": "", "": "", ".": ""} {
		if got, err := sources.CleanPrefix(folder); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", folder, got, err, want)
		}
	}
}

// TestFindSink checks who may write where.
func TestFindSink(t *testing.T) {
	t.Parallel()
	all := sources.New([]sources.Source{
		{Name: "lake", Writable: true, Prefixes: []string{"answers/"}},
		{Name: "pond", Accounts: []string{"red"}, Writable: true, WriteOnly: true},
		{Name: "sea"},
	})
	for text, want := range map[string]string{
		"lake:answers/": "lake:answers/", "lake:answers/./new//x": "lake:answers/new/x/", "lake:": "must begin with a folder", "lake:other/": "must begin with a folder",
		"lake:answers/../x": "without ..", "lake:/answers/": "without a slash", "sea:x/": "not found", "ocean:x/": "not found", "pond:x/": "not found", "answers/": "not found", "s3://lake/x": "not found",
		"lake:answers/" + strings.Repeat("x", 1024): "at most 1024",
	} {
		sink, err := all.FindSink("blue", text)
		if err != nil && !strings.Contains(err.Error(), want) || err == nil && sink.String() != want {
			t.Errorf("%s: got %v, %v, want %q", text, sink, err, want)
		}
	}
	if sink, err := all.FindSink("red", "pond:"); err != nil || sink.String() != "pond:" {
		t.Errorf("got %v, %v", sink, err)
	}
	if got := all.Names("red"); !slices.Equal(got, []string{"lake", "sea"}) {
		t.Errorf("red may read %v", got)
	}
	if got := all.SinkNames("red"); !slices.Equal(got, []string{"lake", "pond"}) {
		t.Errorf("red may write to %v", got)
	}
}

// A folder that cannot be written fails the job, and the error names the file and the remedy.
func TestSinkThatIsReadOnly(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(name, nil, 0o600))
	sink := must.Get(sources.New([]sources.Source{{Name: "lake", Place: sources.NewFolder(name, nil), Writable: true}}).FindSink("default", "lake:x"))(t)
	err := sink.Write(t.Context(), "a.parquet", func(io.Writer) error { return nil })
	var failure *rowmill.Failure
	if !errors.As(err, &failure) || failure.Code != rowmill.CodeOutputFailed || !strings.Contains(failure.Message, "lake:x/a.parquet cannot be written") || strings.Contains(failure.AdditionalContext, name) {
		t.Errorf("got %v: %+v", err, failure)
	}
}
