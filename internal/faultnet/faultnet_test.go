package faultnet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

// TestMain lets a host run this binary as one of the programs below.
func TestMain(m *testing.M) {
	programs := map[string]func(address string) error{"echo": echo, "dial": dial, "spray": spray}
	if len(os.Args) == 3 && programs[os.Args[1]] != nil {
		if err := programs[os.Args[1]](os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// echo prints that it listens, and answers each line with the same line.
func echo(address string) error {
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go io.Copy(connection, connection)
	}
}

// dial passes lines from standard input to a server and back, over one
// connection.
func dial(address string) error {
	var dialer net.Dialer
	connection, err := dialer.DialContext(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("connected")
	go io.Copy(connection, os.Stdin)
	_, err = io.Copy(os.Stdout, connection)
	return err
}

// sprayed is how many datagrams spray sends.
const sprayed = 4000

func spray(address string) error {
	to, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return err
	}
	// The socket is not connected, so that ICMP errors of earlier packets do not fail
	// the next write.
	var config net.ListenConfig
	from, err := config.ListenPacket(context.Background(), "udp", ":0")
	if err != nil {
		return err
	}
	for range sprayed {
		if _, err := from.WriteTo([]byte{1}, to); err != nil {
			return err
		}
	}
	return from.Close()
}

// patience limits waiting for an event. silence is how long the test waits to see that
// no event comes.
const patience, silence = 30 * time.Second, 300 * time.Millisecond

func setup(t *testing.T, names ...string) (*Network, []*Host) {
	t.Helper()
	if err := CheckUsable(); err != nil {
		if os.Getenv("ROWMILL_CI") != "" {
			t.Fatal(err)
		}
		t.Skip("SKIPPED, NOT TESTED:", err)
	}
	n, err := New(t.Context())
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	hosts := make([]*Host, len(names))
	for i, name := range names {
		if hosts[i], err = n.AddHost(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	return n, hosts
}

// A talk is a process on a host; the test reads its lines.
type talk struct {
	in    io.Writer
	lines chan string
}

func start(t *testing.T, h *Host, args ...string) *talk {
	t.Helper()
	command := h.Command(t.Context(), os.Args[0], args...)
	command.Stderr = os.Stderr
	in := must.Get(command.StdinPipe())(t)
	out := must.Get(command.StdoutPipe())(t)
	must.Succeed(t, command.Start())
	s := &talk{in: in, lines: make(chan string, 16)}
	go func() {
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			s.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill() // it may have ended already
		_ = command.Wait()         // Wait returns an error for a killed process
	})
	return s
}

func (s *talk) say(t *testing.T, line string) {
	t.Helper()
	must.Get(fmt.Fprintln(s.in, line))(t)
}

func (s *talk) hears(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-s.lines:
		if got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("%q never came", want)
	}
}

func (s *talk) hearsNothing(t *testing.T) {
	t.Helper()
	select {
	case got := <-s.lines:
		t.Fatalf("%q came through", got)
	case <-time.After(silence):
	}
}

func one(h *Host) []*Host { return []*Host{h} }

func TestCutAndHeal(t *testing.T) {
	n, hosts := setup(t, "a", "b", "c")
	a, b, c := hosts[0], hosts[1], hosts[2]
	address := net.JoinHostPort(b.Addr.String(), "7000")
	start(t, b, "echo", address).hears(t, "listening")
	fromA, fromC := start(t, a, "dial", address), start(t, c, "dial", address)
	fromA.hears(t, "connected")
	fromC.hears(t, "connected")
	fromA.say(t, "whole")
	fromA.hears(t, "whole")

	for _, cut := range []struct {
		name string
		do   func() error
	}{
		{"there", func() error { return n.DropPackets(t.Context(), 100, one(a), one(b)) }},
		{"back", func() error { return n.DropPackets(t.Context(), 100, one(b), one(a)) }},
		{"both ways", func() error { return n.Partition(t.Context(), one(a), one(b)) }},
	} {
		must.Succeed(t, cut.do())
		fromA.say(t, cut.name)
		fromA.hearsNothing(t)
		fromC.say(t, "others go on")
		fromC.hears(t, "others go on")
		must.Succeed(t, n.Heal(t.Context()))
		fromA.hears(t, cut.name) // TCP sends again: a cut delays the connection but does not break it
	}
}

// TestLoss counts how many of many datagrams arrive.
func TestLoss(t *testing.T) {
	n, hosts := setup(t, "a", "b")
	const percent = 30
	must.Succeed(t, n.DropPackets(t.Context(), percent, hosts[:1], hosts[1:]))
	lost := func(from, to *Host) int {
		t.Helper()
		before := arrived(t, to)
		must.Succeed(t, runCommand(from.Command(t.Context(), os.Args[0], "spray", net.JoinHostPort(to.Addr.String(), "9"))))
		return sprayed - (arrived(t, to) - before)
	}
	// Five standard deviations: sqrt(4000·0.3·0.7) is 29.
	if got := lost(hosts[0], hosts[1]); got < 1055 || got > 1345 {
		t.Errorf("%d of %d datagrams were lost, want about %d %%", got, sprayed, percent)
	}
	if got := lost(hosts[1], hosts[0]); got != 0 {
		t.Errorf("%d of %d datagrams were lost on the way back", got, sprayed)
	}
}

// arrived returns the number of datagrams that the host has received, with and without
// a listener.
func arrived(t *testing.T, h *Host) int {
	t.Helper()
	out := must.Get(h.Command(t.Context(), "cat", "/proc/net/snmp").Output())(t)
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if fields[0] != "Udp:" || fields[1] == "InDatagrams" {
			continue
		}
		received, err := strconv.Atoi(fields[1])
		unwanted, err2 := strconv.Atoi(fields[2]) // NoPorts
		must.Succeed(t, errors.Join(err, err2))
		return received + unwanted
	}
	t.Fatal("no UDP in /proc/net/snmp")
	return 0
}

// TestReach checks that the test's process reaches a host that is cut off from all
// other hosts.
func TestReach(t *testing.T) {
	n, hosts := setup(t, "a", "b")
	address := net.JoinHostPort(hosts[0].Addr.String(), "7000")
	start(t, hosts[0], "echo", address).hears(t, "listening")
	must.Succeed(t, n.Partition(t.Context(), hosts[:1], hosts[1:]))
	dialer := net.Dialer{Timeout: patience}
	connection := must.Get(dialer.DialContext(t.Context(), "tcp", address))(t)
	connection.Close()
}

// TestClose checks that a closed network leaves nothing, not even a process.
func TestClose(t *testing.T) {
	n, hosts := setup(t, "a")
	sleep := hosts[0].Command(t.Context(), "sleep", "1000")
	must.Succeed(t, sleep.Start())
	// `ip` enters the namespace before it becomes the command.
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		pids := must.Get(exec.CommandContext(t.Context(), "ip", "netns", "pids", hosts[0].namespace).Output())(t)
		if strings.TrimSpace(string(pids)) == strconv.Itoa(sleep.Process.Pid) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the processes on the host are %q, want %d", pids, sleep.Process.Pid)
		}
	}
	name := n.name
	must.Succeed(t, n.Close(t.Context()))
	var exit *exec.ExitError
	if err := sleep.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the process ended with %v, want it killed", err)
	}
	wantNone(t, name)
}

