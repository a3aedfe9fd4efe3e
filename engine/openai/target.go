package openai

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// The kinds of inference server that Rowmill recognises.
const (
	kindVLLM     = "vllm"
	kindSGLang   = "sglang"
	kindLlama    = "llama.cpp"
	kindOllama   = "ollama"
	kindInfinity = "infinity" // embeddings only
	kindTEI      = "tei"      // embeddings only
	kindSim      = "rowmill-sim"
	kindOther    = "openai" // a server of unknown kind that speaks the OpenAI API
)

// An abilitySet is a set of tasks that a server can do with a model, one bit per task.
type abilitySet uint8

const (
	generates abilitySet = 1 << iota
	embeds
	thinks
)

// probeFacts are the results of a probe that have no field in engine.ServerInfo.
type probeFacts struct {
	kvTokens  int64                 // size of the KV cache in tokens, if the probe reports it; 0 otherwise
	able      map[string]abilitySet // abilities of each model, by the server's name of the model; no entry if the server does not report them
	dimension map[string]int        // numbers per embedding of each model, by the server's name of the model
	atMost    map[string]bool       // true if the reported context length is only an upper limit, by the server's name of the model
	noParser  bool                  // the server reports that it does not separate reasoning from answers
	noSeeds   bool                  // the server reports that its start options make it ignore seeds
	cuts      bool                  // the server reports that it truncates prompts that are too long
}

// A modelTarget is one model on one server, as the last probe described it.
type modelTarget struct {
	kind         string
	version      string // empty if the server does not report it
	name         string // the server's name of the model
	context      int    // context length in tokens; 0 if unknown
	isUpperLimit bool   // context is only an upper limit

	able              abilitySet
	hasAbilities      bool // the server has reported the abilities in able
	noParser          bool // the server does not separate reasoning from answers
	noSeeds           bool // the server ignores seeds
	reportsTruncation bool // the server reports that it truncates prompts that are too long
}

// targetFor returns the target for model m, from the last probe. It returns an error if
// the server does not serve m.
func (e *Engine) targetFor(m rowmill.Model) (modelTarget, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.probed {
		return modelTarget{}, fmt.Errorf("engine %s has not been probed yet", e.cfg.Name)
	}
	found, ok := e.info.FindModel(m)
	if mapped, is := e.cfg.ModelMap[m.ID]; is {
		// A probe also lists a mapped model under its id, but requests need the
		// server's name. llama.cpp would accept any name.
		found.Name = mapped
		ok = slices.ContainsFunc(e.info.Models, func(s engine.ServedModel) bool { return s.Name == mapped })
	}
	if !ok {
		return modelTarget{}, fmt.Errorf("engine %s does not serve %s", e.cfg.Name, m.ID)
	}
	t := modelTarget{
		kind: e.info.Kind, version: e.info.Version, name: found.Name, context: found.ContextLength,
		isUpperLimit: e.facts.atMost[found.Name],
		noParser:     e.facts.noParser || e.unparsed[found.Name], noSeeds: e.facts.noSeeds, reportsTruncation: e.facts.cuts,
	}
	t.able, t.hasAbilities = e.facts.able[found.Name]
	return t, nil
}

// checkKind returns an error if the server reports that it cannot run models of this
// kind. Without this check every row of the job would fail.
func (t modelTarget) checkKind(kind rowmill.Kind) error {
	switch {
	case !t.hasAbilities:
	case kind == rowmill.KindEmbedding && t.able&embeds == 0 && t.kind == kindSGLang:
		return fmt.Errorf("the server runs %s as a model without embeddings: start it with --is-embedding", t.name)
	case kind != rowmill.KindEmbedding && t.able&generates == 0:
		return fmt.Errorf("the server runs %s as a model that generates no text", t.name)
	}
	return nil
}

// truncatesPrompts reports whether the server silently truncates prompts that are too long.
func (t modelTarget) truncatesPrompts() bool {
	return t.kind == kindOllama || t.kind == kindInfinity || t.reportsTruncation
}

// isOlderThan reports whether the server's version is older than release r. A version
// that is not a release, such as a developer's build, counts as new.
func (t modelTarget) isOlderThan(r releaseVersion) bool {
	parts := strings.SplitN(t.version, ".", 4)
	if len(parts) < 3 {
		return false
	}
	var have releaseVersion
	for i := range have {
		digits := len(parts[i]) - len(strings.TrimLeft(parts[i], "0123456789")) // 0rc1 counts as 0
		n, err := strconv.Atoi(parts[i][:digits])
		if err != nil {
			return false
		}
		have[i] = n
	}
	return slices.Compare(have[:], r[:]) < 0
}

