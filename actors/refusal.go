package actors

import (
	"errors"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/cluster/peer"
)

// Codes of refusals between nodes.
const (
	codeUnknownJob = "unknown_job" // this node neither owns the job nor has a worker for it
	codeStale      = "stale"       // the message is from an earlier owner of the job
	codeNoEngine   = "no_engine"   // no engine here serves the model
	codeDraining   = "draining"
	codeAway       = "storage_away" // this node could neither read nor write rows
	codeBusy       = peer.CodeBusy  // the sender should repeat the request soon
	codeFull       = "full"         // no more workers for jobs of other nodes
)

func refuse(code, format string, args ...any) *peer.Refusal {
	return &peer.Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// asError returns the answer if it is a refusal, and otherwise err.
func asError(answer any, err error) error {
	if refused, ok := answer.(*peer.Refusal); ok {
		return refused
	}
	return err
}

// code returns the code of a refusal; empty for other errors.
func code(err error) string {
	var refused *peer.Refusal
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

// answer responds to the sender, if the sender waits for an answer.
func answer(c actor.Context, body any) {
	if c.Sender() != nil {
		c.Respond(body)
	}
}
