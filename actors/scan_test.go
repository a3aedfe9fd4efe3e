package actors

import (
	"testing"
	"time"
)

// With any number of nodes, all nodes together search for orphans about as often as
// 250 nodes. No node searches so seldom that its waiting accounts would be
// forgotten.
func TestScanIntervalInLargeClusters(t *testing.T) {
	t.Parallel()
	config := Config{}
	config.Ownership.ScanInterval = 500 * time.Millisecond
	for members, want := range map[int]time.Duration{
		1: 500 * time.Millisecond, 250: 500 * time.Millisecond, 500: time.Second, 1_000: 2 * time.Second, 10_000: 2 * time.Second,
	} {
		got := scanIntervalOf(config.Ownership.ScanInterval, members)
		if got != want {
			t.Errorf("%d nodes search every %s, want %s", members, got, want)
		}
		if patience := config.slotConfig().Patience; got >= patience {
			t.Errorf("%d nodes search every %s, but an account is forgotten after %s", members, got, patience)
		}
	}
}
