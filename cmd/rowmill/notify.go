package main

import (
	"context"
	"fmt"
	"net"
)

// States of the service that notifySystemd sends to systemd; see sd_notify(3).
const (
	notifyReady    = "READY=1"
	notifyStopping = "STOPPING=1"
)

// notifySystemd sends a state of the service to systemd. socket is the value of the variable
// NOTIFY_SOCKET. If socket is empty, systemd expects no state and notifySystemd does
// nothing.
func notifySystemd(ctx context.Context, socket, state string) error {
	if socket == "" {
		return nil
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unixgram", socket)
	if err != nil {
		return fmt.Errorf("tell systemd %s: %w", state, err)
	}
	defer func() { _ = conn.Close() }() // systemd sends no answer
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("tell systemd %s: %w", state, err)
	}
	return nil
}
