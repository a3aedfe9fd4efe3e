// Command rowmill is a batch-inference service and its client: `rowmill serve` runs a
// node, and `rowmill jobs` sends jobs to it. This package reads the flags, creates the
// parts of a node, and starts and stops them. The parts do their work in other
// packages.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

func main() {
	ctx, stop := contextUntilSignal(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, terminal.StandardIO(), os.Args[1:])
	stop()
	os.Exit(code)
}

// contextUntilSignal returns a context that the first of these signals cancels; the cause is
// an exit.Signal. A second signal ends the process at once. The returned function
// cancels the context without a signal.
func contextUntilSignal(parent context.Context, signals ...os.Signal) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	arrived := make(chan os.Signal, 1)
	signal.Notify(arrived, signals...)
	go func() {
		select {
		case s := <-arrived:
			signal.Stop(arrived) // Go's default applies again: the next signal ends the process
			cancel(exit.Signal{Signal: s})
		case <-ctx.Done():
			signal.Stop(arrived)
		}
	}()
	return ctx, func() { cancel(nil) }
}
