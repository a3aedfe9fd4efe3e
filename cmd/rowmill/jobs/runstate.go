package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
)

// A runState is the state of a run, in the file run.json of its folder.
type runState struct {
	Command string `json:"command"` // identifies the input, and the flags of the job except --limit and --sample
	Flags   string `json:"flags"`   // identifies the flags alone
	rowmill.RowChoice
	Key     string   `json:"idempotency_key"`      // of the submission
	Job     string   `json:"job,omitempty"`        // id of the job; empty before the node has answered
	Others  []string `json:"other_jobs,omitempty"` // ids of the jobs of other models
	Written bool     `json:"written"`              // the results are written

	path    string
	command string // Command of this start
	flags   string // Flags of this start
	changed bool   // Command and command differ, or again
	again   bool   // the results are written, and the objects of the input may have changed since
}

// A runInput identifies an input of a run.
type runInput struct {
	Source  string
	Size    int64
	Changed time.Time
	Content []byte // hash of standard input, or the versions of the files of a pattern
}

// openState reads the state of the run. If the rows come from standard input, it copies them
// to the folder of the run and sets the source to the copy.
func (r *runCommand) openState(ctx context.Context, sources []string) (*runState, error) {
	s := &runState{path: filepath.Join(r.node.Dir, "run.json")}
	content, err := os.ReadFile(s.path)
	if err == nil {
		err = json.Unmarshal(content, s)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--state: read %s: %w; delete the folder to start again", s.path, err)
	}
	identity := struct {
		client.Submission
		NoTruncate bool
		Simulate   bool
		Inputs     []runInput
	}{Submission: r.Submission, NoTruncate: r.NoTruncate, Simulate: r.node.Simulate}
	identity.RowChoice = rowmill.RowChoice{}
	if s.flags, err = hashOf(identity); err != nil {
		return nil, err
	}
	for i := range sources {
		in, err := r.identifyInput(ctx, &sources[i])
		if err != nil {
			return nil, err
		}
		identity.Inputs = append(identity.Inputs, in)
	}
	if s.command, err = hashOf(identity); err != nil {
		return nil, err
	}
	s.again = s.Written && isBucket(sources[0]) && s.Command == s.command
	s.changed = s.again || s.Command != "" && s.Command != s.command
	return s, nil
}

// hashOf returns the hash of a value in JSON.
func hashOf(value any) (string, error) {
	text, err := json.Marshal(value)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// identifyInput identifies an input. It copies standard input to the folder of the run and sets
// source to the copy.
func (r *runCommand) identifyInput(ctx context.Context, source *string) (in runInput, err error) {
	in.Source = *source
	switch {
	case isBucket(*source): // the job keeps the list of the objects
	case r.pattern != "":
		in.Source = r.node.Input + r.pattern
		in.Content, err = r.listInput(ctx, *source)
	case *source == stdout: // here "-" means standard input
		if *source, in.Content, err = r.copyStdin(); err != nil {
			return in, fmt.Errorf("read standard input: %w", err)
		}
	case !isURL(*source):
		info, err := os.Stat(*source)
		if err != nil {
			return in, err
		}
		if in.Source, err = filepath.Abs(*source); err != nil {
			return in, err
		}
		in.Size, in.Changed = info.Size(), info.ModTime()
	}
	return in, err
}

// copyStdin copies standard input to the folder of the run. It returns the path and the
// hash of the copy.
func (r *runCommand) copyStdin() (path string, hash []byte, err error) {
	if err := os.MkdirAll(r.node.Dir, 0o700); err != nil {
		return "", nil, err
	}
	file, err := os.Create(filepath.Join(r.node.Dir, "stdin"))
	if err != nil {
		return "", nil, err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(file, sum), r.Term.In)
	return file.Name(), sum.Sum(nil), errors.Join(err, file.Close())
}

// jobs returns the ids of all jobs of the run.
func (s *runState) jobs() []string { return append([]string{s.Job}, s.Others...) }

// setJobs records the jobs of the run.
func (s *runState) setJobs(ids []string) error {
	s.Job, s.Others = ids[0], ids[1:]
	return s.save()
}

func (s *runState) save() error {
	err := replaceFile(s.path, func(w io.Writer) error { return json.NewEncoder(w).Encode(s) })
	if err != nil {
		return fmt.Errorf("write the state of the run: %w", err)
	}
	return nil
}
