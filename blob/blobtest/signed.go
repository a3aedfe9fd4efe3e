package blobtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// answer is an HTTP response whose whole body was read.
type answer struct {
	status int
	header http.Header
	length int64 // Content-Length, -1 for none
	body   []byte
}

// sign returns a signed URL. An error ends the test.
func (s *suite) sign(method, key string, expires time.Duration) string {
	s.Helper()
	u, err := s.SignURL(s.Context(), method, key, "file.bin", expires)
	if err != nil {
		s.Fatalf("sign: %v", err)
	}
	return u
}

// fetch sends a request without following redirects and without requesting
// compression.
func (s *suite) fetch(method, u string, headers ...string) answer {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, u, nil)
	s.must(err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(r)
	if err != nil {
		s.Fatalf("%s: %v", method, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.Fatalf("%s: read body: %v", method, err)
	}
	return answer{response.StatusCode, response.Header, response.ContentLength, body}
}

// wantAnswer checks the status and the body of an answer. label names the request in the
// error text.
func (s *suite) wantAnswer(label string, a answer, status int, body []byte) {
	s.Helper()
	if a.status != status || !bytes.Equal(a.body, body) {
		s.Errorf("%s: status %d with %d bytes %.60q, want %d with %d bytes %.60q", label, a.status, len(a.body), a.body, status, len(body), body)
	}
}

// wantRefusal checks the status of an error answer. The body must not contain the
// object.
func (s *suite) wantRefusal(label string, a answer, status int, content []byte) {
	s.Helper()
	if a.status != status {
		s.Errorf("%s: status %d %.200q, want %d", label, a.status, a.body, status)
	}
	if len(content) > 0 && bytes.Contains(a.body, content) {
		s.Errorf("%s: the refusal contains the object, want an error message only", label)
	}
}

func testSignedGet(s *suite) {
	content := random(300_000)
	info := s.put("results/a~b=1.parquet", content)
	a := s.fetch("GET", s.sign("GET", info.Key, time.Minute), "Accept-Encoding", "gzip, br")
	s.wantAnswer("GET", a, http.StatusOK, content)
	s.wantHeaders(a, info.ETag, int64(len(content)))

	empty := s.put("results/empty", nil)
	a = s.fetch("GET", s.sign("GET", empty.Key, time.Minute))
	s.wantAnswer("GET of an empty object", a, http.StatusOK, nil)

	for contentType, key := range map[string]string{
		"application/vnd.apache.parquet": "t/x.parquet", "application/zip": "t/x.zip",
		"application/json": "t/x.json", "text/csv; charset=utf-8": "t/plain", "application/x-ours": "t/y.json",
	} {
		w, err := s.Create(s.Context(), key, contentType)
		s.must(err)
		s.commit(w)
		if got := s.fetch("GET", s.sign("GET", key, time.Minute)).header.Get("Content-Type"); got != contentType {
			s.Errorf("%s has the content type %q, want %q", key, got, contentType)
		}
	}
	// A replacement has its own content type. The files that store content types must
	// not be listed as objects.
	s.put("t/y.json", nil)
	if got := s.fetch("GET", s.sign("GET", "t/y.json", time.Minute)).header.Get("Content-Type"); got != "application/octet-stream" {
		s.Errorf("after the replacement the content type is %q, want application/octet-stream", got)
	}
	if got := s.keys("t/"); len(got) != 5 {
		s.Errorf("the list has the keys %v, want 5", got)
	}
}

// wantHeaders checks the headers of a whole object.
func (s *suite) wantHeaders(a answer, etag string, size int64) {
	s.Helper()
	if a.length != size {
		s.Errorf("Content-Length is %d, want %d", a.length, size)
	}
	for name, want := range map[string]string{
		"ETag": etag, "Accept-Ranges": "bytes", "Content-Encoding": "", "Transfer-Encoding": "", "Location": "",
		"Content-Length": strconv.FormatInt(size, 10),
	} {
		if got := a.header.Get(name); got != want {
			s.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func testSignedHead(s *suite) {
	info := s.put("k", random(12345))
	a := s.fetch("HEAD", s.sign("HEAD", "k", time.Minute))
	s.wantAnswer("HEAD", a, http.StatusOK, nil)
	s.wantHeaders(a, info.ETag, 12345)
	s.Bucket = s.Reopen(s)
	if got := s.fetch("HEAD", s.sign("HEAD", "k", time.Minute)).header.Get("ETag"); got != info.ETag {
		s.Errorf("after a restart the ETag is %s, want %s", got, info.ETag)
	}
	s.put("k", random(12346)[1:])
	if got := s.fetch("HEAD", s.sign("HEAD", "k", time.Minute)).header.Get("ETag"); got == info.ETag {
		s.Error("an object with other content has the same ETag, want another")
	}
}

// testSignedMethods sends requests with another method than the URL was signed for, and
// with methods that cannot be signed.
func testSignedMethods(s *suite) {
	content := random(1000)
	s.put("k", content)
	get, head := s.sign("GET", "k", time.Minute), s.sign("HEAD", "k", time.Minute)
	s.wantRefusal("GET on a HEAD URL", s.fetch("GET", head), http.StatusForbidden, content)
	s.wantRefusal("HEAD on a GET URL", s.fetch("HEAD", get), http.StatusForbidden, content)
	for _, method := range []string{"PUT", "POST", "DELETE"} {
		if a := s.fetch(method, get); a.status != http.StatusMethodNotAllowed && a.status != http.StatusForbidden {
			s.Errorf("%s on a GET URL: status %d, want 405 or 403", method, a.status)
		}
	}
	s.wantContent("k", content)
}

func testSignedRange(s *suite) {
	content := random(10_000)
	info := s.put("k", content)
	u := s.sign("GET", "k", time.Minute)
	for spec, r := range map[string][2]int{ // from, to
		"bytes=0-0":         {0, 1},
		"bytes=0-9999":      {0, 10_000},
		"bytes=100-199":     {100, 200},
		"bytes=9000-":       {9000, 10_000},
		"bytes=9990-999999": {9990, 10_000},
		"bytes=-1":          {9999, 10_000},
		"bytes=-500":        {9500, 10_000},
		"bytes=-99999":      {0, 10_000},
	} {
		a := s.fetch("GET", u, "Range", spec)
		want := content[r[0]:r[1]]
		s.wantAnswer(spec, a, http.StatusPartialContent, want)
		if got, want := a.header.Get("Content-Range"), fmt.Sprintf("bytes %d-%d/10000", r[0], r[1]-1); got != want {
			s.Errorf("%s: Content-Range is %q, want %q", spec, got, want)
		}
		if a.header.Get("ETag") != info.ETag || a.length != int64(len(want)) {
			s.Errorf("%s: ETag %s, Content-Length %d, want the values of the range", spec, a.header.Get("ETag"), a.length)
		}
	}
	for _, spec := range []string{"bytes=10000-", "bytes=20000-30000"} {
		a := s.fetch("GET", u, "Range", spec)
		s.wantRefusal(spec, a, http.StatusRequestedRangeNotSatisfiable, nil)
		if got := a.header.Get("Content-Range"); got != "bytes */10000" && (got != "" || !s.Foreign) {
			s.Errorf("%s: Content-Range is %q, want bytes */10000", spec, got)
		}
	}
	// A client downloads the object in pieces.
	var whole []byte
	for at := 0; at < len(content); at += 777 {
		whole = append(whole, s.fetch("GET", u, "Range", fmt.Sprintf("bytes=%d-%d", at, at+776), "If-Range", info.ETag).body...)
	}
	if !bytes.Equal(whole, content) {
		s.Error("the ranges together differ from the object, want the same bytes")
	}
}

func testSignedConditions(s *suite) {
	content := random(1000)
	old := s.put("k", random(1001)[1:])
	info := s.put("k", content)
	u := s.sign("GET", "k", time.Minute)
	s.wantAnswer("If-Range that holds", s.fetch("GET", u, "Range", "bytes=0-9", "If-Range", info.ETag), http.StatusPartialContent, content[:10])
	if !s.Foreign {
		s.wantAnswer("If-Range of an older version", s.fetch("GET", u, "Range", "bytes=0-9", "If-Range", old.ETag), http.StatusOK, content)
		s.wantAnswer("If-Range of a weak tag", s.fetch("GET", u, "Range", "bytes=0-9", "If-Range", "W/"+info.ETag), http.StatusOK, content)
	}
	s.wantAnswer("If-None-Match that holds", s.fetch("GET", u, "If-None-Match", info.ETag), http.StatusNotModified, nil)
	s.wantAnswer("If-None-Match of an older version", s.fetch("GET", u, "If-None-Match", old.ETag), http.StatusOK, content)
	s.wantAnswer("If-Match that holds", s.fetch("GET", u, "If-Match", info.ETag), http.StatusOK, content)
	s.wantRefusal("If-Match of an older version", s.fetch("GET", u, "If-Match", old.ETag), http.StatusPreconditionFailed, content)
}

func testSignedExpiry(s *suite) {
	content := random(1000)
	s.put("k", content)
	const week = 604800 * time.Second
	if s.Advance == nil {
		s.waitForExpiry(content)
		return
	}
	short, long := s.sign("GET", "k", time.Second), s.sign("GET", "k", week)
	head := s.sign("HEAD", "k", time.Minute)
	s.wantAnswer("a fresh URL of a second", s.fetch("GET", short), http.StatusOK, content)
	s.Advance(3 * time.Second)
	s.wantRefusal("a URL of a second after three", s.fetch("GET", short), http.StatusForbidden, content)
	if got := s.fetch("HEAD", head).status; got != http.StatusOK {
		s.Errorf("a URL of a minute after three seconds: status %d, want 200", got)
	}
	s.Advance(week - 10*time.Second)
	s.wantAnswer("a URL of a week just before its end", s.fetch("GET", long), http.StatusOK, content)
	s.wantRefusal("a HEAD URL of a minute after a week", s.fetch("HEAD", head), http.StatusForbidden, nil)
	s.Advance(20 * time.Second)
	s.wantRefusal("a URL of a week after its end", s.fetch("GET", long), http.StatusForbidden, content)
}

// waitForExpiry waits in real time until a URL expires.
func (s *suite) waitForExpiry(content []byte) {
	s.Helper()
	long, short := s.sign("GET", "k", time.Minute), s.sign("GET", "k", 2*time.Second)
	if a := s.fetch("GET", short); a.status != http.StatusOK {
		s.Errorf("a fresh URL of two seconds: status %d, want 200", a.status)
	}
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	deadline := time.After(time.Minute)
	for {
		a := s.fetch("GET", short)
		if a.status != http.StatusOK {
			s.wantRefusal("a URL of two seconds at its end", a, http.StatusForbidden, content)
			break
		}
		select {
		case <-poll.C:
		case <-deadline:
			s.Fatal("a URL of two seconds still works after a minute, want a refusal")
		}
	}
	s.wantAnswer("a URL of a minute meanwhile", s.fetch("GET", long), http.StatusOK, content)
}

// testSignedTampering changes each part of a signed URL. The server must refuse every
// changed URL.
func testSignedTampering(s *suite) {
	content := random(1000)
	s.put("a/k", content)
	s.put("a/l", content)
	good := s.sign("GET", "a/k", time.Minute)
	other := s.sign("GET", "a/l", time.Minute)
	parsed, err := url.Parse(good)
	s.must(err)
	otherURL, err := url.Parse(other)
	s.must(err)
	tampered := map[string]string{
		"no query":           strings.Split(good, "?")[0],
		"another object":     strings.Replace(good, "a/k?", "a/l?", 1),
		"another's query":    strings.Split(good, "?")[0] + "?" + otherURL.RawQuery,
		"a longer path":      strings.Replace(good, "a/k?", "a/k/?", 1),
		"a path that climbs": strings.Replace(good, "a/k?", "a/../a/k?", 1),
	}
	for name, values := range parsed.Query() {
		without, changed, longer := parsed.Query(), parsed.Query(), parsed.Query()
		without.Del(name)
		longer.Set(name, values[0]+"0")
		tampered["without "+name] = strings.Split(good, "?")[0] + "?" + without.Encode()
		tampered["longer "+name] = strings.Split(good, "?")[0] + "?" + longer.Encode()
		if values[0] != "" {
			flipped := []byte(values[0])
			i := len(flipped) / 2
			if flipped[i] == '1' {
				flipped[i] = '2'
			} else {
				flipped[i] = '1'
			}
			changed.Set(name, string(flipped))
			tampered["changed "+name] = strings.Split(good, "?")[0] + "?" + changed.Encode()
		}
	}
	for name, u := range tampered {
		a := s.fetch("GET", u)
		if a.status == http.StatusOK || a.status/100 == 3 {
			s.Errorf("%s: status %d, want a refusal", name, a.status)
		}
		want := http.StatusForbidden
		if s.Foreign && a.status == http.StatusBadRequest {
			want = a.status
		}
		s.wantRefusal(name, a, want, content)
	}
	s.wantAnswer("the URL itself", s.fetch("GET", good), http.StatusOK, content)
}

func testSignedAuthorization(s *suite) {
	if s.Foreign {
		s.Skip("servers differ: Amazon's refuses two kinds of authorization in one request, others check only the signature")
	}
	content := random(1000)
	s.put("k", content)
	for _, value := range []string{"Key rm_secret", "Bearer x", ""} {
		a := s.fetch("GET", s.sign("GET", "k", time.Minute), "Authorization", value)
		s.wantRefusal("GET with Authorization "+value, a, http.StatusBadRequest, content)
		if value != "" && bytes.Contains(a.body, []byte(value)) {
			s.Error("the refusal contains the credential of the request, want no secret")
		}
		s.wantRefusal("HEAD with Authorization "+value, s.fetch("HEAD", s.sign("HEAD", "k", time.Minute), "Authorization", value), http.StatusBadRequest, nil)
	}
}

func testSignedMissing(s *suite) {
	s.put("a/k", []byte("x"))
	u, head := s.sign("GET", "a/k", time.Minute), s.sign("HEAD", "a/k", time.Minute)
	s.must(s.Delete(s.Context(), "a/k"))
	s.wantRefusal("GET of a deleted object", s.fetch("GET", u), http.StatusNotFound, nil)
	s.wantRefusal("HEAD of a deleted object", s.fetch("HEAD", head), http.StatusNotFound, nil)
	s.wantRefusal("GET of a folder", s.fetch("GET", s.sign("GET", "a", time.Minute)), http.StatusNotFound, nil)
}

func testSignedFilename(s *suite) {
	s.put("k", nil)
	for name, saved := range map[string]string{
		"service-results~job-1~inputs=0~logprobs=1.parquet": "service-results~job-1~inputs=0~logprobs=1.parquet",
		`a "quoted" \ name; x=y.zip`:                        `a "quoted" _ name; x=y.zip`,
		"späte größe.csv":                                   "späte größe.csv",
		"結果.json":                                           "結果.json",
	} {
		u, err := s.SignURL(s.Context(), "GET", "k", name, time.Minute)
		s.must(err)
		disposition := s.fetch("GET", u).header.Get("Content-Disposition")
		kind, params, err := mime.ParseMediaType(disposition)
		if err != nil || kind != "attachment" || params["filename"] != saved {
			s.Errorf("Content-Disposition %q names %q, %v; want %q", disposition, params["filename"], err, saved)
		}
	}
}

func testSignRefuses(s *suite) {
	s.put("k", nil)
	for _, expires := range []time.Duration{0, -time.Second, time.Second - 1, 604800*time.Second + 1, 1 << 62} {
		if u, err := s.SignURL(s.Context(), "GET", "k", "f", expires); err == nil || u != "" {
			s.Errorf("SignURL accepts the lifetime %v, want an error", expires)
		}
	}
	for _, method := range []string{"", "get", "PUT", "DELETE"} {
		if _, err := s.SignURL(s.Context(), method, "k", "f", time.Minute); err == nil {
			s.Errorf("SignURL accepts the method %q, want an error", method)
		}
	}
	for _, name := range []string{"a\nb", "a\r\nSet-Cookie: x", "\x00", "\xff", strings.Repeat("x", 2000)} {
		if _, err := s.SignURL(s.Context(), "GET", "k", name, time.Minute); err == nil {
			s.Errorf("SignURL accepts the file name %.20q, want an error", name)
		}
	}
	if _, err := s.SignURL(s.Context(), "GET", "", "f", time.Minute); err == nil || errors.Is(err, s.Context().Err()) {
		s.Errorf("SignURL with an empty key: %v, want an error", err)
	}
}
