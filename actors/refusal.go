package actors

import (
	"errors"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/cluster/peer"
)

// Codes that say why a node refuses a request of another node.
const (
	codeUnknownJob = "unknown_job"  // this node neither owns the job nor has a worker for it
	codeStale      = "stale"        // the message is from an earlier owner of the job
	codeNoEngine   = "no_engine"    // no engine here serves the model
	codeDraining   = "draining"     // this node drains and takes no more work
	codeAway       = "storage_away" // this node cannot use object storage now
	codeBusy       = peer.CodeBusy  // this node cannot handle the request now; the sender should soon repeat it
	codeFull       = "full"         // this node can run no more workers for jobs of other nodes
)

func refuse(code, format string, args ...any) *peer.Refusal {
	return &peer.Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// errorFromAnswer returns the answer as an error if it is a refusal, and otherwise err.
func errorFromAnswer(answer any, err error) error {
	if refused, ok := answer.(*peer.Refusal); ok {
		return refused
	}
	return err
}

// refusalCode returns the code of a refusal; empty if err is not a refusal.
func refusalCode(err error) string {
	if refused, ok := errors.AsType[*peer.Refusal](err); ok {
		return refused.Code
	}
	return ""
}

// answer sends body to asker, unless asker is nil.
func answer(c actor.Context, asker *actor.PID, body any) {
	if asker != nil {
		c.Send(asker, body)
	}
}

// respondIfAsked responds to the sender, if the sender waits for an answer.
func respondIfAsked(c actor.Context, body any) { answer(c, c.Sender(), body) }
