package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/cmd/rowmill/command"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/internal/textfmt"
	embedded "github.com/rowmill/rowmill/store/bolt"
	"github.com/rowmill/rowmill/store/deployment"
	"github.com/rowmill/rowmill/store/kv/bolt"
)

// storageCommands has a method for each subcommand of `rowmill storage`. The
// subcommands open records and objects without a node, because they also repair storage
// with which no node can start.
type storageCommands struct{ term *terminal.IO }

func storageCommand(term *terminal.IO) *cobra.Command {
	s := storageCommands{term}
	root := &cobra.Command{
		Use:   "storage",
		Short: "Check that records and objects belong together, and remove objects without a record",
		Long: `Check that records and objects belong together, and remove objects without a record.

These commands open the records and the bucket directly, with the settings of a
node (--config, --data and so on). Nodes may run if records are in Redis. Only one
process can open records in a file: check then asks the running node; for the other
commands, stop the node.

A deployment has an identity, kept in its records and in its bucket. A node
refuses to start if the two differ. No node removes the objects of jobs that no
record knows, because these records may be lost. Such jobs are set aside: their
objects stay in their place until you purge them or the records come back.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(s.check(), s.quarantine(), s.purge(), s.adopt(), s.salvage())
	return root
}

// withStorage adds the flags of a node's settings to cmd. When cmd runs, it opens the
// storage that the settings name and calls body with this storage.
func (s storageCommands) withStorage(cmd *cobra.Command, body func(ctx context.Context, m *nodeStorage, args []string) error) *cobra.Command {
	return s.withStorageOrInUse(cmd, nil, body)
}

// withStorageOrInUse is like withStorage, but calls bodyIfInUse instead of body if another process
// uses the records. With nil for bodyIfInUse, this case is an error.
func (s storageCommands) withStorageOrInUse(cmd *cobra.Command, bodyIfInUse, body func(ctx context.Context, m *nodeStorage, args []string) error) *cobra.Command {
	load := addSettingsFlags(cmd.Flags(), s.term)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		set, err := load()
		if err != nil {
			return err
		}
		set.Log.Level = slog.LevelError.String()
		m := &nodeStorage{partBase: partBase{nodeEnv: newNodeEnv(set, newLogger(s.term, set.Log))}}
		defer func() { err = errors.Join(err, m.Stop(context.WithoutCancel(cmd.Context()))) }()
		switch err := m.open(cmd.Context()); {
		case bodyIfInUse != nil && errors.Is(err, bolt.ErrInUse):
			return bodyIfInUse(cmd.Context(), m, args)
		case err != nil:
			return exit.WithCode(exit.Failure, err)
		}
		return body(cmd.Context(), m, args)
	}
	return cmd
}

func (s storageCommands) check() *cobra.Command {
	var read bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Compare records and bucket in both directions; exit code 1 if they differ",
		Long: `Compare records and bucket in both directions and change nothing: their identities,
jobs with objects but no record, result files that records name and the bucket
does not have, damaged records, and the difference between the clocks of this
machine and the store. The exit code is 1 if anything is wrong. With many jobs the
check takes minutes.

If a running node uses records in a file, the command asks this node to check them:
set ROWMILL_SERVER to its address and ROWMILL_API_KEY to an administrator's key.`,
		Example: `  rowmill storage check --config /etc/rowmill/rowmill.yaml
  rowmill storage check --read
  rowmill storage check -o json | jq .missing`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&read, "read", false, "also read all results, and all parts of jobs without results, to find damaged ones")
	form := command.AddPrintFlag(cmd, "table", "json")
	report := func(m *nodeStorage, checked deployment.NodeReport) error {
		how, err := form()
		if err != nil {
			return err
		}
		if how == "json" {
			err = terminal.WriteJSON(s.term.Out, checked)
		} else {
			err = s.printStorageReport(checked)
		}
		skew := time.Duration(checked.SkewSeconds * float64(time.Second))
		if err == nil && (!checked.Matches() || skew.Abs() > m.Settings.Retention.ClockTolerance) {
			err = exit.WithCode(exit.Failure, errors.New("records and objects do not agree; rowmill storage --help says what can be done"))
		}
		return err
	}
	return s.withStorageOrInUse(cmd, func(ctx context.Context, m *nodeStorage, _ []string) error {
		checked, err := s.requestNodeCheck(ctx, m, read)
		if err != nil {
			return err
		}
		return report(m, checked)
	}, func(ctx context.Context, m *nodeStorage, _ []string) error {
		checked, err := m.checkConsistency(ctx, read, s.newProgressReporter())
		if err != nil {
			return err
		}
		return report(m, checked)
	})
}