// A releaseVersion is the major, minor and patch number of a version.
type releaseVersion [3]int

func (r releaseVersion) String() string { return fmt.Sprintf("%d.%d.%d", r[0], r[1], r[2]) }

// warnings returns warnings about the server t for a job with params p.
func (t modelTarget) warnings(p engine.JobParams) (list []string) {
	switch t.kind {
	case kindOllama:
		list = append(list, t.truncationWarning())
	case kindTEI:
		if t.reportsTruncation {
			list = append(list, "the server cuts a text that exceeds the context of its model without saying so: start it without --auto-truncate, or keep rows shorter")
		}
	case kindInfinity:
		list = append(list, "Infinity cuts a text that exceeds the context of its model without saying so: keep rows shorter")
	case kindOther:
		if may := ignorableSettings(p); len(may) > 0 {
			list = append(list, "the kind of the server is unknown: it may ignore "+strings.Join(may, ", ")+" without an error")
		}
	}
	if t.noSeeds && p.Model.Kind != rowmill.KindEmbedding && (p.RowSeeds || p.Sampling["seed"] != nil) {
		list = append(list, "the server ignores seeds (answers do not repeat): start it with --enable-deterministic-inference")
	}
	if p.Model.Kind == rowmill.KindEmbedding && t.hasAbilities && t.able&embeds == 0 {
		list = append(list, fmt.Sprintf("the server does not list %s as an embedding model", t.name))
	}
	if p.Model.Kind != rowmill.KindReasoning {
		return list
	}
	if t.noParser {
		what := "the server does not separate reasoning from answers: Rowmill splits them at " + closeThink
		if flag := reasoningParserFlag(t.kind); flag != "" {
			what = "the server does not separate reasoning from answers: start it with " + flag
		}
		if form := constraintSettingName(p); form != "" {
			what += "; " + form + " prevents the model from reasoning"
		}
		list = append(list, what)
	}
	if t.hasAbilities && t.able&thinks == 0 {
		list = append(list, fmt.Sprintf("the server says that %s does not reason: its reasoning_content will be empty", t.name))
	}
	return list
}

// truncationWarning returns the warning that Ollama truncates long prompts.
func (t modelTarget) truncationWarning() string {
	limit := "its context"
	switch {
	case t.context > 0 && t.isUpperLimit:
		limit = fmt.Sprintf("its context of at most %d tokens (Ollama reports the exact length only after it has loaded the model: ollama run %s \"\")", t.context, t.name)
	case t.context > 0:
		limit = fmt.Sprintf("its context of %d tokens", t.context)
	}
	return "Ollama cuts a prompt that exceeds " + limit +
		" without saying so: keep rows shorter, or raise OLLAMA_CONTEXT_LENGTH of the server"
}

// ignorableSettings lists the settings of a job that an OpenAI-compatible server of unknown
// kind may ignore.
func ignorableSettings(p engine.JobParams) (list []string) {
	if p.Model.Kind == rowmill.KindEmbedding {
		return nil
	}
	if len(p.Schema) > 0 {
		list = append(list, "json_schema (answers that break it are tried again, and fail)")
	}
	if p.RowSeeds || p.Sampling["seed"] != nil {
		list = append(list, "seeds (answers do not repeat)")
	}
	if p.Logprobs && !p.Model.NoLogprobs {
		list = append(list, "logprobs (cumulative_logprobs are null)")
	}
	return list
}

// reasoningParserFlag returns the start option that makes a server of this kind separate
// reasoning from answers; empty if no option is known.
func reasoningParserFlag(kind string) string {
	switch kind {
	case kindVLLM, kindSGLang:
		return "--reasoning-parser"
	case kindLlama:
		return "--jinja --reasoning-format auto"
	}
	return "" // Ollama has no option: it chooses a parser by the model
}

// noteMissingParser records that an answer contained its reasoning, which means that
// the server has no reasoning parser for the model. It logs a warning once per model.
func (e *Engine) noteMissingParser(t modelTarget) {
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
		remedy := reasoningParserFlag(t.kind)
		if remedy == "" {
			remedy = "no remedy is known for servers of kind " + t.kind
		}
		e.cfg.Logger.Warn("the server leaves reasoning in its answers: Rowmill splits them, and json_schema cannot be combined with reasoning",
			"engine", e.cfg.Name, "model", t.name, "remedy", remedy)
	}
}
