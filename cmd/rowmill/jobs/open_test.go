package jobs

import (
	"testing"

	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

func TestFindOpener(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ system, environ, want string }{
		{"darwin", "", "open"},
		{"linux", "", ""},
		{"linux", "DISPLAY=:0", "xdg-open"},
		{"linux", "WAYLAND_DISPLAY=wayland-0", "xdg-open"},
	} {
		term := &terminal.IO{Environ: []string{test.environ}}
		if got := findOpener(test.system, term.Getenv); got != test.want {
			t.Errorf("%s with %q: %q, want %q", test.system, test.environ, got, test.want)
		}
	}
}
