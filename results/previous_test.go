package results

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill/internal/previous"
)

// TestPartsOfThePreviousVersion holds that parts and results of the version
// before are read, and that its parts and those of this version make one
// result: nodes of both run rows of one shard.
func TestPartsOfThePreviousVersion(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"none/generation", "uint/generation", "string/embedding"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, path := schemas()[name], "testdata/previous/"+strings.ReplaceAll(name, "/", "-")
			all := sampleEntries(s, 0, 60)
			var halves [2][]entry
			for i, e := range all {
				halves[i%2] = append(halves[i%2], e)
			}
			var mine, theirs [2]Source
			for i, half := range halves {
				part := writePart(t, s, half)
				mine[i] = part
				theirs[i] = bytes.NewReader(previous.File(t, path+"-part"+string(rune('0'+i)), contents(t, part)))
			}
			result := func(parts ...Source) []byte {
				t.Helper()
				var merged, full bytes.Buffer
				rows, err := Merge(t.Context(), &merged, s, []PartSource{{Source: parts[0]}, {Source: parts[1]}})
				if err != nil || rows != int64(len(all)) {
					t.Fatalf("%d rows, %v", rows, err)
				}
				if _, err := Concat(t.Context(), &full, s, []Source{bytes.NewReader(merged.Bytes())}, Variant{Inputs: true, Logprobs: true}); err != nil {
					t.Fatal(err)
				}
				return full.Bytes()
			}
			asJSON := func(full []byte) string {
				t.Helper()
				read, err := ReadSchema(bytes.NewReader(full))
				if err != nil || !reflect.DeepEqual(read, s) {
					t.Fatalf("its schema is %+v, %v; want %+v", read, err, s)
				}
				var text bytes.Buffer
				if err := WriteJSON(t.Context(), &text, bytes.NewReader(full), s, Variant{Inputs: true, Logprobs: true}); err != nil {
					t.Fatal(err)
				}
				return text.String()
			}
			own := result(mine[0], mine[1])
			want := asJSON(own)
			for how, full := range map[string][]byte{
				"both parts of theirs":      result(theirs[0], theirs[1]),
				"the second part of theirs": result(mine[0], theirs[1]),
				"their result":              previous.File(t, path+"-full", own),
			} {
				if diff := cmp.Diff(want, asJSON(full)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", how, diff)
				}
			}
		})
	}
}
