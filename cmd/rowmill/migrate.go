package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/dir"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/store/backup"
	"github.com/rowmill/rowmill/store/bolt"
	"github.com/rowmill/rowmill/store/deployment"
	"github.com/rowmill/rowmill/store/deployment/move"
)

func migrateCommand(term *terminal.IO) *cobra.Command {
	g := &migration{term: term}
	cmd := &cobra.Command{
		Use:   "migrate --from PLACE --to PLACE",
		Short: "Move all data of nodes: from a directory to Redis and S3, or back",
		Long: `Move all data of nodes from one place to another: from the directory of a single
node to the Redis and S3 of a cluster, back, or between two places of the same kind.

--from and --to take a PLACE: the data directory of a single node, or a file of settings
(.yaml, .yml) that names Redis, S3 or a directory. --from also takes an archive of
rowmill backup; - means an archive on standard input. The command reads ROWMILL_
variables only if a file of settings names them (store.url_env and similar settings).

The command moves jobs with inputs, parts and results, byte for byte; keys, Functions,
files, batches, webhooks with their waiting events, settings, quotas, usage, the audit
record, and the signing secrets. Running jobs continue from their last recorded parts.
It does not move settings files, nor administrator keys that nodes get from
ROWMILL_API_KEY or a file. Old download URLs lead to the old place.

Stop all nodes of --from first: while a node runs, the command refuses to move anything.
The service is away for less time if you move a backup of a running node, but changes
after the backup are lost. The command does not change --from.

--to must be empty. The command marks --to as incomplete until everything is copied
and compared, and no node starts on a marked place. After a failure or a kill run the
same command with --force, which removes the incomplete copy and begins again. --force
removes nothing else.

If a place is a directory, run the command as the user of its node.

` + exit.Help,
		Example: `  systemctl stop rowmill && sudo -u rowmill rowmill migrate --from /var/lib/rowmill --to cluster.yaml
  rowmill backup - | rowmill migrate --from - --to cluster.yaml     # while the node runs
  rowmill migrate --from cluster.yaml --to /srv/rowmill             # a single node again`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&g.from, "from", "", "place to move from: a data directory, a file of settings, an archive of rowmill backup, or - for standard input")
	cmd.Flags().StringVar(&g.to, "to", "", "empty place to move to: a data directory, or a file of settings")
	cmd.Flags().BoolVar(&g.force, "force", false, "remove the data of an unfinished migration from --to, and begin again")
	cmd.Flags().BoolVarP(&term.Quiet, "quiet", "q", term.Quiet, "no progress, and no messages except errors")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return g.run(cmd.Context()) }
	return cmd
}

// A migration is one run of the migrate command.
type migration struct {
	term     *terminal.IO
	from, to string
	force    bool

	mu       sync.Mutex
	progress *terminal.Progress
	totals   map[string]int64 // number of records or objects to move, by phase; no entry before the number is known
	shown    time.Time
}

func (g *migration) run(ctx context.Context) (err error) {
	if g.from == "" || g.to == "" {
		return exit.WithCode(exit.Usage, errors.New("name both places, --from and --to; see rowmill migrate --help"))
	}
	if g.to == "-" || isArchiveFile(g.to) {
		return exit.WithCode(exit.Usage, fmt.Errorf("--to %s: an archive cannot be moved to; name a file of settings or a data directory", g.to))
	}
	if isSameFile(g.from, g.to) {
		return exit.WithCode(exit.Usage, errors.New("--from and --to are the same place"))
	}
	g.progress, g.totals = terminal.NewProgress(g.term), map[string]int64{}
	defer g.progress.Clear()
	var source *openedStorage
	var identity deployment.Identity
	var before *move.ContentSummary
	archived := g.from == "-" || isArchiveFile(g.from)
	if !archived {
		if source, err = g.openStorage(ctx, "--from", g.from, true); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, source.close(ctx)) }()
		if identity, err = source.place.ReadSourceIdentity(ctx); err != nil {
			return fmt.Errorf("--from: %w", err)
		}
		found, err := g.summarizeSource(ctx, source.place)
		if err != nil {
			return fmt.Errorf("--from: %w", err)
		}
		before = &found
	}
	target, err := g.openStorage(ctx, "--to", g.to, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.close(ctx)) }()
	m, err := move.Begin(ctx, target.place, g.force, g.showProgress)
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	var records move.Records
	if archived {
		a := &archiveSource{move: m, g: g}
		defer func() { err = errors.Join(err, a.close()) }()
		if records, identity, err = a.importArchive(ctx, g.from); err != nil {
			return fmt.Errorf("--from %s: %w", g.from, err)
		}
	} else {
		records = source.place.Records
		if err := m.CopyObjects(ctx, source.place.Bucket); err != nil {
			return g.wrapIncompleteError(err)
		}
	}
	if err := m.CopyRecords(ctx, records); err != nil {
		return g.wrapIncompleteError(err)
	}
	moved, settled, err := m.End(ctx, records, before, identity)
	if err != nil {
		return g.wrapIncompleteError(err)
	}
	g.progress.Clear()
	_, err = fmt.Fprintf(g.term.Out, "moved to %s and %s: %s; %s objects, %s; compared, no difference. The new place is %s\n",
		target.place.RecordsName, target.place.BucketName, moved, terminal.FormatCount(moved.Objects), textfmt.FormatSize(moved.Bytes), settled)
	if err == nil && !archived {
		g.term.Say("nothing was changed at --from: start no node there any more, both would run the same jobs")
	}
	return err
}

