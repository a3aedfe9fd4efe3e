package columnar

import (
	"strconv"

	"github.com/rowmill/rowmill/internal/textfmt"
)

// assembler rebuilds one nested value as JSON from the levels of its leaves:
// https://research.google/pubs/dremel-interactive-analysis-of-web-scale-datasets/.
type assembler struct {
	column *column
	base   int // index of the column's first leaf
	out    []byte
}

// pages returns the reader of the first leaf under n.
func (a *assembler) pages(n *node) *pageReader { return a.column.leaves[n.leaf-a.base] }

// definition returns the definition level of the next value of the first leaf under n.
// It returns an error if there is no next value.
func (a *assembler) definition(n *node) (int, error) {
	if err := a.pages(n).need(); err != nil {
		return 0, err
	}
	_, def := a.pages(n).levels()
	return def, nil
}

// take returns the next value of a leaf; ok is false for null.
func (a *assembler) take(n *node) (raw []byte, ok bool, err error) {
	if err := a.pages(n).need(); err != nil {
		return nil, false, err
	}
	raw, ok = a.pages(n).take()
	return raw, ok, nil
}

// drop skips the placeholder value that each leaf of n has when n is absent.
func (a *assembler) drop(n *node) error {
	for i := range n.leaves {
		pages := a.column.leaves[n.leaf-a.base+i]
		if err := pages.need(); err != nil {
			return err
		}
		pages.take()
	}
	return nil
}

// value writes n: null, a list of its repetitions, or its content.
func (a *assembler) value(n *node) error {
	if n.leaves == 0 {
		return badFile("Column %q of the Parquet file is a group without fields.", n.path)
	}
	if n.repeated {
		a.out = append(a.out, '[')
		if err := a.elements(n, func() error { return a.content(n) }); err != nil {
			return err
		}
		a.out = append(a.out, ']')
		return nil
	}
	if n.optional {
		def, err := a.definition(n)
		if err != nil {
			return err
		}
		if def < n.def {
			a.out = append(a.out, "null"...)
			return a.drop(n)
		}
	}
	return a.content(n)
}

// elements calls element for each repetition of n, with commas between.
func (a *assembler) elements(n *node, element func() error) error {
	def, err := a.definition(n)
	if err != nil {
		return err
	}
	if def < n.def {
		return a.drop(n)
	}
	for {
		if err := element(); err != nil {
			return err
		}
		more, err := a.pages(n).more()
		if err != nil || !more {
			return err
		}
		if rep, _ := a.pages(n).levels(); rep < n.rep {
			return nil
		}
		a.out = append(a.out, ',')
	}
}

// content writes n, which must be present.
func (a *assembler) content(n *node) error {
	if n.isLeaf() {
		raw, ok, err := a.take(n)
		if err != nil {
			return err
		}
		if !ok {
			a.out = append(a.out, "null"...)
			return nil
		}
		if a.out, err = n.kind.appendJSON(a.out, raw); err != nil {
			return badFile("Column %q of the Parquet file cannot be turned into text: %v.", n.path, err)
		}
		return nil
	}
	if repeated, item, ok := n.isList(); ok {
		a.out = append(a.out, '[')
		element := func() error { return a.value(item) }
		if item == repeated {
			element = func() error { return a.content(item) }
		}
		if err := a.elements(repeated, element); err != nil {
			return err
		}
		a.out = append(a.out, ']')
		return nil
	}
	a.out = append(a.out, '{')
	if repeated, ok := n.isMap(); ok {
		if err := a.elements(repeated, func() error { return a.entry(repeated) }); err != nil {
			return err
		}
	} else {
		for i, child := range n.children {
			if i > 0 {
				a.out = append(a.out, ',')
			}
			a.out = append(textfmt.AppendString(a.out, []byte(child.name)), ':')
			if err := a.value(child); err != nil {
				return err
			}
		}
	}
	a.out = append(a.out, '}')
	return nil
}

// entry writes one key and value of a map. JSON has only text keys.
func (a *assembler) entry(n *node) error {
	key := n.children[0]
	raw, ok, err := a.take(key)
	if err != nil {
		return err
	}
	var text []byte
	if ok {
		if text, err = key.kind.appendText(nil, raw); err != nil {
			return badFile("Column %q of the Parquet file cannot be turned into text: %v.", key.path, err)
		}
	}
	a.out = append(textfmt.AppendString(a.out, text), ':')
	return a.value(n.children[1])
}

// appendFloat appends the shortest text that parses back to f, as a JSON
// number.
func appendFloat(b []byte, f float64, bits int) []byte {
	format := byte('f')
	if abs := max(f, -f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(b, f, format, -1, bits)
}
