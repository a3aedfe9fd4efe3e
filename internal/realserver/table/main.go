// Command table reads the output of `go test -json` for TestReal and updates the table
// in a document, between two marks. It keeps the results of servers that this run did
// not test, and of untested models of a server in the same release.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

// The lines of the document around the table.
const (
	from = "<!-- seen: written by make engines -->"
	to   = "<!-- end of seen -->"
)

var errFailed = errors.New("checks failed, see the table")

// run copies the output of the tests to out and writes the document.
func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: go test -json … | table DOCUMENT")
	}
	seen, err := read(in, out)
	if err != nil {
		return err
	}
	if len(seen.servers) == 0 {
		return errors.New("no server was tried")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(text), from)
	old, after, ends := strings.Cut(rest, to)
	if !begins || !ends {
		return fmt.Errorf("%s lacks the marks %s and %s", args[0], from, to)
	}
	seen.keepUntested(parse(old))
	if err := os.WriteFile(args[0], []byte(before+from+"\n"+seen.table()+to+after), 0o644); err != nil {
		return err
	}
	if seen.failed {
		return errFailed
	}
	return nil
}

// results has the results of checks on servers, from a test run or from the document.
type results struct {
	servers  []string // in order of appearance
	checks   []string // sorted
	versions map[string]string
	outcome  map[[2]string]string // cell text, by {check, server}
	failed   bool
}

// An event is a line of `go test -json`.
type event struct{ Action, Test, Output string }

func read(in io.Reader, out io.Writer) (*results, error) {
	s := &results{versions: map[string]string{}, outcome: map[[2]string]string{}}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	parents, ignored := map[string]bool{}, map[string]bool{}
	var ended []event
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // output of the go command itself
		}
		path := strings.Split(e.Test, "/")
		if len(path) > 1 {
			parents[strings.Join(path[:len(path)-1], "/")] = true
		}
		switch e.Action {
		case "output":
			if _, version, ok := strings.Cut(e.Output, "version="); ok && len(path) > 2 {
				s.versions[path[1]] = strings.TrimSpace(version)
			}
			if strings.Contains(e.Output, "the server ignores ") {
				ignored[e.Test] = true
			}
			if _, err := io.WriteString(out, e.Output); err != nil {
				return nil, err
			}
		case "pass", "fail", "skip":
			ended = append(ended, e)
		}
	}
	for _, e := range ended {
		path := strings.Split(e.Test, "/")
		if len(path) < 3 || path[0] != "TestReal" || parents[e.Test] && e.Action != "fail" {
			continue
		}
		if parents[e.Test] { // a failed parent test; the table has the results of its subtests
			s.failed = true
			continue
		}
		s.failed = s.failed || e.Action == "fail"
		word := map[string]string{"pass": "yes", "fail": "**no**", "skip": none}[e.Action]
		if e.Action == "skip" && ignored[e.Test] {
			word = "ignored"
		}
		s.setOutcome(path[1], strings.ReplaceAll(strings.Join(path[2:], ": "), "_", " "), word)
	}
	return s, lines.Err()
}

func (s *results) setOutcome(server, check, outcome string) {
	if !slices.Contains(s.servers, server) {
		s.servers = append(s.servers, server)
	}
	if !slices.Contains(s.checks, check) {
		s.checks = append(s.checks, check)
	}
	s.outcome[[2]string{check, server}] = outcome
}

// parse reads the results in an existing table.
func parse(text string) *results {
	old := &results{versions: map[string]string{}, outcome: map[[2]string]string{}}
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case cells[0] == "" || strings.HasPrefix(cells[0], "---"):
		case len(old.servers) == 0:
			for _, head := range cells[1:] {
				server, version, _ := strings.Cut(head, " ")
				old.servers, old.versions[server] = append(old.servers, server), version
			}
		case len(cells) == len(old.servers)+1:
			for i, outcome := range cells[1:] {
				old.setOutcome(old.servers[i], cells[0], outcome)
			}
		}
	}
	return old
}

// group returns the name of the group of a check. One test with one model makes all
// checks of a group, so a run has either all or none of them.
func group(check string) string {
	model, rest, _ := strings.Cut(check, ": ")
	return fmt.Sprint(model, strings.HasPrefix(rest, "service: "))
}

// keepUntested adds the old results that the run did not test. Servers stay in the old order.
func (s *results) keepUntested(old *results) {
	tried := map[[2]string]bool{}
	for at := range s.outcome {
		tried[[2]string{group(at[0]), at[1]}] = true
	}
	ran := s.servers
	s.servers = old.servers
	for _, server := range ran {
		if !slices.Contains(s.servers, server) {
			s.servers = append(s.servers, server)
		}
	}
	for at, outcome := range old.outcome {
		server := at[1]
		now, told := s.versions[server]
		stale := told && slices.Contains(ran, server) && now != old.versions[server]
		if !stale && outcome != none && !tried[[2]string{group(at[0]), server}] {
			s.setOutcome(server, at[0], outcome)
		}
	}
	for server, version := range old.versions {
		if _, told := s.versions[server]; !told {
			s.versions[server] = version
		}
	}
}

// none is the table cell of a check that does not apply or was not tested.
const none = "–"

// table returns the results as a Markdown table with one line for each check and one
// column for each server.
func (s *results) table() string {
	slices.Sort(s.checks) // some tests run in random order
	var b strings.Builder
	b.WriteString("| check |")
	for _, server := range s.servers {
		b.WriteString(" " + strings.TrimSpace(server+" "+s.versions[server]) + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(s.servers)) + "\n")
	for _, check := range s.checks {
		b.WriteString("| " + check + " |")
		for _, server := range s.servers {
			outcome := s.outcome[[2]string{check, server}]
			if outcome == "" {
				outcome = none
			}
			b.WriteString(" " + outcome + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}
