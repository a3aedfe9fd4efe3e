package s3

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/minio/minio-go/v7"
)

// Limitation is a call that Amazon's S3 supports and this server does not.
type Limitation struct {
	Missing string // the call that the server does not support
	Answer  string // the server's answer to the call
	Instead string // how Rowmill does the work instead
	Remedy  string // the setting that the operator should change, or empty
}

// String returns one sentence with all fields.
func (l Limitation) String() string {
	return fmt.Sprintf("cannot %s, it answers %q: %s", l.Missing, l.Answer, l.Instead)
}

// These numbers identify the calls that some servers do not support.
const (
	copyObjects = iota
	copyParts
	copyVersions
	deleteMany
	listUploads
	mixedParts
)

// substitutes lists the calls that some servers do not support, and what Rowmill does
// instead.
var substitutes = []Limitation{
	copyObjects: {
		Missing: "copy an object (CopyObject)",
		Instead: "a node downloads the object and uploads it again",
	},
	copyParts: {
		Missing: "copy a range of an object (UploadPartCopy)",
		Instead: "the node that makes a result downloads its parts and uploads the result",
	},
	copyVersions: {
		Missing: "copy a range of a given version of an object (x-amz-copy-source-if-match)",
		Instead: "a node checks afterwards that the object is still the same",
	},
	deleteMany: {
		Missing: "delete many objects with one request (DeleteObjects)",
		Instead: "a node deletes them one by one",
	},
	listUploads: {
		Missing: "list unfinished uploads (ListMultipartUploads)",
		Instead: "uploaded parts of a killed node's unfinished object stay in the bucket and cost money",
		Remedy:  "set a lifecycle rule on the bucket that aborts incomplete multipart uploads after 1 day",
	},
	mixedParts: {
		Missing: "accept parts of different lengths in one upload (CompleteMultipartUpload)",
		Instead: "all parts have the same length, and more bytes of a result pass through the node that makes it",
	},
}

// unsupportedCalls is the set of calls that the server does not support. Each call is tested
// once, at the start or by the first writer that needs the call. A refusal is
// remembered until the process ends.
type unsupportedCalls struct {
	mu      sync.Mutex
	answers map[int]string // the server's refusals, by call (copyObjects and so on)
}

// lacks reports whether the server is known not to support a call.
func (l *unsupportedCalls) lacks(call int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.answers[call]
	return known
}

// add records that the server refused a call with err, and reports whether this is the
// first refusal of the call.
func (l *unsupportedCalls) add(call int, err error) (isFirst bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.answers[call]; known {
		return false
	}
	if l.answers == nil {
		l.answers = map[int]string{}
	}
	l.answers[call] = answerOf(err)
	return true
}

// answerOf returns the text of the server's answer that err contains, or the text of
// err.
func answerOf(err error) string {
	if answer, ok := errors.AsType[minio.ErrorResponse](err); ok {
		return fmt.Sprintf("%d %s: %s", answer.StatusCode, answer.Code, answer.Message)
	}
	return err.Error()
}

// Limits returns the calls that the server is known not to support. If the server
// cannot copy ranges at all, the list does not name copies of a given version.
func (b *Bucket) Limits() []Limitation {
	b.limits.mu.Lock()
	defer b.limits.mu.Unlock()
	var found []Limitation
	for call, limit := range substitutes {
		_, whole := b.limits.answers[copyParts]
		if answer, known := b.limits.answers[call]; known && (call != copyVersions || !whole) {
			limit.Answer = answer
			found = append(found, limit)
		}
	}
	return found
}

// logLimits logs all limits of found in one line.
func (b *Bucket) logLimits(found []Limitation) {
	if len(found) == 0 {
		return
	}
	level, texts := slog.LevelInfo, make([]string, len(found))
	for i, l := range found {
		texts[i] = l.String()
		if l.Remedy != "" {
			level = slog.LevelWarn
			texts[i] += "; " + l.Remedy
		}
	}
	b.config.Logger.Log(context.Background(), level, "the object store does not support all calls of S3", "endpoint", b.config.Endpoint, "limits", strings.Join(texts, ". "))
}

// recordIfUnsupported reports whether err means that the server does not support the call, and if
// so records the limit. The caller then does the work in another way.
func (b *Bucket) recordIfUnsupported(call int, err error) bool {
	if !isUnsupported(err) {
		return false
	}
	if b.limits.add(call, err) {
		b.logLimit(call)
	}
	return true
}

// logLimit logs the limit of one call.
func (b *Bucket) logLimit(call int) {
	b.logLimits(slices.DeleteFunc(b.Limits(), func(l Limitation) bool { return l.Missing != substitutes[call].Missing }))
}

// isUnsupported reports whether an error says that the server does not support the
// call. Servers say that with the statuses 501, 405 and 400, and with several codes.
func isUnsupported(err error) bool {
	var answer minio.ErrorResponse
	if !errors.As(err, &answer) {
		return false
	}
	switch {
	case answer.Code == "NotImplemented", answer.Code == "MethodNotAllowed":
		return true
	case isTransient(err), isStorageFull(err), slices.Contains(operatorCodes, answer.Code):
		return false
	}
	return slices.Contains([]int{http.StatusNotImplemented, http.StatusMethodNotAllowed, http.StatusBadRequest}, answer.StatusCode)
}
