package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// commandTimeout limits the time of one Command. It is longer than the pauses that
// tests ask for, and short enough to end a hanging test.
const commandTimeout = 20 * time.Second

// Command sends a command on its own connection and returns the answer: a string, a
// number as decimals, or the elements of a list joined by line breaks; "" for nil.
func (s *Server) Command(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	// If the driver connected, it would log each failed attempt while the server starts.
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return "", err
	}
	client := redis.NewClient(&redis.Options{
		Protocol: 2, DisableIdentity: true, MaxRetries: -1, ReadTimeout: commandTimeout,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	})
	defer func() { _ = client.Close() }()
	command := make([]any, len(args))
	for i, arg := range args {
		command[i] = arg
	}
	answer, err := client.Do(ctx, command...).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return formatReply(answer), err
}

// formatReply returns an answer as the text that Command promises.
func formatReply(answer any) string {
	switch v := answer.(type) {
	case nil:
		return ""
	case []any:
		elements := make([]string, len(v))
		for i, element := range v {
			elements[i] = formatReply(element)
		}
		return strings.Join(elements, "\n")
	default:
		return fmt.Sprint(v)
	}
}
