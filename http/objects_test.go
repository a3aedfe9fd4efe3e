package http

import (
	nethttp "net/http"
	"strings"
	"testing"
)

// signed returns the signed URLs of a finished job's results.
func (w *world) signed(id string) (get, head string) {
	w.Helper()
	urls := w.get("/v1/jobs/" + id + "/results-url").want(200).json()["urls"].(map[string]any)
	path := func(url any) string {
		rest, ours := strings.CutPrefix(url.(string), w.http.URL)
		if !ours {
			w.Fatalf("URL %v is not under %s", url, w.http.URL)
		}
		return rest
	}
	return path(urls["get"]), path(urls["head"])
}

// bare removes the API key from a request, as signed URLs require.
var bare = []string{"Authorization", ""}

func TestResultsURL_HeadGivesLengthAndETag(t *testing.T) {
	t.Parallel()
	w := setup(t)
	_, head := w.signed(w.succeeded(`{"inputs":["a"]}`, answers("x")))
	answer := w.do("HEAD", head, "", bare...).want(200)
	if answer.header.Get("Content-Length") == "" || answer.header.Get("ETag") == "" || len(answer.text) != 0 {
		t.Errorf("headers %v, %d bytes", answer.header, len(answer.text))
	}
}

func TestResultsURL_GetSupportsRange(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.succeeded(`{"inputs":["a"]}`, answers("x"))
	get, _ := w.signed(id)
	whole := w.get(get, bare...).want(200)
	if got := string(w.get("/v1/jobs/" + id + "/results?format=parquet").text); got != string(whole.text) {
		t.Error("the URL leads to another file than the download")
	}
	part := w.get(get, append(bare, "Range", "bytes=4-7", "If-Range", whole.header.Get("ETag"))...).want(206)
	if string(part.text) != string(whole.text[4:8]) {
		t.Errorf("part %q", part.text)
	}
	if got := whole.header.Get("Content-Disposition"); !strings.Contains(got, "service-results~"+id) {
		t.Errorf("disposition %s", got)
	}
}

func TestResultsURL_WithAuthorizationIs400(t *testing.T) {
	t.Parallel()
	w := setup(t)
	get, _ := w.signed(w.succeeded(`{"inputs":["a"]}`, answers("x")))
	w.get(get).want(400)
}

func TestResultsURL_IsBoundToItsMethod(t *testing.T) {
	t.Parallel()
	w := setup(t)
	get, head := w.signed(w.succeeded(`{"inputs":["a"]}`, answers("x")))
	w.get(head, bare...).want(403)
	w.do("HEAD", get, "", bare...).want(403)
	w.get(get+"x", bare...).want(403)
	w.do("PUT", get, "", bare...).wantError(405, "method_not_allowed", "")
	// No log contains the signature.
	if logs := w.logs.String(); strings.Contains(logs, "signature") || !strings.Contains(logs, "/objects/") {
		t.Errorf("logs:\n%s", logs)
	}
}

func TestObjects_AreAbsentWhereTheBucketHasItsOwnAddress(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Objects = nil })
	w.get("/objects/a", bare...).wantError(nethttp.StatusNotFound, "unknown_route", "nothing at GET /objects/a")
}
