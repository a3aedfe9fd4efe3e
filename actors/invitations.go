package actors

import (
	"maps"
	"slices"
	"time"
)

const (
	// inviteAgain is the time between invites to a node that has no worker.
	inviteAgain = 2 * time.Second
	// banTime is how long a node is left out whose worker could not go on.
	banTime = time.Minute
)

// invitations are what the owner of a job has asked of nodes: to work for it.
// Before the first rows are assigned they also tell who is to be heard first: a
// node may have a worker from earlier owners, and that may have any row.
type invitations struct {
	sent    map[string]time.Time // by address: when a node was last asked
	banned  map[string]time.Time // by address: until when a node is not asked
	open    int                  // that are not answered
	awaited map[string]bool      // nodes whose earlier worker was not heard yet
	full    map[string]bool      // nodes that last had no place for a worker
}

func newInvitations() invitations {
	return invitations{sent: make(map[string]time.Time), banned: make(map[string]time.Time), awaited: make(map[string]bool), full: make(map[string]bool)}
}

// due reports whether a node without a worker is to be asked now, which then
// counts as done.
func (i *invitations) due(address string, now time.Time) bool {
	if now.Sub(i.sent[address]) < inviteAgain || now.Before(i.banned[address]) {
		return false
	}
	i.sent[address] = now
	i.open++
	return true
}

// answered takes in what has become of an invite: whether the node has a worker
// already that is to be heard, and the code where it was refused. Who is busy is
// asked at the next look.
func (i *invitations) answered(address string, await bool, refusal string) {
	i.open--
	if await {
		i.awaited[address] = true
	}
	delete(i.full, address)
	if refusal == codeFull {
		i.full[address] = true
	}
	if refusal == codeBusy || refusal == codeFull {
		i.sent[address] = time.Time{}
	}
}

// heard notes that a node's worker was heard.
func (i *invitations) heard(address string) { delete(i.awaited, address) }

// ban leaves a node out for a while.
func (i *invitations) ban(address string, now time.Time) { i.banned[address] = now.Add(banTime) }

// gathered reports whether everybody has answered, and every earlier worker was
// heard.
func (i *invitations) gathered() bool { return i.open <= 0 && len(i.awaited) == 0 }

// nodes are the addresses of all nodes that were ever asked, in order.
func (i *invitations) nodes() []string { return slices.Sorted(maps.Keys(i.sent)) }
