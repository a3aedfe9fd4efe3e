package cluster

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/engine/sim"
	"github.com/rowmill/rowmill/internal/hostile"
)

// model is what all jobs run on.
const model = "llama-3.1-8b"

// A simulator is a simulated inference server and its witness log. It is never
// killed while there are jobs.
type simulator struct {
	process
	url     string
	witness string // file
	read    int64  // bytes of it that were read
}

func (c *Cluster) startSimulator(ctx context.Context, h *host, name string) (*simulator, error) {
	address, err := h.listen(ctx, 8000)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &simulator{url: "http://" + address, witness: filepath.Join(c.dir, name+".witness")}
	s.name, s.log = "simulator of "+name, filepath.Join(c.dir, name+".simulator.log")
	s.command = func(ctx context.Context) *exec.Cmd {
		return h.command(ctx, program, simulateCommand, address, s.witness, strconv.Itoa(c.config.Slots), c.config.Answer.String())
	}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	return s, s.await(ctx, "answers", func(ctx context.Context) error { return c.client.probe(ctx, s.url+"/health") })
}

// hostile has the simulator answer a share of the rows as no honest server would.
func (s *simulator) hostile(ctx context.Context, c *client, share float64) error {
	_, err := c.send(ctx, http.MethodPost, fmt.Sprintf("%s/hostile?share=%v", s.url, share), nil, nil)
	return err
}

// simulateCommand is the first argument of this program where it is to be a simulator.
const simulateCommand = "simulate"

// simulate is a simulated inference server with a Front, which the service's own
// simulator does not have, until the process is killed. Its arguments are its address,
// its witness log, how many rows it runs at once, and how long a row takes.
func simulate(arguments []string) error {
	if len(arguments) != 4 {
		return fmt.Errorf("%s: %d arguments, want ADDRESS WITNESS SLOTS ANSWER", simulateCommand, len(arguments))
	}
	slots, err := strconv.Atoi(arguments[2])
	if err != nil {
		return err
	}
	answer, err := time.ParseDuration(arguments[3])
	if err != nil {
		return err
	}
	witness, err := os.OpenFile(arguments[1], os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer witness.Close()
	profile := sim.DefaultProfile()
	profile.TimeToFirstToken, profile.TimePerToken, profile.Slots = answer, 0, slots
	server, err := sim.New(sim.Config{Models: catalog.Default().All(), Profile: profile, RequestLog: witness})
	if err != nil {
		return err
	}
	front := &http.Server{Addr: arguments[0], Handler: &hostile.Front{Honest: server}, ReadHeaderTimeout: patience}
	return front.ListenAndServe()
}

// A Sighting is one request, as the witness log of a simulator has it.
type Sighting struct {
	Prompt    string `json:"prompt"` // as of promptHash
	Input     int64  `json:"prompt_tokens"`
	Output    int64  `json:"completion_tokens"`
	Status    int    `json:"status"`    // 0: nothing was answered
	Cancelled bool   `json:"cancelled"` // the node went away
	Within    string `json:"traceparent"`
}

// good reports whether the row was run to its end and answered.
func (s Sighting) good() bool { return s.Status == http.StatusOK && !s.Cancelled }

// promptHash is how a witness log calls a prompt.
func promptHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// sightings returns what the witness log has got since the last call.
func (s *simulator) sightings() ([]Sighting, error) {
	file, err := os.Open(s.witness)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(s.read, io.SeekStart); err != nil {
		return nil, err
	}
	var all []Sighting
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all, nil // the rest of the line comes later
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", s.witness, err)
		}
		s.read += int64(len(line))
		var one Sighting
		if err := json.Unmarshal(line, &one); err != nil {
			return nil, fmt.Errorf("read %s: %w", s.witness, err)
		}
		all = append(all, one)
	}
}

// An Answer is what the simulators say to a prompt; they all say the same, and
// always.
type Answer struct {
	Text          string
	Input, Output int64 // tokens
}

// maxTokens bounds every answer: the texts are not what these tests are about.
const maxTokens = 16

// An oracle knows the answers beforehand: a simulator inside this process that
// no node ever sees.
type oracle struct{ *sim.Server }

func newOracle(ctx context.Context) (oracle, error) {
	server, err := sim.New(sim.Config{Models: catalog.Default().All(), Profile: sim.Instant()})
	if err != nil {
		return oracle{}, err
	}
	return oracle{server}, server.Start(ctx, "127.0.0.1:0")
}

func (o oracle) answer(ctx context.Context, text string) (Answer, error) {
	body, err := json.Marshal(map[string]any{
		"model": model, "max_tokens": maxTokens,
		"messages": []map[string]string{{"role": "user", "content": text}},
	})
	if err != nil {
		return Answer{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, o.URL()+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close()
	if body, err = io.ReadAll(response.Body); err != nil {
		return Answer{}, err
	}
	var reply struct {
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
		Usage struct {
			Input  int64 `json:"prompt_tokens"`
			Output int64 `json:"completion_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(body, &reply); err != nil || len(reply.Choices) != 1 {
		return Answer{}, errors.Join(err, fmt.Errorf("the oracle says %d: %.200s", response.StatusCode, body))
	}
	return Answer{reply.Choices[0].Message.Content, reply.Usage.Input, reply.Usage.Output}, nil
}
