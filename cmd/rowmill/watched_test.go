package main

import (
	"bytes"
	"strings"
	"sync"
)

// watched is a buffer for several goroutines. It signals when it contains a text.
type watched struct {
	mu    sync.Mutex
	text  bytes.Buffer
	until string
	found chan struct{} // closed when the buffer contains until; may be nil
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
