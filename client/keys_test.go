package client

import (
	"fmt"
	"net/http"
	"testing"
)

// Keys reads all pages. A service of an older version sends one page without a cursor.
func TestKeys_ReadsAllPages(t *testing.T) {
	t.Parallel()
	answers := map[string]string{
		"":              `{"keys":[{"id":"a","later":1}],"next_cursor":"x"}`,
		"x":             `{"keys":[{"id":"b"}],"next_cursor":"y"}`,
		"y":             `{"keys":[],"next_cursor":null}`,
		"older version": `{"keys":[{"id":"a"},{"id":"b"}]}`,
	}
	for begin, raw := range map[string]string{
		"":              `{"keys":[{"id":"a","later":1},{"id":"b"}]}`,
		"older version": `{"keys":[{"id":"a"},{"id":"b"}]}`,
	} {
		c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			cursor := r.URL.Query().Get("cursor")
			if cursor == "" {
				cursor = begin
			}
			if r.URL.Query().Get("account") != "acme" {
				cursor = "another account's"
			}
			fmt.Fprint(w, answers[cursor])
		})
		keys, answer, err := c.Keys(t.Context(), "acme")
		if err != nil || len(keys) != 2 || keys[1].ID != "b" || string(answer.Raw) != raw {
			t.Errorf("%q: %+v, %s, error %v", begin, keys, answer.Raw, err)
		}
	}
}