// wrapIncompleteError adds to err that --to is incomplete, and how to continue. It is for errors
// after the move has begun.
func (g *migration) wrapIncompleteError(err error) error {
	return fmt.Errorf("%w; --to is not complete, and no node starts on it: repair the cause and run the same command with --force", err)
}

func (g *migration) summarizeSource(ctx context.Context, from move.Location) (move.ContentSummary, error) {
	found, err := move.SummarizeRecords(ctx, from.Records)
	if errors.Is(err, rowmill.ErrConflict) {
		err = fmt.Errorf("%w; stop all nodes; a node that was killed counts as running for some seconds", err)
	}
	if err != nil {
		return found, err
	}
	g.totals["records"] = found.Total()
	g.totals["objects"], err = move.CountObjects(ctx, from.Bucket)
	return found, err
}

// showEvery is the time between two updates of the progress line.
const showEvery = 200 * time.Millisecond

func (g *migration) showProgress(phase string, done int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, total := g.term.Now(), int64(-1)
	if known, ok := g.totals[phase]; ok {
		total = known
	}
	if now.Sub(g.shown) < showEvery && done != total {
		return
	}
	g.shown = now
	g.progress.Update(terminal.ProgressSnapshot{Now: now, Phase: phase, Unit: phase, Done: done, Total: total})
}

func isSettingsFile(name string) bool {
	ext := strings.ToLower(filepath.Ext(name))
	return ext == ".yaml" || ext == ".yml"
}

// isArchiveFile reports whether name is an existing file that is not a settings file.
func isArchiveFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && !info.IsDir() && !isSettingsFile(name)
}

func isSameFile(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

// An openedStorage is the source or the target of a migration: the storage of a node that
// does not run, opened by this command.
type openedStorage struct {
	*nodeStorage
	place move.Location
}

func (o *openedStorage) close(ctx context.Context) error {
	return o.Stop(context.WithoutCancel(ctx))
}

// openStorage opens the storage that a flag names by a settings file or a data directory. If
// mustExist is true, it returns an error for a data directory without records.
func (g *migration) openStorage(ctx context.Context, flag, location string, mustExist bool) (_ *openedStorage, err error) {
	src := settings.Sources{Environ: g.term.Environ, Alone: true}
	if isSettingsFile(location) {
		src.File = location
	} else {
		src.Flags = []settings.Flag{{Name: flag, Key: "data", Values: []string{location}}}
	}
	set, err := settings.Load(src)
	if err != nil {
		return nil, exit.WithCode(exit.Usage, fmt.Errorf("%s: %w", flag, err))
	}
	set.Log.Level = slog.LevelError.String()
	if set.Data, err = filepath.Abs(set.Data); err != nil {
		return nil, err
	}
	if file := filepath.Join(set.Data, backup.Records); mustExist && set.Store.IsEmbedded() {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return nil, exit.WithCode(exit.Usage, fmt.Errorf("%s %s: there is no %s: it is not the data directory of a node, nor a file of settings or an archive", flag, location, file))
		}
	}
	if set.Store.IsEmbedded() || set.Objects.URL == "" {
		if err := checkDirectoryOwner(set.Data); err != nil {
			return nil, exit.WithCode(exit.Usage, fmt.Errorf("%s: %w", flag, err))
		}
	}
	o := &openedStorage{nodeStorage: &nodeStorage{partBase: partBase{nodeEnv: newNodeEnv(set, newLogger(g.term, set.Log))}}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w", flag, err), o.close(ctx))
		}
	}()
	if err := o.openRecords(ctx); err != nil {
		return nil, err
	}
	if set.Objects.URL != "" {
		err = o.openS3(ctx)
	} else if o.folder, err = dir.Open(dir.Config{Root: set.Data, Logger: o.Logger}); err == nil {
		o.Bucket = o.folder // no keys, because nothing is signed here
		o.addCloser("bucket", func(context.Context) error { return o.folder.Close() })
	}
	if err != nil {
		return nil, err
	}
	o.place.Storage = o.deploymentStorage()
	return o, nil
}

