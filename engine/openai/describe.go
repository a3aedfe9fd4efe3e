package openai

import (
	"regexp"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// CanCountPrompts reports whether servers of a kind, such as "vllm", can count the tokens of a
// prompt.
func CanCountPrompts(kind string) bool {
	return kind != kindOllama && kind != kindInfinity && kind != kindTEI && kind != kindOther
}

// addModelDetails adds the kind, the base model and the Hugging Face id of each model to info.
// It takes them from the server's model list and from the other facts of the probe.
func addModelDetails(info *engine.ServerInfo, found probeFacts, list listedModels) {
	for i, said := range list {
		m := &info.Models[i]
		if m.Origin = hubIDOrEmpty(printableOrEmpty(said.Root.value, maxName)); m.Origin == "" {
			m.Origin = hubIDOrEmpty(strings.TrimPrefix(strings.SplitN(m.Name, ":", 2)[0], "hf.co/"))
		}
		if m.Origin == m.Name {
			m.Origin = ""
		}
		if _, snapshot, ok := strings.Cut(said.Root.value, "/snapshots/"); ok { // a folder of Hugging Face's cache
			m.Revision = shortRevision(strings.TrimSuffix(snapshot, "/"))
		}
		if m.Base = printableOrEmpty(said.Parent.value, maxName); m.Base == m.Name {
			m.Base = ""
		}
		switch kind, dimension := rowmill.Kind(said.Kind.value), zeroIfImplausible(wholeOrZero(said.Dimension), maxDimension); {
		case kind == rowmill.KindGeneration, kind == rowmill.KindReasoning:
			m.Kind = kind
		case kind == rowmill.KindEmbedding && dimension > 0:
			m.Kind, m.Dimension = kind, dimension
		}
		if able := found.able[m.Name]; able != 0 && m.Kind == "" {
			m.Kind, m.Dimension = deriveModelKind(info.Kind, able, found.dimension[m.Name])
		}
	}
}

// deriveModelKind derives the kind of a model from the abilities that the server reports. SGLang
// reports the ability to generate, but not the ability to reason.
func deriveModelKind(server string, able abilitySet, dimension int) (rowmill.Kind, int) {
	switch {
	case able&generates == 0 && able&embeds != 0:
		return rowmill.KindEmbedding, dimension
	case server != kindOllama:
		return "", 0
	case able&thinks != 0:
		return rowmill.KindReasoning, 0
	}
	return rowmill.KindGeneration, 0
}

// revisionPattern matches a commit of Git, or a digest of Ollama.
var revisionPattern = regexp.MustCompile(`^(sha256:)?[0-9a-f]{40,64}$`)

// shortRevision returns the first 12 digits of a commit or digest, which identify it; empty if
// text is neither.
func shortRevision(text string) string {
	if !revisionPattern.MatchString(text) {
		return ""
	}
	return strings.TrimPrefix(text, "sha256:")[:12]
}

// hubPattern matches a Hugging Face id: organisation/name.
var hubPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$`)

// hubIDOrEmpty returns text if it looks like a Hugging Face id, and otherwise an empty string.
// Most texts that are no such id are file paths.
func hubIDOrEmpty(text string) string {
	if !hubPattern.MatchString(text) {
		return ""
	}
	return text
}
