package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/rowmill/rowmill/internal/textfmt"
)

const (
	// maxOutput is the size in bytes above which openOutput begins a new file.
	maxOutput = 10 << 20
	// tailBytes is the length of a file's end that LastLine reads.
	tailBytes = 4 << 10
	// lineBytes is the longest line that LastLine returns.
	lineBytes = 300
)

// openOutput opens the file for a server's output and appends to it. A file that is too
// large gets the suffix .1 first, and replaces the file with that name.
func openOutput(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() >= maxOutput {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("rotate the output of the server: %w", err)
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// LastLine returns the last line of a file that is not blank, for a message to people. It
// returns the reason if the file cannot be read.
func LastLine(path string) string {
	tail, err := readTail(path)
	if err != nil {
		return err.Error()
	}
	lines := bytes.FieldsFunc(tail, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := len(lines) - 1; i >= 0; i-- {
		printable := strings.Map(func(r rune) rune {
			if unicode.IsPrint(r) {
				return r
			}
			return ' '
		}, string(lines[i]))
		if line := strings.TrimSpace(printable); line != "" {
			return textfmt.Shorten(line, lineBytes)
		}
	}
	return ""
}

func readTail(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	tail := make([]byte, min(info.Size(), tailBytes))
	n, err := file.ReadAt(tail, info.Size()-int64(len(tail)))
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return tail[:n], err
}
