package peer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	"github.com/rowmill/rowmill/cluster/peer/peerv1"
)

// The codes of refusals that this package creates. Handlers use further codes, which
// the contract defines.
const (
	CodeStarting    = "starting"     // the node is starting: it listens but does not answer yet
	CodeBusy        = "busy"         // MaxInFlight requests are in progress
	CodeInvalid     = "invalid"      // the request could not be read
	CodeTooLarge    = "too_large"    // the request or the reply is over MaxBody
	CodeUnknownKind = "unknown_kind" // the node does not know this kind of request
	CodeInternal    = "internal"     // the handler failed or panicked; the log of the answering node has details
)

// reasonPrefix is the prefix of the names of all reasons in the contract. The text
// after the prefix, in lower case, is the code.
const reasonPrefix = "REFUSAL_REASON_"

// codeOf returns the code of a reason, or "reason_" and its number if this version does
// not know the reason.
func codeOf(reason peerv1.RefusalReason) string {
	if code, named := strings.CutPrefix(reason.String(), reasonPrefix); named {
		return strings.ToLower(code)
	}
	return fmt.Sprintf("reason_%d", reason)
}

// reasonOf returns the reason in the contract for a code.
func reasonOf(code string) peerv1.RefusalReason {
	return peerv1.RefusalReason(peerv1.RefusalReason_value[reasonPrefix+strings.ToUpper(code)])
}

// connectCodeOf returns the Connect code for the code of a refusal. Clients that do not know
// the contract read the Connect code.
func connectCodeOf(code string) connect.Code {
	switch code {
	case CodeInvalid:
		return connect.CodeInvalidArgument
	case CodeTooLarge:
		return connect.CodeResourceExhausted
	case CodeUnknownKind:
		return connect.CodeUnimplemented
	case CodeInternal:
		return connect.CodeInternal
	case "unknown_job":
		return connect.CodeNotFound
	case "stale", "no_engine":
		return connect.CodeFailedPrecondition
	}
	return connect.CodeUnavailable
}

// toConnectError returns the refusal as a Connect error, to send to the caller.
func (r *Refusal) toConnectError() *connect.Error {
	err := connect.NewError(connectCodeOf(r.Code), errors.New(r.Message))
	if detail, detailErr := connect.NewErrorDetail(&peerv1.Refusal{Reason: reasonOf(r.Code)}); detailErr == nil {
		err.AddDetail(detail)
	}
	return err
}

// errorFromWire converts an error that the peer has sent: into ErrUnreachable if the peer's
// handler ran out of time or was cancelled, and otherwise into a *Refusal.
func errorFromWire(err error) error {
	var wire *connect.Error
	if !errors.As(err, &wire) {
		return err
	}
	for _, detail := range wire.Details() {
		if value, err := detail.Value(); err == nil {
			if r, is := value.(*peerv1.Refusal); is {
				return &Refusal{Code: codeOf(r.GetReason()), Message: wire.Message()}
			}
		}
	}
	code := CodeInternal
	switch wire.Code() {
	case connect.CodeDeadlineExceeded, connect.CodeCanceled:
		return fmt.Errorf("%w: the peer gave up: %w", ErrUnreachable, context.DeadlineExceeded)
	case connect.CodeInvalidArgument:
		code = CodeInvalid
	case connect.CodeResourceExhausted:
		code = CodeTooLarge
	case connect.CodeUnimplemented:
		code = CodeUnknownKind
	}
	return &Refusal{Code: code, Message: wire.Message()}
}
