package dispatch

import (
	"github.com/rowmill/rowmill/actors/fair"
	"github.com/rowmill/rowmill/engine"
)

// A priorityLevel has the queues of one priority that take turns, grouped by account.
type priorityLevel struct {
	accounts []*accountQueues
	weights  fair.Weights
}

// An accountQueues has the queues of one account that take turns.
type accountQueues struct {
	name   string
	queues []*Queue
	// deficit is the number of tokens that the account may still send in this turn. It is
	// below 0 if the account has sent more than its turn allowed.
	deficit int64
	quantum int64 // tokens that each turn adds to deficit; proportional to the account's weight
}

// quantum is the number of tokens (of prompts and expected answers) that an account of
// weight 1 may send in one turn: a few rows of usual size.
const quantum = 4096

// add lets queue q take turns.
func (v *priorityLevel) add(q *Queue) {
	for _, a := range v.accounts {
		if a.name == q.account {
			a.queues = append(a.queues, q)
			return
		}
	}
	v.accounts = append(v.accounts, &accountQueues{name: q.account, queues: []*Queue{q}, quantum: quantum * int64(v.weights.Of(q.account))})
}

// next returns the queue that has the next turn, or nil if there is none. This queue is
// the first queue of the first account. An account that has used up the tokens of its
// turn moves to the end.
func (v *priorityLevel) next() *Queue {
	for len(v.accounts) > 0 {
		a := v.accounts[0]
		if a.deficit > 0 {
			return a.queues[0]
		}
		a.deficit += a.quantum
		toBack(v.accounts)
		if len(v.accounts) == 1 && a.deficit > 0 {
			return a.queues[0]
		}
	}
	return nil
}

// moveToFront gives the next turn to queue q, which must be the first queue of its account.
func (v *priorityLevel) moveToFront(q *Queue) {
	for i, a := range v.accounts {
		if a.queues[0] == q {
			v.accounts = append([]*accountQueues{a}, append(v.accounts[:i:i], v.accounts[i+1:]...)...)
			return
		}
	}
}

// charge subtracts tokens that queue q has just sent, and passes the turn to the
// account's next queue. q must be the first queue of the first account.
func (v *priorityLevel) charge(q *Queue, tokens int64) {
	a := v.accounts[0]
	a.deficit -= tokens
	if len(q.waiting) > 0 {
		toBack(a.queues)
	} else {
		a.queues = a.queues[1:]
	}
	if len(a.queues) == 0 {
		v.accounts = v.accounts[1:]
	}
}

// toBack moves the first element to the end.
func toBack[T any](list []T) {
	first := list[0]
	copy(list, list[1:])
	list[len(list)-1] = first
}

// removeAll takes the queues of route r out of the turns and returns them.
func (v *priorityLevel) removeAll(r engine.Route) (out []*Queue) {
	for _, a := range v.accounts {
		for _, q := range a.queues {
			if q.route == r {
				out = append(out, q)
			}
		}
	}
	for _, q := range out {
		v.remove(q)
	}
	return out
}

// remove takes queue q out of the turns.
func (v *priorityLevel) remove(q *Queue) {
	for i, a := range v.accounts {
		for j, other := range a.queues {
			if other != q {
				continue
			}
			a.queues = append(a.queues[:j:j], a.queues[j+1:]...)
			if len(a.queues) == 0 {
				v.accounts = append(v.accounts[:i:i], v.accounts[i+1:]...)
			}
			return
		}
	}
}
