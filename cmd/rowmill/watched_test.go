package main

import (
	"bytes"
	"strings"
	"sync"
)

// watched is a buffer for several goroutines that tells when it holds a text.
type watched struct {
	mu    sync.Mutex
	text  bytes.Buffer
	until string
	found chan struct{} // closed when until is there; may be nil
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if w.found != nil && w.until != "" && strings.Contains(w.text.String(), w.until) {
		close(w.found)
		w.until = ""
	}
	return len(p), nil
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}
