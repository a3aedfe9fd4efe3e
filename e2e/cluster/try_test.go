package cluster

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/seed"
)

// TestFault strikes with the faults of ROWMILL_FAULT, names with semicolons
// between them, one trial for each. Those of two versions strike a cluster of their
// own, which begins with the version before.
func TestFault(t *testing.T) {
	names := os.Getenv("ROWMILL_FAULT")
	if names == "" {
		t.Skip("set ROWMILL_FAULT to the names of faults")
	}
	first := seed.Of(t)
	clusters := map[bool]*Cluster{}
	for i, name := range strings.Split(names, ";") {
		both := slices.ContainsFunc(Faults(), func(f Fault) bool { return f.Name == name && f.Both })
		if clusters[both] == nil {
			config := Config{Roles: []string{"both", "both", "both"}, Secure: true}
			if both {
				config.Previous, config.Old = previous(t), len(config.Roles)
			}
			clusters[both] = start(t, config)
		}
		t.Run(name, func(t *testing.T) { try(t, clusters[both], first+uint64(i), name) })
	}
}
