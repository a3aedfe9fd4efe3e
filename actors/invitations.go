package actors

import (
	"maps"
	"slices"
	"time"
)

const (
	// inviteAgain is the time between invites to a node that has no worker.
	inviteAgain = 2 * time.Second
	// banTime is how long a node gets no invite after its worker could not
	// continue.
	banTime = time.Minute
)

// invitations tracks the invites that a job's owner has sent to nodes. Before the owner
// assigns the first rows, it needs a heartbeat of each worker of an earlier owner,
// because that worker may already have any of the rows.
type invitations struct {
	sent       map[string]time.Time // by address: when the node was last invited
	banned     map[string]time.Time // by address: the node gets no invite before this time
	unanswered int                  // number of invites without an answer
	awaited    map[string]bool      // by address: nodes with a worker of an earlier owner that has not sent a heartbeat yet
	full       map[string]bool      // by address: nodes that had no place for a worker in their last answer
}

func newInvitations() invitations {
	return invitations{sent: make(map[string]time.Time), banned: make(map[string]time.Time), awaited: make(map[string]bool), full: make(map[string]bool)}
}

// markInvitedIfDue reports whether to invite a node without a worker now, and counts it as
// invited.
func (i *invitations) markInvitedIfDue(address string, now time.Time) bool {
	if now.Sub(i.sent[address]) < inviteAgain || now.Before(i.banned[address]) {
		return false
	}
	i.sent[address] = now
	i.unanswered++
	return true
}

// recordAnswer notes the answer to an invite. hasWorker means that the node already has a
// worker of the job, and that the owner must wait for this worker's heartbeat. refusal is
// the code of a refusal, or empty. A busy or full node is invited again at once.
func (i *invitations) recordAnswer(address string, hasWorker bool, refusal string) {
	i.unanswered--
	if hasWorker {
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

// recordHeartbeat notes that the node's worker has sent a heartbeat.
func (i *invitations) recordHeartbeat(address string) { delete(i.awaited, address) }

// ban stops invites to a node for a while.
func (i *invitations) ban(address string, now time.Time) { i.banned[address] = now.Add(banTime) }

// allReported reports whether all invites are answered, and every worker of an earlier
// owner has sent a heartbeat.
func (i *invitations) allReported() bool { return i.unanswered <= 0 && len(i.awaited) == 0 }

// invitedNodes returns the addresses of all nodes that were ever invited, in order.
func (i *invitations) invitedNodes() []string { return slices.Sorted(maps.Keys(i.sent)) }
