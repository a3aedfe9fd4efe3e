package cluster

import (
	"os"
	"strings"
	"testing"
)

// TestFault strikes with the faults of ROWMILL_FAULT, names with semicolons
// between them, one trial for each.
func TestFault(t *testing.T) {
	names := os.Getenv("ROWMILL_FAULT")
	if names == "" {
		t.Skip("set ROWMILL_FAULT to the names of faults")
	}
	c := start(t, Config{Roles: []string{"both", "both", "both"}, Secure: true})
	for i, name := range strings.Split(names, ";") {
		t.Run(name, func(t *testing.T) { try(t, c, seed(t)+uint64(i), name) })
	}
}
