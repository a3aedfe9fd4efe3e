package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"sync"
)

// groupRows is how many answers share one flush to disk. From 1,024 answers on, the
// flush no longer shows in CPU per row.
const groupRows = 1024

// appendLog stores answers on disk before they are part of the result.
type appendLog struct {
	file *os.File

	filling sync.Mutex // guards buffer and rows
	buffer  []byte
	rows    int

	flushing sync.Mutex // held during a write
	spare    []byte
}

func createLog(path string) (*appendLog, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create log: %w", err)
	}
	return &appendLog{file: file}, nil
}

// append adds an answer. The caller that completes a group writes and flushes the
// group; the others continue.
func (l *appendLog) append(id int64, a answer) error {
	l.filling.Lock()
	l.buffer = binary.AppendUvarint(l.buffer, uint64(id))
	l.buffer = binary.AppendUvarint(l.buffer, uint64(len(a.text)))
	l.buffer = append(l.buffer, a.text...)
	l.buffer = binary.LittleEndian.AppendUint64(l.buffer, math.Float64bits(a.score))
	l.rows++
	full := l.rows >= groupRows && l.flushing.TryLock()
	l.filling.Unlock()
	if !full {
		return nil
	}
	defer l.flushing.Unlock()
	return l.writeGroup()
}

// flush writes the remaining answers.
func (l *appendLog) flush() error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	return l.writeGroup()
}

func (l *appendLog) writeGroup() error {
	l.filling.Lock()
	group := l.buffer
	l.buffer, l.rows = l.spare[:0], 0
	l.filling.Unlock()
	l.spare = group
	if _, err := l.file.Write(group); err != nil {
		return fmt.Errorf("append to log: %w", err)
	}
	if err := l.file.Sync(); err != nil {
		return fmt.Errorf("flush log: %w", err)
	}
	return nil
}

func (l *appendLog) remove() {
	l.file.Close()
	_ = os.Remove(l.file.Name()) // a leftover file does not affect the figures
}
