package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	driver "github.com/redis/go-redis/v9"

	"github.com/rowmill/rowmill"
)

// ConfirmPrimary checks that this backend writes to the primary that a majority of the Sentinels
// knows. A primary that a partition has cut off from the Sentinels still takes writes,
// but the new primary has never seen them. Without Sentinels ConfirmPrimary does nothing. It
// only reads, so that it works on a server without memory.
func (e *Backend) ConfirmPrimary(ctx context.Context) error {
	if !e.sentinels {
		return nil
	}
	own, err := ask(ctx, e, func(ctx context.Context) (string, error) { return runID(ctx, e.client) })
	if err != nil {
		return fmt.Errorf("confirm the Redis primary: %w", err)
	}
	primary, err := e.findPrimary(ctx)
	if err != nil {
		return fmt.Errorf("%w: confirm the Redis primary: %w", rowmill.ErrUnavailable, err)
	}
	client := driver.NewClient(e.options(primary))
	elected, err := runID(ctx, client)
	if err = errors.Join(err, client.Close()); err != nil {
		return fmt.Errorf("%w: confirm the Redis primary at %s: %w", rowmill.ErrUnavailable, primary, err)
	}
	if elected != own {
		return fmt.Errorf("%w: the Sentinels name %s as the Redis primary, but this node writes to another server", rowmill.ErrUnavailable, primary)
	}
	return nil
}

// runID returns the run_id of the Redis process that answers. Every start of a server has
// a new run_id.
func runID(ctx context.Context, client *driver.Client) (string, error) {
	text, err := client.Info(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	_, rest, found := strings.Cut(text, "run_id:")
	if id, _, _ := strings.Cut(rest, "\r\n"); found && id != "" {
		return id, nil
	}
	return "", errors.New("the server's answer to INFO has no run_id")
}

// findPrimary asks the Sentinels for the address of the primary. It uses the answer of the
// first Sentinel that reaches a majority of the Sentinels.
func (e *Backend) findPrimary(ctx context.Context) (addr string, err error) {
	at := e.at.Load()
	var errs []error
	for _, host := range at.hosts {
		options := e.options(host)
		options.CredentialsProvider, options.DB = nil, 0
		options.Username, options.Password = e.config.SentinelUsername, e.config.SentinelPassword
		sentinel := driver.NewSentinelClient(options)
		_, err := sentinel.CkQuorum(ctx, at.primary).Result()
		var primary []string
		if err == nil {
			primary, err = sentinel.GetMasterAddrByName(ctx, at.primary).Result()
		}
		if err = errors.Join(err, sentinel.Close()); err == nil && len(primary) == 2 {
			return net.JoinHostPort(primary[0], primary[1]), nil
		}
		errs = append(errs, fmt.Errorf("ask the Sentinel at %s: %w", host, err))
	}
	return "", errors.Join(errs...)
}
