// Package doctor examines a deployment and reports problems with their remedies. Nodes
// check themselves and report the results by the API; this package compares the nodes,
// checks settings, and prints. It changes nothing except one object that each node
// writes to test its bucket.
package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/command"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// errFound means that a check has failed.
var errFound = errors.New("something is wrong, see above")

// Times after which a waiting message or a running task counts as stuck.
const (
	stuckMessage = time.Minute
	longTask     = 10 * time.Minute
)

// slowTasks are the tasks of actors that may run for a long time without being stuck.
var slowTasks = []string{"read the input", "wait for writes", "stop a worker", "drop parts later"}

type doctorCommand struct {
	command.GroupOptions
	config string
	found  []client.Finding
}

// Command returns `rowmill doctor`.
func Command(service connect.Options) *cobra.Command {
	d := &doctorCommand{GroupOptions: command.GroupOptions{Options: service}}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check a deployment from outside, and print what to do",
		Long: `Check a deployment from outside, and print what to do.

It needs an administrator's key of the account "default". Every node
tries its records, its bucket, its inference servers and the other nodes; then the
command compares the nodes. Each line is a check: ok, warn (it works, but should be
improved) or fail (it does not work, or data or keys are in danger), with the
remedy.

With --config it also checks the settings of a node, which need not run.

The exit code is 1 if a check fails, otherwise 0, also with warnings.

` + connect.Help,
		Example: `  rowmill doctor --server https://mill.example.org
  rowmill doctor --config /etc/rowmill/rowmill.yaml
  rowmill doctor -o json | jq '.findings[] | select(.level != "ok")'`,
		Args: cobra.NoArgs,
	}
	d.AddFlags(cmd)
	cmd.Flags().StringVar(&d.config, "config", "", "also check the settings of a node, a YAML file")
	form := command.AddPrintFlag(cmd, "table", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		chosen, err := form()
		if err != nil {
			return err
		}
		d.found = nil
		d.runChecks(cmd.Context())
		return d.printFindings(chosen == "json")
	}
	return cmd
}

func (d *doctorCommand) addFinding(check, level, text, remedy string) {
	d.found = append(d.found, client.Finding{Check: check, Level: level, Text: text, Remedy: remedy})
}

func (d *doctorCommand) runChecks(ctx context.Context) {
	if d.config != "" {
		d.checkSettingsFile()
	}
	api, err := d.NewClient()
	if err != nil {
		d.addFinding("key", Fail, err.Error(), "set ROWMILL_SERVER and ROWMILL_API_KEY to the service and an administrator's key")
		return
	}
	defer api.Close()
	d.checkServerTLS(ctx, api.Server())
	if d.checkAPIKey(ctx, api) {
		d.checkNodes(ctx, api)
		d.checkActors(ctx, api)
	}
}

func (d *doctorCommand) checkSettingsFile() {
	set, err := settings.Load(settings.Sources{Environ: d.Term.Environ, File: d.config})
	if err != nil {
		d.addFinding("settings", Fail, err.Error(), "correct "+d.config+"; docs/configuration.md has all settings")
		return
	}
	found := CheckSettings(set, d.Term.Now())
	d.found = append(d.found, found...)
	if len(found) == 0 {
		d.addFinding("settings", OK, d.config+" is valid", "")
	}
}

// checkServerTLS checks the TLS certificate that the service presents to clients.
func (d *doctorCommand) checkServerTLS(ctx context.Context, server string) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" {
		return // if a node accepts plain HTTP from a network, its own report says so
	}
	address := u.Host
	if u.Port() == "" {
		address = net.JoinHostPort(u.Hostname(), "443")
	}
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: 5 * time.Second}, Config: &tls.Config{MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	var invalid *tls.CertificateVerificationError
	switch {
	case errors.As(err, &invalid):
		d.addFinding("certificate", Fail, fmt.Sprintf("%s presents a certificate that clients refuse: %v", address, invalid.Err), "put a valid certificate for that name into http.tls_cert, or into the proxy before the nodes")
		return
	case err != nil:
		return // checkAPIKey reports that the service does not answer
	}
	defer conn.Close()
	leaf := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
	until := leaf.NotAfter.UTC().Format(time.RFC3339)
	if d.Term.Now().Add(expiresSoon).After(leaf.NotAfter) {
		d.addFinding("certificate", Warn, fmt.Sprintf("the certificate of %s is valid only until %s", address, until), "renew it")
		return
	}
	d.addFinding("certificate", OK, fmt.Sprintf("the certificate of %s is valid until %s", address, until), "")
}

