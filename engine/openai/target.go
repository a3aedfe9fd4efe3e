package openai

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// The kinds of server that are told apart.
const (
	kindVLLM   = "vllm"
	kindSGLang = "sglang"
	kindLlama  = "llama.cpp"
	kindOllama = "ollama"
	kindSim    = "rowmill-sim"
	kindOther  = "openai" // speaks the dialect; nothing more is known
)

// An ability is what a server can do with a model.
type ability uint8

const (
	generates ability = 1 << iota
	embeds
	thinks
)

// facts is what a probe learns beyond engine.Info.
type facts struct {
	kvTokens int64              // size of the KV cache, where a probe and not the gauges tell it
	able     map[string]ability // by the server's name of a model; missing where it does not say
	noParser bool               // the server says that it does not separate reasoning
}

// A target is a model on a server, as the last probe found them.
type target struct {
	kind    string
	version string // empty where the server does not say
	name    string // the server's name of the model
	context int    // tokens; 0 when unknown

	able     ability
	known    bool // able is what the server says
	noParser bool // it does not separate reasoning from the answer
}

// served returns where m is served, by the last probe.
func (e *Engine) served(m rowmill.Model) (target, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.probed {
		return target{}, fmt.Errorf("engine %s has not been probed yet", e.cfg.Name)
	}
	found, ok := e.info.Find(m)
	if mapped, is := e.cfg.ModelMap[m.ID]; is {
		// A probe lists a mapped model under its id too; what is sent is the
		// server's name. llama.cpp would answer to any.
		found.Name = mapped
		ok = slices.ContainsFunc(e.info.Models, func(s engine.ServedModel) bool { return s.Name == mapped })
	}
	if !ok {
		return target{}, fmt.Errorf("engine %s does not serve %s", e.cfg.Name, m.ID)
	}
	t := target{
		kind: e.info.Kind, version: e.info.Version, name: found.Name, context: found.ContextLength,
		noParser: e.facts.noParser || e.unparsed[found.Name],
	}
	t.able, t.known = e.facts.able[found.Name]
	return t, nil
}

// runs returns an error where the server says that it cannot run models of the
// kind, which it would otherwise say to every row.
func (t target) runs(kind rowmill.Kind) error {
	switch {
	case !t.known:
	case kind == rowmill.KindEmbedding && t.able&embeds == 0 && t.kind == kindSGLang:
		return fmt.Errorf("the server runs %s as a model that gives no embeddings: start it with --is-embedding", t.name)
	case kind != rowmill.KindEmbedding && t.able&generates == 0:
		return fmt.Errorf("the server runs %s as a model that generates no text", t.name)
	}
	return nil
}

// olderThan reports whether the server is of an older release than r. What
// is no release, such as a developer's build, counts as new.
func (t target) olderThan(r release) bool {
	parts := strings.SplitN(t.version, ".", 4)
	if len(parts) < 3 {
		return false
	}
	var have release
	for i := range have {
		digits := len(parts[i]) - len(strings.TrimLeft(parts[i], "0123456789")) // 0rc1 is release 0
		n, err := strconv.Atoi(parts[i][:digits])
		if err != nil {
			return false
		}
		have[i] = n
	}
	return slices.Compare(have[:], r[:]) < 0
}

// A release is major, minor and patch of a version.
type release [3]int

func (r release) String() string { return fmt.Sprintf("%d.%d.%d", r[0], r[1], r[2]) }

// warnings says what a job of params p should know about the server.
func (t target) warnings(p engine.Params) (list []string) {
	if t.kind == kindOllama {
		limit := "its context"
		if t.context > 0 {
			limit = fmt.Sprintf("its context of %d tokens", t.context)
		}
		list = append(list, "Ollama cuts a prompt that exceeds "+limit+
			" without saying so: keep rows shorter, or raise OLLAMA_CONTEXT_LENGTH of the server")
	}
	if p.Model.Kind == rowmill.KindEmbedding && t.known && t.able&embeds == 0 {
		list = append(list, fmt.Sprintf("the server does not list %s as an embedding model", t.name))
	}
	if p.Model.Kind != rowmill.KindReasoning {
		return list
	}
	if t.noParser {
		what := "the server does not separate reasoning from answers: start it with " + parserFlag(t.kind)
		if len(p.Schema) > 0 {
			what += "; json_schema keeps the model from reasoning until then"
		}
		list = append(list, what)
	}
	if t.known && t.able&thinks == 0 {
		list = append(list, fmt.Sprintf("the server says that %s does not reason: its reasoning_content will be empty", t.name))
	}
	return list
}

// parserFlag is what makes a server separate reasoning from answers.
func parserFlag(kind string) string {
	switch kind {
	case kindVLLM, kindSGLang:
		return "--reasoning-parser"
	case kindLlama:
		return "--jinja --reasoning-format auto"
	}
	return "its parser for reasoning"
}

// missesParser notes that an answer came with its reasoning inside, which tells
// that the server has no parser for it.
func (e *Engine) missesParser(t target) {
	e.mu.Lock()
	first := !e.unparsed[t.name]
	if first {
		if e.unparsed == nil {
			e.unparsed = map[string]bool{}
		}
		e.unparsed[t.name] = true
	}
	e.mu.Unlock()
	if first {
		e.cfg.Logger.Warn("the server leaves reasoning in its answers: it is split there, and schemas cannot be combined with it",
			"engine", e.cfg.Name, "model", t.name, "remedy", parserFlag(t.kind))
	}
}
