package peer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	"github.com/rowmill/rowmill/cluster/peer/peerv1"
)

// The codes of refusals that this package makes. Handlers use further codes of the
// contract.
const (
	CodeStarting    = "starting"     // the node listens but does not answer yet
	CodeBusy        = "busy"         // MaxInFlight requests are in progress
	CodeInvalid     = "invalid"      // the request could not be read
	CodeTooLarge    = "too_large"    // the request or the reply is over MaxBody
	CodeUnknownKind = "unknown_kind" // this node does not know the request
	CodeInternal    = "internal"     // the handler failed or panicked; the log of its node has details
)

// reasonPrefix is the prefix of all reasons in the contract; the rest is the code.
const reasonPrefix = "REFUSAL_REASON_"

// codeOf returns the code of a reason, or its number when this version does not know
// the reason.
func codeOf(reason peerv1.RefusalReason) string {
	if code, named := strings.CutPrefix(reason.String(), reasonPrefix); named {
		return strings.ToLower(code)
	}
	return fmt.Sprintf("reason_%d", reason)
}

// reasonOf returns the reason of a code.
func reasonOf(code string) peerv1.RefusalReason {
	return peerv1.RefusalReason(peerv1.RefusalReason_value[reasonPrefix+strings.ToUpper(code)])
}

// status returns the Connect code of a refusal, for clients that do not know the
// contract.
func status(code string) connect.Code {
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

// wire returns a refusal in the form for the wire.
func (r *Refusal) wire() *connect.Error {
	err := connect.NewError(status(r.Code), errors.New(r.Message))
	if detail, detailErr := connect.NewErrorDetail(&peerv1.Refusal{Reason: reasonOf(r.Code)}); detailErr == nil {
		err.AddDetail(detail)
	}
	return err
}

// fromWire translates an error from the wire: to ErrUnreachable when the peer gave up, and
// to a *Refusal otherwise.
func fromWire(err error) error {
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