// checkAPIKey checks that the service answers and that the key is valid. It returns true
// if the key allows the other checks.
func (d *doctorCommand) checkAPIKey(ctx context.Context, api *client.Client) bool {
	found, _, err := api.ListNodes(ctx)
	var refused *client.APIError
	switch {
	case err == nil:
		d.addFinding("api", OK, fmt.Sprintf("%s answers, %d nodes", api.Server(), len(found.Nodes)), "")
		d.addFinding("key", OK, "it is an administrator's key of the account default", "")
		for _, n := range found.Nodes {
			if n.State != "running" {
				d.addFinding("node "+n.Name, Warn, "it is "+n.State+" and takes no jobs", "wait until it has left; start it again if you still need it")
			}
		}
		return true
	case errors.As(err, &refused) && refused.Status == 401:
		d.addFinding("key", Fail, "the key is unknown, revoked or expired", "take another one; `rowmill keys create --role admin` makes one, and a key in the api_key_file of a node's settings is valid as long as it is in the file")
	case errors.As(err, &refused) && refused.Status == 403:
		d.addFinding("key", Fail, "the key is valid, but its role does not allow listing nodes", "take an administrator's key of the account default")
	case errors.As(err, &refused):
		d.addFinding("api", Fail, fmt.Sprintf("%s answers with an error: %v", api.Server(), err), "look into the log of the node")
	default:
		d.addFinding("api", Fail, fmt.Sprintf("%s does not answer: %v", api.Server(), err), "look whether a node runs and listens there (http.listen), and whether a firewall or proxy blocks the way")
	}
	return false
}

func (d *doctorCommand) checkNodes(ctx context.Context, api *client.Client) {
	found, _, err := api.Diagnose(ctx)
	if err != nil {
		d.addFinding("nodes", Fail, fmt.Sprintf("cannot be examined: %v", err), "upgrade all nodes to this version")
		return
	}
	for _, n := range found.Nodes {
		if n.Facts == nil {
			continue
		}
		for _, f := range n.Facts.Findings {
			f.Check = n.Name + ": " + f.Check
			d.found = append(d.found, f)
		}
	}
	d.found = append(d.found, compareNodes(found.Nodes)...)
}

// checkActors reports stuck actors, and the reasons why jobs wait.
func (d *doctorCommand) checkActors(ctx context.Context, api *client.Client) {
	listed, _, err := api.ListActors(ctx, client.ListActorsParams{})
	if err != nil {
		d.addFinding("actors", Fail, fmt.Sprintf("cannot be listed: %v", err), "look into the log of the node")
		return
	}
	well := true
	for _, a := range listed.Actors {
		text, level, remedy := diagnoseActor(a)
		if level == OK {
			continue
		}
		well = false
		if a.LastError != nil {
			text += "; last error: " + a.LastError.Message
		}
		d.addFinding(a.Node+": "+a.Kind+" "+a.JobID+a.Engine, level, text, remedy)
	}
	if well {
		d.addFinding("actors", OK, fmt.Sprintf("%d, none is stuck", len(listed.Actors)), "")
	}
}

// diagnoseActor decides whether an actor is stuck, and returns the finding. The level is OK if
// nothing is wrong.
func diagnoseActor(a client.Actor) (text, level, remedy string) {
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	message, task := seconds(a.OldestMessageSeconds), seconds(a.TaskSeconds)
	switch {
	case a.State != "running":
		return "it has panicked", Warn, "report the fault with the stack in the log of the node; its job has failed and can be resumed"
	case message > stuckMessage:
		return fmt.Sprintf("a message has waited for %v", message.Round(time.Second)), Fail, "drain and restart node " + a.Node + "; kill it if it does not drain"
	case a.Task == "wait for an engine" && task > stuckMessage:
		return fmt.Sprintf("no server of its model has been up for %v", task.Round(time.Second)), Warn, "start one, or name it in engines; `rowmill jobs get` says which model, `rowmill nodes list` which are served. The job fails after jobs.wait_for_engine"
	case task > longTask && !slices.Contains(slowTasks, a.Task):
		return fmt.Sprintf("its task \"%s\" has run for %v", a.Task, task.Round(time.Second)), Warn, "look at the storage or the server that its last error names"
	}
	return "", OK, ""
}

// printFindings prints the findings. It returns errFound if a finding has the level Fail.
func (d *doctorCommand) printFindings(asJSON bool) error {
	failed := slices.ContainsFunc(d.found, func(f client.Finding) bool { return f.Level == Fail })
	var err error
	if asJSON {
		err = terminal.WriteJSON(d.Term.Out, map[string]any{"findings": d.found, "ok": !failed})
	} else {
		err = d.writeFindings(d.Term.Out)
	}
	if err == nil && failed {
		err = exit.WithCode(exit.Failure, errFound)
	}
	return err
}

func (d *doctorCommand) writeFindings(w io.Writer) error {
	for _, f := range d.found {
		level := d.Term.PaintState(fmt.Sprintf("%-4s", f.Level))
		if _, err := io.WriteString(w, terminal.FormatFinding(level, f.Check+": "+f.Text, f.Remedy)+"\n"); err != nil {
			return err
		}
	}
	return nil
}
