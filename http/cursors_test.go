package http

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A cursor that is not in the account's list is refused. Otherwise a client would take
// the first page for the next one and never reach the end.
func TestLists_RefuseUnknownCursors(t *testing.T) {
	t.Parallel()
	w := setup(t)
	file := w.uploaded("a", requestLine("a", "llama-3.1-8b"))
	mine := map[string]string{"/v1/files?after": file, "/v1/batches?after": w.batched(file)}
	message := w.messaged("a")
	mine["/v1/messages/batches?after_id"], mine["/v1/messages/batches?before_id"] = message, message
	w.key = w.keyOf("others", "user")
	theirs := map[string]string{"/v1/files?after": w.uploaded("b", requestLine("a", "llama-3.1-8b"))}
	theirs["/v1/batches?after"] = w.batched(theirs["/v1/files?after"])
	message = w.messaged("a")
	theirs["/v1/messages/batches?after_id"], theirs["/v1/messages/batches?before_id"] = message, message
	w.key = adminKey
	for list, id := range mine {
		w.get(list + "=" + id).want(200)
		for kind, cursor := range map[string]struct {
			text   string
			status int
		}{
			"malformed": {"nonsense", 400}, "cut off": {id[:len(id)-1], 400}, "of another list": {"upload_" + id[len(id)-32:], 400},
			"unknown": {id[:len(id)-32] + "ffffffffffffffffffffffffffffffff", 404}, "of another account": {theirs[list], 404},
		} {
			if got := w.get(list + "=" + cursor.text); got.status != cursor.status {
				t.Errorf("%s=%s, which is %s: status %d, want %d", list, cursor.text, kind, got.status, cursor.status)
			}
		}
	}
	for _, list := range []string{"/v1/files", "/v1/batches"} {
		if _, param := w.get(list + "?after=" + theirs[list+"?after"]).refused(404); param != "after" {
			t.Errorf("%s: param %v", list, param)
		}
		for _, query := range []string{"before=" + mine[list+"?after"], "order=up", "limit=0", "limit=x", "limit=-1", "limit=10001"} {
			w.get(list + "?" + query).want(400)
		}
		w.get(list + "?after=").want(200)
	}
	// A client that deletes each file of a list can read the next page.
	next := w.uploaded("next", requestLine("a", "llama-3.1-8b"))
	last := w.uploaded("last", requestLine("a", "llama-3.1-8b"))
	w.do("DELETE", "/v1/files/"+last, "").want(200)
	if data := w.get("/v1/files?limit=1&after=" + last).want(200).json()["data"].([]any); len(data) != 1 || data[0].(map[string]any)["id"] != next {
		t.Errorf("behind a deleted file: %v", data)
	}
	// A deleted batch works as a cursor too.
	w.do("POST", "/v1/messages/batches/"+mine["/v1/messages/batches?after_id"]+"/cancel", "").want(200)
	w.get("/v1/messages/batches/" + mine["/v1/messages/batches?after_id"]).want(200)
	w.do("DELETE", "/v1/messages/batches/"+mine["/v1/messages/batches?after_id"], "").want(200)
	w.get("/v1/messages/batches?after_id=" + mine["/v1/messages/batches?after_id"]).want(200)
}

func TestBatches_AreListedInBothOrders(t *testing.T) {
	t.Parallel()
	w := setup(t)
	file := w.uploaded("a", requestLine("a", "llama-3.1-8b"))
	first, second, third := w.batched(file), w.batched(file), w.batched(file)
	ids := func(query string) (ids []string) {
		for _, b := range w.get("/v1/batches" + query).want(200).json()["data"].([]any) {
			ids = append(ids, b.(map[string]any)["id"].(string))
		}
		return ids
	}
	for query, want := range map[string][]string{
		"": {third, second, first}, "?order=desc&after=" + third: {second, first},
		"?order=asc": {first, second, third}, "?order=asc&limit=1&after=" + first: {second},
	} {
		if diff := cmp.Diff(want, ids(query)); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
}
