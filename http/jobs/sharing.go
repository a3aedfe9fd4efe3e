package jobs

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/http/caller"
)

const (
	// sharedAge is how long a cached answer may be reused. A client accepts cached answers
	// by the header Cache-Control: max-age=1, or a higher number.
	sharedAge = time.Second
	// maxSharedAnswers limits the cached answers.
	maxSharedAnswers = 256
)

// An answerCacheKey is the cache key of a shared answer: everything on which the answer
// depends, which is the caller, the path and the query.
type answerCacheKey struct{ account, role, dialect, path, query string }

// CacheAnswers returns a handler that calls handler and caches its answers for sharedAge, for
// requests that accept a cached answer. With it, many open console pages cost the store
// no more than one page. handler must change nothing, must not write the answer itself,
// and may depend only on the caller, the path and the query.
func (j *Jobs) CacheAnswers(handler func(*gin.Context) (any, error)) func(*gin.Context) (any, error) {
	return func(c *gin.Context) (any, error) {
		if !acceptsCachedAnswer(c) {
			return handler(c)
		}
		who := caller.PrincipalOf(c)
		key := answerCacheKey{who.Account, who.Role, who.Dialect, c.Request.URL.Path, c.Request.URL.RawQuery}
		return j.answers.Get(c.Request.Context(), key, func(ctx context.Context) (any, error) {
			c.Request = c.Request.WithContext(ctx)
			return handler(c)
		})
	}
}

// acceptsCachedAnswer reports whether a request accepts a cached answer that is up to
// sharedAge old.
func acceptsCachedAnswer(c *gin.Context) bool {
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
