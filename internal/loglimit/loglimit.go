// Package loglimit limits how often a message that repeats is logged.
package loglimit

import (
	"sync"
	"time"
)

// A Limit decides which messages are logged, for each key: the first message, and then
// at most one message per Every. Its methods may be called concurrently. It never
// forgets a key, so there must be a limited number of keys.
type Limit struct {
	Every time.Duration

	mu   sync.Mutex
	keys map[string]*keyState
}

// A keyState is the state of the messages with one key.
type keyState struct {
	last    time.Time // time of the last logged message
	leftOut int       // number of messages that were not logged since last
}

// ShouldLog reports whether a message must be logged now. leftOut is the number of messages
// with the same key that were not logged since the last logged message.
func (l *Limit) ShouldLog(key string, now time.Time) (leftOut int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.keys[key]
	switch {
	case s == nil:
		if l.keys == nil {
			l.keys = map[string]*keyState{}
		}
		l.keys[key] = &keyState{last: now}
		return 0, true
	case now.Sub(s.last) < l.Every:
		s.leftOut++
		return 0, false
	}
	leftOut = s.leftOut
	*s = keyState{last: now}
	return leftOut, true
}
