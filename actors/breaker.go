package actors

// A breaker stops sending to a server that answers nothing any more, however
// well it answers probes: after a number of failures in a row it opens, and
// when it closes again a single row must be answered before others follow. The
// failure of a request that was sent before another was answered is none:
// requests that hang end late, and many at once. A server that only has too
// much to do is the window's business.
type breaker struct {
	failures int  // in a row
	trial    bool // one row decides
}

// breakerFailures is how many failures in a row open the breaker: with one row
// in twenty failing by chance, eight in a row come once in 25 billion.
const breakerFailures = 8

func (b *breaker) answered() { b.failures, b.trial = 0, false }

// failed notes a failure and reports whether the breaker opens.
func (b *breaker) failed() (open bool) {
	b.failures++
	if !b.trial && b.failures < breakerFailures {
		return false
	}
	b.failures, b.trial = 0, true
	return true
}