// requestNodeCheck asks the node that uses the records to check its storage, and returns the report
// of the node.
func (s storageCommands) requestNodeCheck(ctx context.Context, m *nodeStorage, readResults bool) (checked deployment.NodeReport, err error) {
	api, err := (&connect.Options{Term: s.term, UserAgent: "rowmill/" + readBuildMetadata().Version}).NewClient()
	if err != nil {
		return checked, fmt.Errorf("a node uses the records, and must check them itself: %w", err)
	}
	defer api.Close()
	s.term.Say("a node uses the records and checks them itself")
	_, answer, err := api.CheckStorage(ctx, readResults)
	if err != nil {
		return checked, fmt.Errorf("a node uses the records, and must check them itself: %w", err)
	}
	if err := json.Unmarshal(answer.Raw, &checked); err != nil {
		return checked, fmt.Errorf("read the report of the node: %w", err)
	}
	if checked.RecordsAt != m.recordsLocation() {
		return checked, exit.WithCode(exit.Usage, fmt.Errorf("the node at ROWMILL_SERVER has its records at %s, and not at %s", checked.RecordsAt, m.recordsLocation()))
	}
	return checked, nil
}

// newProgressReporter returns a function that prints the number of checked jobs, at most every 5
// s.
func (s storageCommands) newProgressReporter() func(jobs int) {
	told := s.term.Now()
	return func(jobs int) {
		if now := s.term.Now(); now.Sub(told) > 5*time.Second {
			told = now
			s.term.Say("%s jobs are checked so far", terminal.FormatCount(int64(jobs)))
		}
	}
}

func (s storageCommands) printStorageReport(r deployment.NodeReport) error {
	identity := func(i *deployment.Identity) string {
		if i == nil {
			return "no identity yet"
		}
		return i.String()
	}
	return terminal.WriteTable(s.term.Out, func(row terminal.RowWriter) {
		row("records", r.RecordsAt, identity(r.Records))
		row("objects", r.ObjectsAt, identity(r.Bucket))
		row("clock", "this machine's is ahead of the store's by", (time.Duration(r.SkewSeconds) * time.Second).String())
		row("known jobs with objects", terminal.FormatCount(int64(r.Known)), "")
		row("jobs that no record knows", terminal.FormatCount(int64(len(r.Unknown))), textfmt.FormatSize(sumQuarantinedBytes(r.Unknown)))
		row("result files that are missing", terminal.FormatCount(int64(len(r.Missing))), "")
		row("damaged records and objects", terminal.FormatCount(int64(len(r.Damaged))), "")
		for _, n := range limitPrinted(r.Unknown) {
			row("unknown", n.JobID, describeQuarantined(n))
		}
		for _, f := range limitPrinted(r.Missing) {
			row("missing", f.JobID, f.Key)
		}
		for _, d := range limitPrinted(r.Damaged) {
			row("damaged", d.JobID, cmp.Or(d.Key, "its record")+": "+d.Reason)
		}
	})
}

// maxPrinted is how many jobs of each kind the text output lists; -o json lists all
// jobs.
const maxPrinted = 20

func limitPrinted[T any](list []T) []T { return list[:min(len(list), maxPrinted)] }

func sumQuarantinedBytes(notes []deployment.QuarantineNote) (bytes int64) {
	for _, n := range notes {
		bytes += n.Bytes
	}
	return bytes
}

func describeQuarantined(n deployment.QuarantineNote) string {
	text := fmt.Sprintf("%d objects, %s, last written %s", n.Objects, textfmt.FormatSize(n.Bytes), n.Newest.Format(time.RFC3339))
	if !n.Found.IsZero() {
		text += ", set aside " + n.Found.Format(time.RFC3339)
	}
	return text
}

