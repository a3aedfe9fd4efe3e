// Package clitest runs command lines against the API of a service that keeps records
// and runs no jobs. It knows no command: each test passes its own.
package clitest

import (
	"bytes"
	"context"
	"fmt"
	nethttp "net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/dir"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/engine/served"
	"github.com/rowmill/rowmill/http"
	"github.com/rowmill/rowmill/http/jobs"
	"github.com/rowmill/rowmill/http/nodes"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/bolt"
)

// adminKey is the administrator's key of the service, and the first value of Program.Key.
const adminKey = "administrator"

// IdleService is a service that has no work and no servers.
type IdleService struct {
	nodes.Service
}

// NotifySubmitted does nothing.
func (IdleService) NotifySubmitted(store.Record) {}

// NotifyRescheduled does nothing.
func (IdleService) NotifyRescheduled(store.Record) {}

// NotifyCancelled does nothing.
func (IdleService) NotifyCancelled(string) {}

// Checks returns no checks.
func (IdleService) Checks(context.Context) []http.ReadinessCheck { return nil }

// Draining returns false.
func (IdleService) Draining() bool { return false }

// WaitReason returns no reason.
func (IdleService) WaitReason(*rowmill.Job, string) string { return "" }

// RowDistribution returns nil: it is not known where rows are.
func (IdleService) RowDistribution(context.Context, *store.Record) *jobs.RowDistribution { return nil }

// Servers returns no servers.
func (IdleService) Servers() []served.Server { return nil }

// Counting returns the zero value.
func (IdleService) Counting(rowmill.Model) http.TokenCounting { return http.TokenCounting{} }

// Config holds the commands to run and their service.
type Config struct {
	Commands func(service connect.Options) []*cobra.Command
	Service  http.Service                              // default: IdleService
	Wrap     func(api nethttp.Handler) nethttp.Handler // puts a handler around the API; default: none
}

// A Program runs commands of rowmill against a service. Key, Stdin and Now may be changed between
// runs.
type Program struct {
	testing.TB
	Store    *bolt.Store
	Key      string
	Stdin    string
	Now      time.Time // current time for the service and the commands; zero means the real time
	Out, Err bytes.Buffer

	commands func(connect.Options) []*cobra.Command
	url      string
}

// Start starts a service that runs until the end of the test, and returns a Program for
// it.
func Start(t testing.TB, cfg Config) *Program {
	t.Helper()
	p := &Program{TB: t, Key: adminKey, commands: cfg.Commands}
	var err error
	if p.Store, err = bolt.Open(t.Context(), bolt.Config{Path: filepath.Join(t.TempDir(), "records.db"), Clock: p.clock}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Store.Close() })
	bucket, err := dir.Open(dir.Config{Root: t.TempDir(), NoSync: true})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = bucket.Close() })
	if cfg.Service == nil {
		cfg.Service = IdleService{}
	}
	api, err := http.New(http.Config{
		Store: p.Store, Bucket: bucket, Catalog: catalog.Default(), Service: cfg.Service, AdminKeys: []string{adminKey}, Now: p.clock,
	})
	must.Succeed(t, err)
	handler := api.Handler()
	if cfg.Wrap != nil {
		handler = cfg.Wrap(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

func (p *Program) clock() time.Time {
	if p.Now.IsZero() {
		return time.Now()
	}
	return p.Now
}

// Run runs a command line without quoted arguments, such as "keys list".
func (p *Program) Run(line string) *Program {
	p.Helper()
	return p.RunArgs(strings.Fields(line)...)
}

// RunArgs runs a command like Run, with arguments that may contain spaces.
func (p *Program) RunArgs(args ...string) *Program {
	p.Helper()
	p.Out.Reset()
	p.Err.Reset()
	root := &cobra.Command{Use: "rowmill", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(p.commands(connect.Options{Term: &terminal.IO{
		In: strings.NewReader(p.Stdin), Out: &p.Out, Err: &p.Err, Width: func() int { return 80 }, Clock: p.clock,
		Environ: []string{"ROWMILL_SERVER=" + p.url, "ROWMILL_API_KEY=" + p.Key},
	}})...)
	root.SetArgs(args)
	root.SetOut(&p.Out)
	root.SetErr(&p.Err)
	err := root.ExecuteContext(p.Context())
	if err != nil {
		fmt.Fprintln(&p.Err, err)
	}
	fmt.Fprintf(&p.Err, "exit code %d\n", exit.Code(err))
	return p
}

// WantOutput checks the exit code of the last run, and that its output (standard output and
// error) contains each text.
func (p *Program) WantOutput(code int, texts ...string) *Program {
	p.Helper()
	both := p.Out.String() + p.Err.String()
	for _, text := range append(texts, fmt.Sprintf("exit code %d\n", code)) {
		if !strings.Contains(both, text) {
			p.Errorf("the output lacks %q:\n%s", text, both)
		}
	}
	return p
}

// WantTable checks the lines of standard output. It ignores the number of spaces between
// columns.
func (p *Program) WantTable(lines ...string) *Program {
	p.Helper()
	var got []string
	for line := range strings.Lines(p.Out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	if want := strings.Join(lines, "\n"); strings.Join(got, "\n") != want {
		p.Errorf("printed\n%s\nwant\n%s\n%s", strings.Join(got, "\n"), want, p.Err.String())
	}
	return p
}
