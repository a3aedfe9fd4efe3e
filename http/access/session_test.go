package access

import (
	"net/http"
	"testing"
)

func TestAddress(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{
		"10.0.0.1:5000": "10.0.0.1", "[::ffff:10.0.0.1]:5000": "10.0.0.1", "[2001:db8:1:2:3::4]:1": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:1": "fe80::/64", "pipe": "pipe",
	} {
		if got := clientNetwork(&http.Request{RemoteAddr: from}); got != want {
			t.Errorf("%s: %s, want %s", from, got, want)
		}
	}
}
