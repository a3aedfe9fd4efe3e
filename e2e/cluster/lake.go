package cluster

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rowmill/rowmill/results"
)

// Some trials read their rows from files of a source, and write their answers to a folder of this
// source, a file for each. Meanwhile a reader opens every file that it sees in the folder.

// lakeFiles is the number of files of a trial.
const lakeFiles = 7

// readEvery is the pause between two looks of the reader.
const readEvery = 20 * time.Millisecond

// lakeDir returns the directory of the source of all nodes.
func (c *Cluster) lakeDir() string { return filepath.Join(c.dir, "lake") }

// lakeSetting returns the setting of a node that makes the directory a source.
func (c *Cluster) lakeSetting() string {
	return fmt.Sprintf("sources={lake: {url: 'file://%s', write: true}}", c.lakeDir())
}

// A lakeTrial has the files of one trial.
type lakeTrial struct {
	in, out string // folders below the directory
	dir     string

	stop func()
	done sync.WaitGroup
	want map[string][]string // by path below out: the answers

	mu     sync.Mutex
	wrongs []string
}

// newLake writes the rows of a trial to files.
func (c *Cluster) newLake(seed uint64, inputs []string, want []Answer) (*lakeTrial, error) {
	l := &lakeTrial{dir: c.lakeDir(), in: fmt.Sprintf("in-%d", seed), out: fmt.Sprintf("out-%d", seed), want: make(map[string][]string)}
	for i := range lakeFiles {
		from, to := i*len(inputs)/lakeFiles, (i+1)*len(inputs)/lakeFiles
		folder := fmt.Sprintf("part=%02d", i)
		if err := os.MkdirAll(filepath.Join(l.dir, l.in, folder), 0o700); err != nil {
			return nil, err
		}
		file, err := os.Create(filepath.Join(l.dir, l.in, folder, "rows.csv"))
		if err != nil {
			return nil, err
		}
		rows := [][]string{{"text"}}
		for _, text := range inputs[from:to] {
			rows = append(rows, []string{text})
		}
		if err := errors.Join(csv.NewWriter(file).WriteAll(rows), file.Close()); err != nil {
			return nil, err
		}
		if from < to {
			name := folder + "/rows.csv.parquet"
			for _, a := range want[from:to] {
				l.want[name] = append(l.want[name], a.Text)
			}
		}
	}
	ended := make(chan struct{})
	l.stop = sync.OnceFunc(func() { close(ended); l.done.Wait() })
	l.done.Go(func() {
		for {
			l.readAll()
			select {
			case <-ended:
				return
			case <-time.After(readEvery):
			}
		}
	})
	return l, nil
}

func (l *lakeTrial) wrong(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if text := fmt.Sprintf(format, args...); len(l.wrongs) < 5 && !slices.Contains(l.wrongs, text) {
		l.wrongs = append(l.wrongs, text)
	}
}

// readAll reads every file in the sink as a reader of the folder does, and compares its answers. It
// returns the names.
func (l *lakeTrial) readAll() (names []string) {
	root := filepath.Join(l.dir, l.out)
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(entry.Name(), ".") || filepath.Ext(path) != ".parquet" {
			return nil //nolint:nilerr // the folder does not exist yet
		}
		name, _ := filepath.Rel(root, path)
		names = append(names, filepath.ToSlash(name))
		got, err := readAnswers(path)
		if want := l.want[filepath.ToSlash(name)]; err != nil || !slices.Equal(got, want) {
			l.wrong("a reader of the sink finds %d answers in %s, want %d: %v", len(got), name, len(want), err)
		}
		return nil
	})
	return names
}

// readAnswers returns the column answer of a file.
func readAnswers(path string) (answers []string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	source := sizedFile{file, info.Size()}
	schema, err := results.ReadSchema(source)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	if err := results.WriteJSONLines(context.Background(), &text, source, schema, results.FileVariant{}); err != nil {
		return nil, err
	}
	for line := range strings.Lines(text.String()) {
		var row struct {
			Answer string `json:"answer"`
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			return nil, err
		}
		answers = append(answers, row.Answer)
	}
	return answers, nil
}

// sizedFile is a file with its size.
type sizedFile struct {
	*os.File
	size int64
}

func (f sizedFile) Size() int64 { return f.size }

// judge checks the sink of a job that has ended, and returns the faults.
func (l *lakeTrial) judge(job string, rows int, succeeded bool) []string {
	l.stop()
	names := l.readAll()
	if succeeded && len(names) != len(l.want) {
		l.wrong("the sink has %d files, want %d", len(names), len(l.want))
	}
	var list struct {
		Rows  int               `json:"rows"`
		Files []json.RawMessage `json:"files"`
	}
	text, err := os.ReadFile(filepath.Join(l.dir, l.out, "_rowmill", job+".json"))
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if succeeded && (err != nil || list.Rows != rows || len(list.Files) != len(l.want)) {
		l.wrong("the list in the sink has %d rows and %d files, want %d and %d: %v", list.Rows, len(list.Files), rows, len(l.want), err)
	}
	for _, folder := range []string{l.in, l.out} {
		_ = os.RemoveAll(filepath.Join(l.dir, folder))
	}
	return l.wrongs
}
