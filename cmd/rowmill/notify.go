package main

import (
	"context"
	"fmt"
	"net"
)

// What systemd is told: see sd_notify(3).
const (
	notifyReady    = "READY=1"
	notifyStopping = "STOPPING=1"
)

// notify tells systemd how far the service is, where it listens: at socket, the value
// of NOTIFY_SOCKET. Elsewhere that is empty and nothing happens.
func notify(ctx context.Context, socket, state string) error {
	if socket == "" {
		return nil
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unixgram", socket)
	if err != nil {
		return fmt.Errorf("tell systemd %s: %w", state, err)
	}
	defer func() { _ = conn.Close() }() // nothing is read
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("tell systemd %s: %w", state, err)
	}
	return nil
}
