package jobs

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/internal/memo"
)

const (
	// sharedAge is the greatest age of an answer that was made for another request.
	// Clients accept such answers with Cache-Control: max-age=1 or more.
	sharedAge = time.Second
	// maxSharedAnswers bounds the kept answers.
	maxSharedAnswers = 256
)

// A sharedKey is what an answer depends on: the caller, the path and the query.
type sharedKey struct{ account, role, dialect, path, query string }

// A sharing gives one answer to all callers who ask for the same within sharedAge and
// accept that. Many open pages then cost the store no more than one.
type sharing struct{ answers memo.Memo[sharedKey, any] }

func newSharing(now func() time.Time) *sharing {
	return &sharing{memo.Memo[sharedKey, any]{Age: sharedAge, Most: maxSharedAnswers, Now: now}}
}

// of shares the answers of a handler. The handler must change nothing, write nothing
// itself, and depend on caller, path and query only.
func (s *sharing) of(handler func(*gin.Context) (any, error)) func(*gin.Context) (any, error) {
	return func(c *gin.Context) (any, error) {
		if !takesShared(c) {
			return handler(c)
		}
		who := caller.Of(c)
		key := sharedKey{who.Account, who.Role, who.Dialect, c.Request.URL.Path, c.Request.URL.RawQuery}
		return s.answers.Get(c.Request.Context(), key, func(ctx context.Context) (any, error) {
			c.Request = c.Request.WithContext(ctx)
			return handler(c)
		})
	}
}

// takesShared reports whether a request accepts an answer of the age sharedAge.
func takesShared(c *gin.Context) bool {
	takes := false
	for directive := range strings.SplitSeq(strings.Join(c.Request.Header.Values("Cache-Control"), ","), ",") {
		name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(directive)), "=")
		switch name {
		case "no-cache", "no-store":
			return false
		case "max-age":
			seconds, err := strconv.ParseInt(value, 10, 64)
			takes = err == nil && seconds >= int64(sharedAge/time.Second)
		}
	}
	return takes
}

// Shared shares the answers of a handler, see sharing.of.
func (j *Jobs) Shared(handler func(*gin.Context) (any, error)) func(*gin.Context) (any, error) {
	return j.sharing.of(handler)
}
