package main

import (
	"bytes"
	nethttp "net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/internal/must"
)

// TestLoginLink tests that a node prints a login link only on a terminal, and only if it knows an
// administrator key. The link starts one session.
func TestLoginLink(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	greet := func(m *NodeProcess, columns int) string {
		var greeting bytes.Buffer
		printStartBanner(&terminal.IO{Out: &greeting, OutWidth: columns}, m)
		return greeting.String()
	}
	link := regexp.MustCompile(`  (http://.*)/console/#login=(\w+)\n`)

	m := prepare(t, data, nil)
	must.Succeed(t, m.Run(t.Context()))
	if said := greet(m, 0); strings.Contains(said, "#login") {
		t.Errorf("not on a terminal:\n%s", said)
	}
	found := link.FindStringSubmatch(greet(m, 80))
	if found == nil || found[1] != m.Listeners.URL {
		t.Fatalf("no link in:\n%s", greet(m, 80))
	}
	for _, want := range []int{200, 401} {
		answer, err := nethttp.Post(m.Listeners.URL+"/console/session", "application/json", strings.NewReader(`{"login_token":"`+found[2]+`"}`))
		must.Succeed(t, err)
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("status %d, want %d", answer.StatusCode, want)
		}
	}
	stop(t, m)

	m = start(t, data, nil) // the store has only the hash of the key
	if said := greet(m, 80); strings.Contains(said, "#login") {
		t.Errorf("no known key:\n%s", said)
	}
	m = start(t, t.TempDir(), func(s *settings.Settings) { s.APIKey = "an-administrator-key" })
	if said := greet(m, 80); !link.MatchString(said) {
		t.Errorf("a configured key:\n%s", said)
	}
}
