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

// redisServer is a redis-server with an append-only file.
type redisServer struct {
	process
	host    *host
	address string
	dir     string
}

func (c *Cluster) startRedis(ctx context.Context) (err error) {
	if c.Redis, err = c.startServer(ctx, "redis"); err != nil || !c.config.Sentinels {
		return err
	}
	return c.startSentinels(ctx)
}

// startServer starts a redis-server on a host of its own.
func (c *Cluster) startServer(ctx context.Context, name string, more ...string) (r *redisServer, err error) {
	r = &redisServer{dir: filepath.Join(c.dir, name)}
	if r.host, err = newHost(ctx, c.network, name); err != nil {
		return nil, err
	}
	if r.address, err = r.host.listen(ctx, 6379); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, err
	}
	address, port, err := net.SplitHostPort(r.address)
	if err != nil {
		return nil, err
	}
	r.name, r.log = name, r.dir+".log"
	args := append([]string{
		"redis-server", "--bind", address, "--port", port, "--dir", r.dir, "--protected-mode", "no",
		"--save", "", "--appendonly", "yes", "--appendfsync", c.config.Fsync, "--auto-aof-rewrite-percentage", "0",
		"--repl-diskless-sync-delay", "0",
	}, more...) // a copy must be of the time of its request
	r.command = func(ctx context.Context) *exec.Cmd { return r.host.command(ctx, args[0], args[1:]...) }
	return r, r.begin(ctx)
}

// begin starts the server and waits until it has loaded its file.
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

// powerCut kills the server after when returns, and removes the writes of the given time before
// from its file: a server that does not wait for its disk loses them without power.
func (r *redisServer) powerCut(lost time.Duration, when func() error) error {
	logs, err := filepath.Glob(filepath.Join(r.dir, "appendonlydir", "*.incr.aof"))
	if err != nil || len(logs) != 1 {
		return errors.Join(err, fmt.Errorf("%s holds %d append-only files, want 1", r.dir, len(logs)))
	}
	type size struct {
		at    time.Time
		bytes int64
	}
	var sizes []size // oldest first
	var failed error
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			info, err := os.Stat(logs[0])
			if err != nil {
				failed = err
				return
			}
			sizes = append(sizes, size{time.Now(), info.Size()})
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	}()
	time.Sleep(lost)
	err = when()
	r.kill()
	killed := time.Now()
	close(stop)
	if <-stopped; errors.Join(err, failed) != nil {
		return errors.Join(err, failed)
	}
	durable := sizes[0].bytes
	for _, s := range sizes {
		if killed.Sub(s.at) >= lost {
			durable = s.bytes
		}
	}
	return os.Truncate(logs[0], durable)
}
