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

// describe adds what the server says of the nature of its models: in its list,
// and by what it was asked of each.
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
		switch kind, dimension := rowmill.Kind(said.Kind.is), usable(whole(said.Dimension), maxDimension); {
		case kind == rowmill.KindGeneration, kind == rowmill.KindReasoning:
			m.Kind = kind
		case kind == rowmill.KindEmbedding && dimension > 0:
			m.Kind, m.Dimension = kind, dimension
		}
		if able := found.able[m.Name]; able != 0 && m.Kind == "" {
			m.Kind, m.Dimension = natureOf(info.Kind, able, found.dimension[m.Name])
		}
	}
}

// natureOf is what a server's word about its abilities says of a model. SGLang
// tells models that generate from others, and not which of them reason.
func natureOf(server string, able ability, dimension int) (rowmill.Kind, int) {
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

// hubID is text where it may be a Hugging Face id, and else empty: a path, most
// often.
func hubID(text string) string {
	if !hubPattern.MatchString(text) {
		return ""
	}
	return text
}
