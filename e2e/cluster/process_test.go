package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

// TestOracle checks that a simulator process gives the predicted answers, and that its
// witness log has each prompt.
func TestOracle(t *testing.T) {
	c := &Cluster{config: Config{Binary: binary}.withDefaults(), dir: t.TempDir(), client: newClient()}
	h := must.Get(newHost(t.Context(), nil, ""))(t)
	s, err := c.startSimulator(t.Context(), h, "sim")
	must.Succeed(t, err)
	t.Cleanup(s.kill)
	if c.oracle, err = newOracle(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.oracle.Stop(context.Background()) })
	for i := range 3 {
		text := fmt.Sprintf("row %d, \"quoted\"\nand more", i)
		want := must.Get(c.oracle.answer(t.Context(), text))(t)
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
		must.Succeed(t, err)
		if w := (Sighting{Prompt: promptHash(text), Input: want.Input, Output: want.Output, Status: 200}); len(seen) != 1 || seen[0] != w || !w.good() {
			t.Errorf("the witness saw %+v, want %+v", seen, w)
		}
	}
}

// TestPowerCut checks that a power cut loses the last writes only.
func TestPowerCut(t *testing.T) {
	needServers(t)
	c := &Cluster{config: Config{}.withDefaults(), dir: t.TempDir()}
	must.Succeed(t, c.startRedis(t.Context()))
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
	must.Succeed(t, <-cut)
	must.Succeed(t, c.Redis.begin(t.Context()))
	tell("EXISTS early", ":1")
	tell(fmt.Sprintf("EXISTS late%d", late-1), ":0") // the last acknowledged write
	c.Redis.kill()
	must.Succeed(t, c.Redis.begin(t.Context()))
	tell("EXISTS early", ":1")
}