func (s storageCommands) quarantine() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quarantine",
		Short: "Set aside now the jobs that no record knows, and list them",
		Long: `Set aside now the jobs that no record knows, and list them. Nodes do the same once
every retention.orphan_age. Objects that are set aside stay in their place; a note
in the bucket says since when. If the records know a job again, its note is removed.`,
		Example: `  rowmill storage quarantine --config /etc/rowmill/rowmill.yaml`,
		Args:    cobra.NoArgs,
	}
	form := command.AddPrintFlag(cmd, "table", "json")
	return s.withStorage(cmd, func(ctx context.Context, m *nodeStorage, _ []string) error {
		how, err := form()
		if err != nil {
			return err
		}
		if _, err := m.deploymentStorage().EnsureIdentity(ctx); err != nil { // do not write notes into the bucket of another deployment
			return err
		}
		report, err := m.deploymentStorage().Check(ctx, deployment.CheckOptions{Progress: s.newProgressReporter()})
		if err != nil {
			return err
		}
		notes, err := m.deploymentStorage().QuarantineUnknownJobs(ctx, report)
		if err != nil {
			return err
		}
		if how == "json" {
			return terminal.WriteJSON(s.term.Out, notes)
		}
		return s.printQuarantined(notes)
	})
}

func (s storageCommands) printQuarantined(notes []deployment.QuarantineNote) error {
	return s.term.PrintTable(func(row terminal.RowWriter) {
		row("JOB", "OBJECTS", "SIZE", "LAST WRITTEN", "SET ASIDE")
		for _, n := range notes {
			row(n.JobID, terminal.FormatCount(int64(n.Objects)), textfmt.FormatSize(n.Bytes), n.Newest.Format(time.RFC3339), n.Found.Format(time.RFC3339))
		}
	})
}

func (s storageCommands) purge() *cobra.Command {
	var all, dry, yes bool
	var older time.Duration
	cmd := &cobra.Command{
		Use:   "purge [JOB ...]",
		Short: "Remove the objects of jobs that were set aside, for good",
		Long: `Remove the objects of jobs that were set aside, for good: of the named jobs, of jobs
set aside longer ago than --older-than, or of --all. Jobs that have a record
again stay. The command asks before it removes anything, unless --yes is given.`,
		Example: `  rowmill storage purge --older-than 720h --dry-run
  rowmill storage purge job-019ab3c4-5a3e-7c11-9f0d-2b8f2d8c3c11 --yes`,
	}
	cmd.Flags().BoolVar(&all, "all", false, "all jobs that are set aside")
	cmd.Flags().DurationVar(&older, "older-than", 0, "jobs that were set aside longer ago than this, such as 720h")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print which jobs would be removed, and remove nothing")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return s.withStorage(cmd, func(ctx context.Context, m *nodeStorage, args []string) error {
		ways := slices.DeleteFunc([]bool{len(args) > 0, all, older > 0}, func(given bool) bool { return !given })
		if len(ways) != 1 {
			return exit.WithCode(exit.Usage, errors.New("name the jobs to remove, or give --older-than or --all"))
		}
		notes, err := m.deploymentStorage().ListQuarantineNotes(ctx)
		if err != nil {
			return err
		}
		chosen := slices.DeleteFunc(notes, func(n deployment.QuarantineNote) bool {
			return !all && !slices.Contains(args, n.JobID) && (older <= 0 || m.now().Sub(n.Found) < older)
		})
		slices.Sort(args)
		if len(chosen) < len(slices.Compact(args)) {
			return exit.WithCode(exit.NotFound, errors.New("not all of the named jobs are set aside; rowmill storage quarantine lists the jobs that are"))
		}
		if err := s.printQuarantined(chosen); err != nil || dry || len(chosen) == 0 {
			return err
		}
		if !yes && !s.askForYes("remove the files of %d jobs (%s)? They cannot be restored.", len(chosen), textfmt.FormatSize(sumQuarantinedBytes(chosen))) {
			return exit.WithCode(exit.Failure, errors.New("nothing was removed"))
		}
		return s.purgeJobs(ctx, m, chosen)
	})
}

