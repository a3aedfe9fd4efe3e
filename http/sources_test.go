package http

import (
	"strings"
	"testing"

	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/input/sources"
)

// TestSubmit_Sources tests that an account reads only its own sources, and that no answer names a source of
// another account.
func TestSubmit_Sources(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) {
		c.Sources = sources.New([]sources.Source{{Name: "lake", Accounts: []string{"red"}, Prefixes: []string{"reviews/"}}, {Name: "shared", Accounts: []string{"red", "blue"}}})
	})
	red, blue, green := w.keyOf("red", caller.RoleUser), w.keyOf("blue", caller.RoleUser), w.keyOf("green", caller.RoleUser)
	as := func(key string) []string { return []string{"Authorization", "Key " + key} }
	const lake = `{"inputs":"lake:reviews/*.csv","column_name":"text"}`
	id := w.submitted(lake, as(red)...)
	if got := w.record(id).Spec; got.Source != "lake:reviews/*.csv" || got.Account != "red" || got.URL != "" {
		t.Errorf("stored %q for %s", got.Source, got.Account)
	}
	for name, c := range map[string]struct{ key, body, want string }{
		"another account":                 {blue, lake, `names the source "lake", which does not exist; your account can read shared`},
		"an account without sources":      {green, lake, "the URL's scheme is not supported"},
		"a name that no account has":      {blue, `{"inputs":"pond:a.csv"}`, `names the source "pond", which does not exist; your account can read shared`},
		"a folder that is not allowed":    {red, `{"inputs":"lake:salaries/a.csv"}`, "must begin with a folder that may be read: reviews/"},
		"a way out of the allowed folder": {red, `{"inputs":"lake:reviews/../salaries/a.csv"}`, "the folder .."},
		"an address in S3":                {red, `{"inputs":"s3://bucket/a.csv"}`, "s3:// addresses are not accepted"},
	} {
		answer := w.post(c.body, as(c.key)...)
		answer.wantField("inputs", c.want)
		if c.key != red && strings.Contains(strings.ReplaceAll(string(answer.text), "lake:reviews", ""), "reviews/") {
			t.Errorf("%s: the answer has a prefix of another account's source", name)
		}
	}
}
