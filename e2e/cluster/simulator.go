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

// model is the model of all jobs.
const model = "llama-3.1-8b"

// A simulator is a simulated inference server with its witness log. No fault kills it.
type simulator struct {
	process
	url     string
	witness string // file
	read    int64  // read bytes of the witness log
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

// hostile makes the simulator give hostile answers to a share of the rows.
func (s *simulator) hostile(ctx context.Context, c *client, share float64) error {
	_, err := c.send(ctx, http.MethodPost, fmt.Sprintf("%s/hostile?share=%v", s.url, share), nil, nil)
	return err
}

// simulateCommand is the first argument of this program when it runs as a simulator.
const simulateCommand = "simulate"

// simulate runs a simulated inference server with an AttackProxy, which `rowmill sim` does
// not have, until the process is killed. Arguments: address, witness log, number of rows at
// once, and time of a row.
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
	front := &http.Server{Addr: arguments[0], Handler: &hostile.AttackProxy{Honest: server}, ReadHeaderTimeout: patience}
	return front.ListenAndServe()
}

// A Sighting is one request in the witness log of a simulator.
type Sighting struct {
	Prompt    string `json:"prompt"` // by promptHash
	Input     int64  `json:"prompt_tokens"`
	Output    int64  `json:"completion_tokens"`
	Status    int    `json:"status"`    // 0: no answer
	Cancelled bool   `json:"cancelled"` // the node closed the connection
	Within    string `json:"traceparent"`
}

// good reports whether the row was answered completely.
func (s Sighting) good() bool { return s.Status == http.StatusOK && !s.Cancelled }

// promptHash returns the name of a prompt in a witness log.
func promptHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// sightings returns the new entries of the witness log since the last call.
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
			return all, nil // the line is not complete yet
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

// An Answer is the answer of every simulator to a prompt, always the same.
type Answer struct {
	Text          string
	Input, Output int64 // tokens
}

// maxTokens limits every answer, because these tests do not need long texts.
const maxTokens = 16

// An oracle predicts the answers with a simulator inside this process that no node uses.
type oracle struct{ *sim.Server }

func newOracle(ctx context.Context) (oracle, error) {
	server, err := sim.New(sim.Config{Models: catalog.Default().All(), Profile: sim.InstantProfile()})
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