// TestSweep checks that a new network removes the networks of ended processes, and no
// others.
func TestSweep(t *testing.T) {
	mine, _ := setup(t, "a")
	gone := exec.CommandContext(t.Context(), "true")
	must.Succeed(t, gone.Run())
	left := prefix + strconv.Itoa(gone.Process.Pid) + ".1"
	must.Succeed(t, runIP(t.Context(), "netns", "add", left+".hub"))
	other, _ := setup(t)
	wantNone(t, left)
	if mine.subnet == other.subnet {
		t.Errorf("two networks have the addresses %v", mine.subnet)
	}
	if _, err := mine.AddHost(t.Context(), "b"); err != nil {
		t.Errorf("the first network is gone: %v", err)
	}
}

func wantNone(t *testing.T, name string) {
	t.Helper()
	list := must.Get(exec.CommandContext(t.Context(), "ip", "netns", "list").Output())(t)
	if strings.Contains(string(list), name) {
		t.Errorf("%s is still there:\n%s", name, list)
	}
}

func TestRefusals(t *testing.T) {
	n, hosts := setup(t, "a")
	if _, err := n.AddHost(t.Context(), "a-very-long-name"); err == nil {
		t.Error("a name of 16 bytes was accepted")
	}
	for _, percent := range []int{-1, 101} {
		if err := n.DropPackets(t.Context(), percent, hosts, hosts); err == nil {
			t.Errorf("%d %% were accepted", percent)
		}
	}
}
