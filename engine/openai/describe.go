package openai

import (
	"regexp"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

// Counts reports whether servers of a kind count prompts.
func Counts(kind string) bool {
	return kind != kindOllama && kind != kindInfinity && kind != kindTEI && kind != kindOther
}

// describe adds the kind, the base model and the Hugging Face id of each model to info,
// from the server's list and from the details of the probe.
func describe(info *engine.Info, found facts, list listedModels) {
	for i, said := range list {
		m := &info.Models[i]
		if m.Origin = hubID(shortWord(said.Root.is, maxName)); m.Origin == "" {
			m.Origin = hubID(strings.TrimPrefix(strings.SplitN(m.Name, ":", 2)[0], "hf.co/"))
		}
		if m.Origin == m.Name {
			m.Origin = ""
		}
		if m.Base = shortWord(said.Parent.is, maxName); m.Base == m.Name {
			m.Base = ""
		}
		switch kind, dimension := rowmill.Kind(said.Kind.is), plausible(whole(said.Dimension), maxDimension); {
		case kind == rowmill.KindGeneration, kind == rowmill.KindReasoning:
			m.Kind = kind
		case kind == rowmill.KindEmbedding && dimension > 0:
			m.Kind, m.Dimension = kind, dimension
		}
		if able := found.able[m.Name]; able != 0 && m.Kind == "" {
			m.Kind, m.Dimension = kindOf(info.Kind, able, found.dimension[m.Name])
		}
	}
}

// kindOf derives the kind of a model from the abilities that the server reports. SGLang
// reports the ability to generate, but not the ability to reason.
func kindOf(server string, able ability, dimension int) (rowmill.Kind, int) {
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

var hubPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$`)

// hubID returns text if it may be a Hugging Face id, and otherwise an empty string. Most
// other texts are paths.
func hubID(text string) string {
	if !hubPattern.MatchString(text) {
		return ""
	}
	return text
}
