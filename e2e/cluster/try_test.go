package cluster

import (
	"os"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/seed"
)

// TestFault runs one trial for each fault of ROWMILL_FAULT, a list of names with
// semicolons.
func TestFault(t *testing.T) {
	names := os.Getenv("ROWMILL_FAULT")
	if names == "" {
		t.Skip("set ROWMILL_FAULT to the names of faults")
	}
	first := seed.ForTest(t)
	c := start(t, Config{Roles: []string{"both", "both", "both"}, Secure: true})
	for i, name := range strings.Split(names, ";") {
		t.Run(name, func(t *testing.T) { try(t, c, "", first+uint64(i), name) })
	}
}
