package cluster

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// previousCommit is the version that upgrades begin from. It is replaced with
// each release.
//
//go:embed testdata/previous
var previousCommit string

// errNoHistory says that there is no source of the previous version here.
var errNoHistory = errors.New("the history of this repository is not here (no git, no clone, or a shallow one), " +
	"so the version before cannot be built: git fetch --unshallow")

// buildPrevious returns the program of the previous version. It is built from
// the repository's own history, once, into bin/previous.
func buildPrevious(ctx context.Context) (string, error) {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		return strings.TrimSpace(string(out)), err
	}
	commit := strings.TrimSpace(previousCommit)
	root, err := git("rev-parse", "--show-toplevel")
	if err != nil {
		return "", errNoHistory
	}
	if _, err := git("cat-file", "-e", commit+"^{commit}"); err != nil {
		if shallow, _ := git("rev-parse", "--is-shallow-repository"); shallow == "true" {
			return "", errNoHistory
		}
		return "", fmt.Errorf("commit %s of testdata/previous is not in this repository", commit)
	}
	binary := filepath.Join(root, "bin", "previous", commit, "rowmill")
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	source, err := os.MkdirTemp("", "rowmill-previous-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(source) }() // what is left of it is nobody's
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		return "", err
	}
	built := fmt.Sprintf("%s.%d", binary, os.Getpid()) // others may build it at the same time
	script := `git archive "$1" | tar -x -C "$2" && cd "$2" && go build -buildvcs=false -tags=nomsgpack -o "$3" ./cmd/rowmill && mv "$3" "$4"`
	build := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", script, "bash", commit, source, built, binary)
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build commit %s: %w\n%s", commit, err, out)
	}
	return binary, nil
}

// program is what the node is started from.
func (c *Cluster) program(n *Node) string {
	if n.Previous {
		return c.config.Previous
	}
	return c.config.Binary
}

// rolling brings all nodes to one version, one after the other: the owner of
// the job is killed first, so that the others, all of the version that it had,
// take the job over and hand it on. Of those some are drained, some killed.
func (t *Trial) rolling(ctx context.Context, previous bool) error {
	nodes := t.nodes()
	t.random.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	first, _ := t.owner(ctx) // nil once the job is over
	if at := slices.Index(nodes, first); at > 0 {
		nodes[0], nodes[at] = nodes[at], nodes[0]
	}
	for _, n := range nodes {
		if n.Spare || n.Previous == previous {
			continue
		}
		if (n == first || t.random.IntN(3) == 0) && t.over() == nil {
			strike := t.hit(ctx, "kill and exchange", n)
			n.kill()
			t.struck(strike)
		} else if err := t.stopNicely(n); err != nil {
			return err
		}
		n.Previous = previous
		if err := t.begin(ctx, n); err != nil {
			return fmt.Errorf("start the other version: %w", err)
		}
	}
	return nil
}

// rollBack replaces the program of all nodes by the previous version. Where all
// have it they are upgraded first.
func rollBack(ctx context.Context, t *Trial) error { return t.thereAndBack(ctx, true) }

// upgrade replaces the program of all nodes by this version. Where all have it
// they are rolled back first.
func upgrade(ctx context.Context, t *Trial) error { return t.thereAndBack(ctx, false) }

func (t *Trial) thereAndBack(ctx context.Context, previous bool) error {
	there := true
	for _, n := range t.nodes() {
		there = there && (n.Spare || n.Previous == previous)
	}
	if there {
		if err := t.rolling(ctx, !previous); err != nil {
			return err
		}
	}
	return t.rolling(ctx, previous)
}
