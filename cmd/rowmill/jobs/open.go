package jobs

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/client"
)

func (c *jobCommands) open() *cobra.Command {
	printOnly := false
	cmd := c.withJobCompletion(&cobra.Command{
		Use:   "open JOB",
		Short: "Open a job in the console",
		Long: `Print the address of a job in the console, and open it in a browser if this machine has
a display.`,
		Args: cobra.ExactArgs(1),
	})
	cmd.Flags().BoolVar(&printOnly, "print", false, "only print the address")
	return c.SetBody(cmd, func(ctx context.Context, api *client.Client, args []string) error {
		job, err := api.Job(ctx, args[0])
		if err != nil {
			return fmt.Errorf("open %s: %w", args[0], err)
		}
		address := consoleAddress(api, job.ID)
		if _, err := fmt.Fprintln(c.Term.Out, address); err != nil {
			return err
		}
		opener := findOpener(runtime.GOOS, c.Term.Getenv)
		if printOnly || opener == "" {
			return nil
		}
		browser := exec.Command(opener, address) //nolint:noctx // the browser may outlive this command
		browser.Env = c.Term.Environ
		if err := browser.Start(); err != nil {
			c.Term.Say("no browser was opened: %v", err)
		}
		return nil
	})
}

// consoleAddress returns the address of a job in the console.
func consoleAddress(api *client.Client, id string) string {
	return api.Server() + "/console/jobs/" + id
}

// findOpener returns the program that opens an address in a browser; empty if there is no
// display.
func findOpener(system string, getenv func(string) string) string {
	switch {
	case system == "darwin":
		return "open"
	case getenv("DISPLAY") != "" || getenv("WAYLAND_DISPLAY") != "":
		return "xdg-open"
	}
	return ""
}