// purgeJobs purges jobs. If a purge fails, or the records know the job again, it continues
// with the next job. It returns the first error.
func (s storageCommands) purgeJobs(ctx context.Context, m *nodeStorage, notes []deployment.QuarantineNote) error {
	removed, failed := 0, error(nil)
	for _, n := range notes {
		switch err := m.deploymentStorage().PurgeUnknownJob(ctx, n.JobID); {
		case err == nil:
			removed++
		case errors.Is(err, deployment.ErrKnown), errors.Is(err, rowmill.ErrNotFound):
			s.term.Say("the files of job %s were not removed: %v", n.JobID, err)
		default:
			failed = cmp.Or(failed, err)
		}
	}
	s.term.Say("%d jobs were removed", removed)
	return failed
}

// askForYes asks the operator a question, and reports whether the answer is yes.
func (s storageCommands) askForYes(question string, args ...any) bool {
	s.term.Say(question+" [yes/no]", args...)
	line, _ := bufio.NewReader(s.term.In).ReadString('\n')
	return strings.TrimSpace(line) == "yes"
}

func (s storageCommands) adopt() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Give the records and the bucket the same identity, so that nodes use both together",
		Long: `Give the records and the bucket the same identity, so that nodes use both together:
after Redis was restored empty, after the bucket was moved, or to use both together
from now on. If only one has an identity, the other gets it; if their identities
differ, both get a new one. Another deployment that uses one of them is then not
ready, and removes nothing.

Nothing is removed. Jobs in the bucket that the records do not know are set
aside; results that the records name and the bucket does not have stay missing.
The command asks first, unless --yes is given.`,
		Example: `  rowmill storage check --config /etc/rowmill/rowmill.yaml
  rowmill storage adopt --config /etc/rowmill/rowmill.yaml`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return s.withStorage(cmd, func(ctx context.Context, m *nodeStorage, _ []string) error {
		if !yes && !s.askForYes("do the records at %s and the objects in %s belong together, and does no other deployment use them?", m.recordsLocation(), m.objectsLocation()) {
			return exit.WithCode(exit.Failure, errors.New("nothing was changed"))
		}
		settled, _, _, err := m.deploymentStorage().AdoptIdentity(ctx)
		if err != nil {
			return err
		}
		s.term.Say("both are %v", settled)
		return nil
	})
}

func (s storageCommands) salvage() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "salvage",
		Short: "Replace a damaged record file by a new one with all records that can be read",
		Long: `Replace a damaged record file by a new one with all records that can be read, and
print the losses. If you have a backup, restore it instead: it loses less. A
file that a node can open is not changed. The damaged file stays, as
rowmill.db.damaged.

Lost jobs keep their objects: rowmill storage check lists these jobs. Rows run again,
and cost again, if their records are lost. If pages of the tables usage or keyusage are
lost, the usage of some days is too low.`,
		Example: `  rowmill storage salvage --data /srv/rowmill
  rowmill storage check --data /srv/rowmill`,
		Args: cobra.NoArgs,
	}
	load := addSettingsFlags(cmd.Flags(), s.term)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		set, err := load()
		if err != nil {
			return err
		}
		if !set.Store.IsEmbedded() {
			return exit.WithCode(exit.Usage, errors.New("the records are in Redis; only the record file of a single node can be salvaged"))
		}
		path := filepath.Join(set.Data, "rowmill.db")
		losses, damaged, err := embedded.Salvage(cmd.Context(), embedded.Config{Path: path})
		if errors.Is(err, embedded.ErrNotDamaged) {
			s.term.Say("nothing was changed: a node can open %s; rowmill storage check lists single damaged records", path)
			return nil
		}
		if err != nil {
			return exit.WithCode(exit.Failure, err)
		}
		if len(losses) == 0 && damaged == 0 {
			s.term.Say("nothing is lost")
		}
		for _, l := range losses {
			s.term.Say("lost: records of table %s on page %d: %v", cmp.Or(l.Bucket, "(unknown)"), l.Page, l.Err)
		}
		if damaged > 0 {
			s.term.Say("lost: %s records with a wrong checksum", terminal.FormatCount(int64(damaged)))
		}
		s.term.Say("the damaged file is %s.damaged", path)
		return nil
	}
	return cmd
}
