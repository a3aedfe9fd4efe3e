package actors

import (
	"errors"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/cluster/peer"
)

// Codes of refusals between nodes.
const (
	codeUnknownJob = "unknown_job" // nobody here has to do with it
	codeStale      = "stale"       // a later owner is known
	codeNoEngine   = "no_engine"   // nothing here serves the model
	codeDraining   = "draining"
	codeAway       = "storage_away" // it could neither read nor write rows
	codeBusy       = peer.CodeBusy  // ask again
	codeFull       = "full"         // as many jobs of others have workers as may
)

func refuse(code, format string, args ...any) *peer.Refusal {
	return &peer.Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

func asError(answer any, err error) error {
	if refused, ok := answer.(*peer.Refusal); ok {
		return refused
	}
	return err
}

// code is that of a refusal; empty for any other error.
func code(err error) string {
	var refused *peer.Refusal
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

// answer responds to who waits for it.
func answer(c actor.Context, body any) {
	if c.Sender() != nil {
		c.Respond(body)
	}
}
