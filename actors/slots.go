package actors

import "context"

// slots bound the work of a node that takes memory of its own, all jobs
// together.
type slots struct {
	merge semaphore // merges hold a window of every part
	write semaphore // parts hold a row group in columns
}

func newSlots() slots { return slots{merge: make(semaphore, 1), write: make(semaphore, 2)} }

// A semaphore lets in as many as its capacity.
type semaphore chan struct{}

// enter waits for a place; it returns false when ctx ends first.
func (s semaphore) enter(ctx context.Context) bool {
	select {
	case s <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s semaphore) leave() { <-s }
