package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	// maxRead is the size in bytes of the longest output that ReadOutput returns: a few
	// hundred lines.
	maxRead = 64 << 10
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
	tail, _, err := readTail(path, 0, tailBytes)
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

// ReadOutput returns the end of the output that a server has written into Config.Folder: at
// most this many lines, and at most 64 KiB. It returns only output after the position after,
// unless the output has begun a new file; end is the position for the next call. Without any
// output, the text is empty.
func ReadOutput(folder, name string, after int64, lines int) (text string, end int64, err error) {
	tail, from, err := readTail(outputFile(folder, name), after, maxRead)
	if errors.Is(err, fs.ErrNotExist) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, err
	}
	end = from + int64(len(tail))
	if from > after { // the first line is cut
		tail = tail[bytes.IndexByte(tail, '\n')+1:]
	}
	return lastLines(strings.ToValidUTF8(string(tail), "\uFFFD"), lines), end, nil
}

// lastLines returns the last lines of a text, without control characters.
func lastLines(text string, lines int) string {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
	begin := len(strings.TrimSuffix(text, "\n"))
	for range max(1, lines) {
		if begin = strings.LastIndexByte(text[:begin], '\n'); begin < 0 {
			return text
		}
	}
	return text[begin+1:]
}

// readTail returns the end of a file after the position after, and the position of its first
// byte. It returns at most this many bytes. If the file is shorter than after, after is 0.
func readTail(path string, after, most int64) (tail []byte, from int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, 0, err
	}
	if after > info.Size() {
		after = 0
	}
	from = max(after, info.Size()-most)
	tail = make([]byte, info.Size()-from)
	n, err := file.ReadAt(tail, from)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return tail[:n], from, err
}
