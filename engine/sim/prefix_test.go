package sim

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/engine/sim/batching"
)

// TestBlockHashes compares with the tokens themselves: hashes are as many as
// full blocks, and agree as far as the tokens of two prompts do.
func TestBlockHashes(t *testing.T) {
	t.Parallel()
	texts := rapid.StringOfN(rapid.RuneFrom([]rune("ab  .ä\n")), 0, 200, -1)
	rapid.Check(t, func(t *rapid.T) {
		shared := texts.Draw(t, "shared")
		a := promptOf(texts.Draw(t, "system"), shared+texts.Draw(t, "a"))
		b := promptOf(texts.Draw(t, "system"), shared+texts.Draw(t, "b"))
		if rapid.Bool().Draw(t, "the same system") {
			_, rest, _ := strings.Cut(string(b), "\x00user\x00")
			system, _, _ := strings.Cut(string(a), "\x00user\x00")
			b = []byte(system + "\x00user\x00" + rest)
		}
		tokensA, tokensB := templateIDs(a, false), templateIDs(b, false)
		hashesA, hashesB := blockHashes(a, 1<<20), blockHashes(b, 1<<20)
		if len(hashesA) != len(tokensA)/batching.BlockTokens {
			t.Fatalf("%d hashes for %d tokens", len(hashesA), len(tokensA))
		}
		for i := range min(len(hashesA), len(hashesB)) {
			end := (i + 1) * batching.BlockTokens
			if same := slices.Equal(tokensA[:end], tokensB[:end]); same != (hashesA[i] == hashesB[i]) {
				t.Fatalf("block %d: tokens equal %v, hashes equal %v\n%q\n%q", i, same, !same, a, b)
			}
		}
		limit := rapid.IntRange(0, 8).Draw(t, "limit")
		if got := blockHashes(a, limit); !slices.Equal(got, hashesA[:min(limit, len(hashesA))]) {
			t.Fatalf("with limit %d: %d hashes", limit, len(got))
		}
	})
}

// promptOf is a prompt as conversation.prompt has it.
func promptOf(system, user string) []byte {
	return []byte("system\x00" + system + "\x00user\x00" + user + "\x00")
}

func TestBlockHashesOfOddPrompts(t *testing.T) {
	t.Parallel()
	for _, prompt := range []string{"", "\x00", "no role at all", "user\x00no end", "user\x00a\x00b\x00\x00c\x00"} {
		blockHashes([]byte(prompt), 100) // must end
	}
}

func BenchmarkBlockHashes(b *testing.B) {
	prompt := promptOf("", prompt1K)
	b.SetBytes(int64(len(prompt)))
	for b.Loop() {
		blockHashes(prompt, 100)
	}
}
