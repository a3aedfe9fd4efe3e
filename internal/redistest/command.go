package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// commandTimeout limits the time of one Command. It is longer than the pauses that
// tests ask for, and short enough to end a hanging test.
const commandTimeout = 20 * time.Second

// Command sends a command on its own connection and returns the answer: a string, a
// number as decimals, or the elements of a list joined by line breaks; "" for nil. It
// needs no driver, so that tests of a store can check the server without the store.
func (s *Server) Command(args ...string) (string, error) {
	end := time.Now().Add(commandTimeout)
	conn, err := (&net.Dialer{Deadline: end}).DialContext(context.Background(), "tcp", s.Addr())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(end); err != nil {
		return "", err
	}
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(conn, request.String()); err != nil {
		return "", err
	}
	return readReply(bufio.NewReader(conn))
}

// readReply reads one value of the Redis protocol, version 2.
func readReply(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, rest := line[0], strings.TrimRight(line[1:], "\r\n")
	switch kind {
	case '+', ':':
		return rest, nil
	case '-':
		return "", errors.New(rest)
	case '$', '*':
	default:
		return "", fmt.Errorf("the server answered %q, which is no reply of Redis", line)
	}
	size, err := strconv.Atoi(rest)
	if err != nil {
		return "", fmt.Errorf("the length in the server's answer: %w", err)
	}
	if size < 0 {
		return "", nil
	}
	if kind == '$' {
		text := make([]byte, size+len("\r\n"))
		if _, err := io.ReadFull(in, text); err != nil {
			return "", err
		}
		return string(text[:size]), nil
	}
	elements := make([]string, size)
	for i := range elements {
		if elements[i], err = readReply(in); err != nil {
			return "", err
		}
	}
	return strings.Join(elements, "\n"), nil
}
