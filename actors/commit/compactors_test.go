package commit

import (
	"strings"
	"testing"
)

// Each script has steps: "+a" a node writes a part, "-a" its compaction ended, "!a" it is
// lost, "a" it gets the next compaction, "full" no node has room. "." is the owner's node.
func TestHelpers(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"compactions are spread over writers":        "+b +a +b a b a b full -b b",
		"the owner's node is the last helper":        ". . full +a -. a a full +. .",
		"nodes that are lost":                        "+a +b a !a -a b !b . +a a",
		"the owner's node stays if it writes itself": "+. +a . a . a full",
	} {
		var h CompactionNodes
		for i, step := range strings.Fields(script) {
			address := strings.Trim(step, "+-!.")
			switch step[0] {
			case '+':
				h.AddNode(address)
			case '-':
				h.ReleaseNode(address)
			case '!':
				h.RemoveNode(address)
			default:
				if got, ok := h.AcquireNode(); ok != (step != "full") || ok && got != address {
					t.Errorf("%s: step %d, %s: the next compaction is for %q (%t)", name, i, step, got, ok)
				}
			}
		}
	}
	var h CompactionNodes
	if h.AcquireNode(); h.HasOtherNodes() {
		t.Error("the owner's node counts as another node")
	}
	if h.AddNode("a"); !h.HasOtherNodes() {
		t.Error("no other node helps")
	}
}
