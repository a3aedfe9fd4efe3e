package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// GraceTime is the time after SIGTERM in which a server can end by itself. Then SIGKILL ends it.
const GraceTime = 10 * time.Second

// signalled is the exit code of Guard.Run, less the number of the signal that ended the
// server, as in shells.
const signalled = 128

// A Guard is the parent process of one server. It ends the server when the node dies.
type Guard struct {
	// PIDFile is the file for the process group of the server. The guard locks the file
	// until the guard ends.
	PIDFile string
	Command string        // command of the server, for `sh -c`
	Grace   time.Duration // default GraceTime
}

// Run runs the server in a process group of its own, with the standard output and error
// of this process. It returns the exit code of the server after the server and its
// process group have ended. node is a pipe from the node: when the pipe ends, the node
// has died or wants the server to end. Before its start, Run ends a server that a killed
// guard left.
func (g Guard) Run(node io.Reader) (code int, err error) {
	defer catchSignals()()
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(io.Discard, node) // an error also means that the pipe has ended
	}()
	file, err := lockPIDFile(g.PIDFile, over)
	if file == nil {
		return 0, err
	}
	defer file.Close()
	if err := killOrphan(file); err != nil {
		return 0, err
	}
	server := exec.CommandContext(context.Background(), "sh", "-c", g.Command)
	server.Stdout, server.Stderr = os.Stdout, os.Stderr
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := server.Start(); err != nil {
		return 0, err
	}
	group := server.Process.Pid
	if err := recordGroup(file, group); err != nil {
		endGroup(group, 0)
		return 0, errors.Join(err, server.Wait())
	}
	exited := make(chan error, 1)
	go func() { exited <- server.Wait() }()
	select {
	case err = <-exited:
		endGroup(group, 0)
	case <-over:
		endGroup(group, cmp.Or(g.Grace, GraceTime))
		err = <-exited
	}
	return exitCode(err), nil
}

// catchSignals makes this process continue after the signals with which terminals and
// service managers end a whole group of processes: the node decides when the server ends.
// It does not use signal.Ignore, because the server would inherit ignored signals.
func catchSignals() (stop func()) {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	return func() { signal.Stop(caught) }
}

// lockPIDFile opens and locks the file. While another guard has the lock, its server runs,
// and lockPIDFile waits. It returns no file if over was closed first, or with an error.
func lockPIDFile(path string, over <-chan struct{}) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for said := false; ; said = true {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
		}
		if !said {
			fmt.Fprintf(os.Stderr, "the server of another node, or of this node before its restart, still runs: waiting for the lock of %s\n", path)
		}
		select {
		case <-over:
			return nil, file.Close()
		case <-time.After(pollInterval):
		}
	}
}

// recordGroup writes the process group of a server into the file: the number of the group,
// and the time when its first process started.
func recordGroup(file *os.File, group int) error {
	first, _ := readProcess(group)
	text := fmt.Sprintf("%d %s\n", group, first.start)
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt([]byte(text), 0)
	return err
}

// killOrphan ends the process group in the file if the group still has the first process
// that the previous guard started. A killed guard leaves such a group.
func killOrphan(file *os.File) error {
	text, err := io.ReadAll(file)
	if err != nil {
		return fmt.Errorf("read %s: %w", file.Name(), err)
	}
	var group int
	var start string
	if n, _ := fmt.Sscan(string(text), &group, &start); n < 2 { // the file is new, or this system does not tell start times
		return nil
	}
	if first, found := readProcess(group); !found || first.start != start {
		return nil
	}
	fmt.Fprintf(os.Stderr, "ending the server that a killed guard left, process group %d\n", group)
	endGroup(group, 0)
	for range int(GraceTime / pollInterval) {
		if !groupRuns(group) {
			return nil
		}
		time.Sleep(pollInterval)
	}
	return fmt.Errorf("the server that a killed guard left still runs %v after SIGKILL, process group %d", GraceTime, group)
}

// exitCode returns the code for the result of exec.Cmd.Wait.
func exitCode(err error) int {
	var exit *exec.ExitError
	if err == nil || !errors.As(err, &exit) {
		return 0
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return signalled + int(status.Signal())
	}
	return exit.ExitCode()
}

// EndOrphans ends the servers that earlier nodes have left in a folder (see Config.Folder). If the
// guard of a server still runs, the guard ends the server, and EndOrphans waits for that.
// EndOrphans returns early if ctx ends.
func EndOrphans(ctx context.Context, folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.pid"))
	for _, path := range files {
		file, failure := lockPIDFile(path, ctx.Done())
		if file != nil {
			failure = errors.Join(killOrphan(file), file.Close())
		}
		err = errors.Join(err, failure)
	}
	return err
}