// openRecords opens the records directly. Unlike a node, it does not repeat writes that
// Redis loses.
func (o *openedStorage) openRecords(ctx context.Context) error {
	if o.Settings.Store.IsEmbedded() {
		if err := o.openStore(ctx); err != nil {
			return err
		}
		o.place.Records = o.Store.(*bolt.Store) // for embedded records, openStore sets Store to this type
		return nil
	}
	records, err := o.dialRedis(ctx)
	if err != nil {
		return err
	}
	o.Store, o.place.Records = records, records
	o.addCloser("store", func(context.Context) error { return records.Close() })
	return nil
}

// An archiveSource is the source of a migration from a backup archive, which can be read only
// once, from start to end. Each object is written to the target as it arrives. The
// records come first in the archive, but are moved after the whole archive was read and
// checked.
type archiveSource struct {
	move     *move.Move
	g        *migration
	folder   string
	identity *deployment.Identity
	records  *bolt.Store
}

func (a *archiveSource) importArchive(ctx context.Context, name string) (move.Records, deployment.Identity, error) {
	in, err := a.g.term.Open(name)
	if err != nil {
		return nil, deployment.Identity{}, err
	}
	defer in.Close()
	if a.folder, err = os.MkdirTemp("", "rowmill-migrate-"); err != nil {
		return nil, deployment.Identity{}, err
	}
	_, err = backup.Read(ctx, bufio.NewReaderSize(in, restoreBuffer), func(name string, _ time.Time, content io.Reader) error {
		return a.storeArchiveFile(ctx, name, content)
	}, func(h backup.Header, _ int64) {
		a.g.mu.Lock()
		defer a.g.mu.Unlock()
		a.g.totals["objects"] = max(h.Files-2, 0) // not objects: the file of the records, and the identity of the bucket
	})
	if err == nil && a.identity == nil {
		err = errors.New("the archive has no identity of a deployment: no node was ever started on its data, so there is nothing to move")
	}
	if err != nil {
		return nil, deployment.Identity{}, a.g.wrapIncompleteError(err)
	}
	a.records, err = bolt.Open(ctx, bolt.Config{Path: filepath.Join(a.folder, backup.Records)})
	return a.records, *a.identity, err
}

// storeArchiveFile stores one file of the archive: the records in a temporary folder, an object in
// the target.
func (a *archiveSource) storeArchiveFile(ctx context.Context, name string, content io.Reader) error {
	key, object := strings.CutPrefix(name, backup.Objects+"/")
	switch {
	case !object:
		file, err := os.OpenFile(filepath.Join(a.folder, backup.Records), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, content)
		return errors.Join(err, file.Close())
	case key == layout.Deployment:
		var text bytes.Buffer
		_, err := io.Copy(&text, io.LimitReader(content, 64<<10))
		if err == nil {
			a.identity, err = deployment.ParseIdentity(text.Bytes())
		}
		return err
	case dir.IsTypeFile(key):
		return nil
	}
	return a.move.CopyObject(ctx, key, content)
}

func (a *archiveSource) close() (err error) {
	if a.records != nil {
		err = a.records.Close()
	}
	if a.folder != "" {
		err = cmp.Or(err, os.RemoveAll(a.folder))
	}
	return err
}
