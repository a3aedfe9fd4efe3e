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

	"github.com/rowmill/rowmill/catalog"
	"github.com/rowmill/rowmill/sim"
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
	s := &simulator{url: "http://" + address, witness: filepath.Join(c.dir, name+".witness")}
	s.name, s.log = "simulator of "+name, filepath.Join(c.dir, name+".simulator.log")
	s.command = func(ctx context.Context) *exec.Cmd {
		return h.command(ctx, c.config.Binary, "sim", "--listen", address, "--witness", s.witness,
			"--slots", strconv.Itoa(c.config.Slots), "--ttft", c.config.Answer.String(), "--per-token", "0s")
	}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	return s, s.await(ctx, "answers", func(ctx context.Context) error { return c.client.probe(ctx, s.url+"/health") })
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
