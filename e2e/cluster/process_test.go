package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// script returns a process that runs a shell script.
func script(t *testing.T, text string) *process {
	t.Helper()
	p := &process{name: "script", log: filepath.Join(t.TempDir(), "log")}
	p.command = func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, "sh", "-c", text) }
	t.Cleanup(p.kill)
	check(t, p.start(t.Context()))
	return p
}

// says waits until the process has printed a word.
func (p *process) says(t *testing.T, word string) {
	t.Helper()
	err := p.await(t.Context(), "says "+word, func(context.Context) error {
		log, err := os.ReadFile(p.log)
		if err == nil && !strings.Contains(string(log), word) {
			err = fmt.Errorf("it says %q", log)
		}
		return err
	})
	check(t, err)
}

func TestProcess_Terminate(t *testing.T) {
	p := script(t, `trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done`)
	p.says(t, "up")
	code, err := p.terminate(patience)
	if code != 7 || err != nil {
		t.Errorf("ended with %d, %v; want 7", code, err)
	}
	if p.alive() || p.up() {
		t.Error("an ended process counts as alive")
	}
	if _, err := p.terminate(patience); err == nil {
		t.Error("an ended process was terminated again")
	}
}

// TestProcess_Hangs checks that a process that does not end in time is reported and killed.
func TestProcess_Hangs(t *testing.T) {
	p := script(t, `trap : TERM; echo up; while :; do sleep 0.01; done`)
	p.says(t, "up")
	if _, err := p.terminate(50 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "did not end within 50ms") {
		t.Errorf("terminate says %v", err)
	}
	if p.alive() {
		t.Error("it still runs")
	}
}

func TestProcess_KillAndStartAgain(t *testing.T) {
	p := script(t, `echo up; exec sleep 1000`)
	p.says(t, "up")
	check(t, p.pause())
	if p.up() || !p.alive() {
		t.Errorf("stopped: up %v, alive %v", p.up(), p.alive())
	}
	if err := p.resume(); err != nil || !p.up() {
		t.Errorf("resumed: up %v (%v)", p.up(), err)
	}
	p.kill()
	p.kill() // harmless
	if p.alive() {
		t.Error("a killed process counts as alive")
	}
	if err := p.pause(); err == nil {
		t.Error("a killed process was stopped")
	}
	killed := time.Now()
	if err := p.start(t.Context()); err != nil || !p.up() {
		t.Errorf("started again: up %v (%v)", p.up(), err)
	}
	if now := time.Now(); !p.killedWithin(killed, now) || p.killedWithin(now, now) || p.killedWithin(now.Add(-time.Hour), now.Add(-time.Minute)) {
		t.Errorf("its downtimes are %v", p.kills)
	}
}

// TestAwait checks that the end of the process ends the wait for its answer.
func TestAwait(t *testing.T) {
	p := script(t, `exit 3`)
	never := errors.New("never")
	err := p.await(t.Context(), "answers", func(context.Context) error { return never })
	if !errors.Is(err, never) || !strings.Contains(err.Error(), p.log) {
		t.Errorf("await says %v, want why and where the log is", err)
	}
}

// TestOracle checks that a simulator process gives the predicted answers, and that its
// witness log has each prompt.
func TestOracle(t *testing.T) {
	c := &Cluster{config: Config{Binary: binary}.withDefaults(), dir: t.TempDir(), client: newClient()}
	h := must(newHost(t.Context(), nil, ""))(t)
	s, err := c.startSimulator(t.Context(), h, "sim")
	check(t, err)
	t.Cleanup(s.kill)
	if c.oracle, err = newOracle(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.oracle.Stop(context.Background()) })
	for i := range 3 {
		text := fmt.Sprintf("row %d, \"quoted\"\nand more", i)
		want := must(c.oracle.answer(t.Context(), text))(t)
		body := fmt.Sprintf(`{"model": %q, "max_tokens": %d, "messages": [{"role": "user", "content": %q}]}`, model, maxTokens, text)
		reply, err := c.client.send(t.Context(), "POST", s.url+"/v1/chat/completions", nil, []byte(body))
		if err != nil || !strings.Contains(string(reply), fmt.Sprintf("%q", want.Text)) {
			t.Fatalf("the simulator says %s (%v), the oracle %+v", reply, err, want)
		}
		var seen []Sighting
		err = await(t.Context(), "a sighting", patience, func(context.Context) error {
			if seen, err = s.sightings(); err == nil && len(seen) == 0 {
				err = errors.New("nothing was seen")
			}
			return err
		})
		check(t, err)
		if w := (Sighting{Prompt: promptHash(text), Input: want.Input, Output: want.Output, Status: 200}); len(seen) != 1 || seen[0] != w || !w.good() {
			t.Errorf("the witness saw %+v, want %+v", seen, w)
		}
	}
}

// TestPowerCut checks that a power cut loses the last writes only.
func TestPowerCut(t *testing.T) {
	needServers(t)
	c := &Cluster{config: Config{}.withDefaults(), dir: t.TempDir()}
	check(t, c.startRedis(t.Context()))
	t.Cleanup(c.Redis.kill)
	tell := func(command, want string) {
		t.Helper()
		if answer, err := c.Redis.ask(t.Context(), command); err != nil || answer != want {
			t.Fatalf("%s: %q (%v), want %q", command, answer, err, want)
		}
	}
	tell("SET early 1", "+OK")
	cut := make(chan error)
	go func() { cut <- c.Redis.powerCut(300*time.Millisecond, func() error { return nil }) }()
	late := 0
	for ; ; late++ {
		if _, err := c.Redis.ask(t.Context(), fmt.Sprintf("SET late%d 1", late)); err != nil {
			break // the power is cut
		}
	}
	check(t, <-cut)
	check(t, c.Redis.begin(t.Context()))
	tell("EXISTS early", ":1")
	tell(fmt.Sprintf("EXISTS late%d", late-1), ":0") // the last acknowledged write
	c.Redis.kill()
	check(t, c.Redis.begin(t.Context()))
	tell("EXISTS early", ":1")
}
