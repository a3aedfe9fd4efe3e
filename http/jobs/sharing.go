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
	// sharedAge is how old an answer may be that was made for another request: as
	// often as people want to see progress. Those who take it say so by
	// Cache-Control: max-age=1, or more.
	sharedAge = time.Second
	// maxSharedAnswers bounds those that are kept. A page of jobs has no text of its
	// own.
	maxSharedAnswers = 256
)

// A sharedKey is what an answer depends on: who asks, as far as that decides what is
// seen, and for what.
type sharedKey struct{ account, role, dialect, path, query string }

// A sharing gives one answer to all who ask for the same within a moment and take
// that: many open pages cost the store no more than one.
type sharing struct{ answers memo.Memo[sharedKey, any] }

func newSharing(now func() time.Time) *sharing {
	return &sharing{memo.Memo[sharedKey, any]{Age: sharedAge, Most: maxSharedAnswers, Now: now}}
}

// of shares the answers of a handler that changes nothing, writes nothing by itself,
// and goes by who asks, path and query alone.
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

// takesShared reports whether a request takes an answer that is sharedAge old.
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

// Shared shares the answers of a handler about jobs, see sharing.of.
func (j *Jobs) Shared(handler func(*gin.Context) (any, error)) func(*gin.Context) (any, error) {
	return j.sharing.of(handler)
}
