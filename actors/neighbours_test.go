package actors

import (
	"testing"

	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/store"
)

// company lists the members of a cluster, and does nothing else.
type company struct {
	Peers
	members []cluster.Member
}

func (c *company) Self() cluster.Member      { return c.members[0] }
func (c *company) Members() []cluster.Member { return c.members }

func TestMissedAndEndedProcesses(t *testing.T) {
	t.Parallel()
	self, b := cluster.Member{ID: "a-1", Node: "a", Self: true, Owns: true}, cluster.Member{ID: "b-1", Node: "b", Owns: true}
	c := cluster.Member{ID: "c-1", Node: "c", Owns: true}
	there := &company{members: []cluster.Member{self, b, c}}
	n := newClusterView(there, "a", "unused")
	by := func(node, process string) store.Claim { return store.Claim{Node: node, Process: process} }
	expect := func(a store.Claim, missed, ended bool) {
		t.Helper()
		if n.isOwnerMissing(a) != missed || n.hasOwnerEnded(a) != ended {
			t.Errorf("%s: missed is %v, ended is %v", a.Process, n.isOwnerMissing(a), n.hasOwnerEnded(a))
		}
	}
	if n.update(there.members) {
		t.Error("a node has gone at the first update")
	}
	expect(n.ownClaim(true), false, false) // this process
	expect(by("a", "a-0"), true, true)     // the process before it
	expect(by("b", "b-1"), false, false)
	expect(by("b", "b-0"), true, true)  // b runs another process
	expect(by("d", "d-1"), true, false) // this node never saw it
	there.members = []cluster.Member{self, b}
	if !n.update(there.members) {
		t.Error("c has gone, but update does not report it")
	}
	expect(by("c", "c-1"), true, true) // this node saw it, and sees other members
	there.members = []cluster.Member{self}
	n.update(there.members)
	expect(by("c", "c-1"), true, false) // a node that sees no members may be cut off
	if n.rank("job") != 0 {
		t.Error("another node ranks before the only node")
	}

	alone := newClusterView(nil, "a", "a-2")
	if a := alone.ownClaim(true); a.Process != "a-2" || !a.Alone || alone.isOwnerMissing(a) || !alone.hasOwnerEnded(by("a", "a-1")) || alone.rank("job") != 0 {
		t.Errorf("a single node is %+v in records", a)
	}
}
