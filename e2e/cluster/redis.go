package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// redisServer is a redis-server that keeps every write in its append-only file.
type redisServer struct {
	process
	address string
	dir     string
}

func (c *Cluster) startRedis(ctx context.Context) error {
	h, err := newHost(ctx, c.network, "redis")
	if err != nil {
		return err
	}
	c.redisHost = h
	r := &redisServer{dir: filepath.Join(c.dir, "redis")}
	if r.address, err = h.listen(ctx, 6379); err != nil {
		return err
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return err
	}
	address, port, err := net.SplitHostPort(r.address)
	if err != nil {
		return err
	}
	r.name, r.log = "redis-server", filepath.Join(c.dir, "redis.log")
	r.command = func(ctx context.Context) *exec.Cmd {
		return h.command(ctx, "redis-server", "--bind", address, "--port", port, "--dir", r.dir, "--protected-mode", "no",
			"--save", "", "--appendonly", "yes", "--appendfsync", c.config.Fsync, "--auto-aof-rewrite-percentage", "0")
	}
	c.Redis = r
	return r.begin(ctx)
}

// begin starts the server and waits until it has read its file.
func (r *redisServer) begin(ctx context.Context) error {
	if err := r.start(ctx); err != nil {
		return err
	}
	return r.await(ctx, "answers", func(ctx context.Context) error {
		answer, err := r.ask(ctx, "PING")
		if err == nil && answer != "+PONG" {
			err = fmt.Errorf("it says %q", answer)
		}
		return err
	})
}

// ask sends one command and returns the first line of the answer.
func (r *redisServer) ask(ctx context.Context, command string) (string, error) {
	dialer := net.Dialer{Timeout: time.Second}
	connection, err := dialer.DialContext(ctx, "tcp", r.address)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(connection, "%s\r\n", command); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(connection).ReadString('\n')
	return strings.TrimSpace(answer), err
}

// powerCut kills the server and takes from its disk what came in the given time
// before: what a machine without power loses that does not wait for its disk.
// It waits for so long first, to know what that is.
func (r *redisServer) powerCut(lost time.Duration) error {
	logs, err := filepath.Glob(filepath.Join(r.dir, "appendonlydir", "*.incr.aof"))
	if err != nil || len(logs) != 1 {
		return errors.Join(err, fmt.Errorf("%s holds %d append-only files, want 1", r.dir, len(logs)))
	}
	durable, err := os.Stat(logs[0])
	if err != nil {
		return err
	}
	time.Sleep(lost) // what is written in this time is what the cut takes
	r.kill()
	return os.Truncate(logs[0], durable.Size())
}
