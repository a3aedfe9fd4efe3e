package columnar

import (
	"strconv"

	"github.com/rowmill/rowmill/internal/textfmt"
)

// jsonAssembler builds one nested value as JSON from the levels of its leaves:
// https://research.google/pubs/dremel-interactive-analysis-of-web-scale-datasets/.
type jsonAssembler struct {
	column *columnCursor
	base   int    // number of the column's first leaf
	out    []byte // the JSON so far
}

// pageReaderOf returns the page reader of the first leaf in or under n.
func (a *jsonAssembler) pageReaderOf(n *schemaNode) *pageReader {
	return a.column.leaves[n.leaf-a.base]
}

// definition returns the definition level of the next value of the first leaf in or
// under n. It returns an error if there is no next value.
func (a *jsonAssembler) definition(n *schemaNode) (int, error) {
	if err := a.pageReaderOf(n).requireNext(); err != nil {
		return 0, err
	}
	_, def := a.pageReaderOf(n).levels()
	return def, nil
}

// takeValue returns the next value of a leaf. ok is false for a null.
func (a *jsonAssembler) takeValue(n *schemaNode) (raw []byte, ok bool, err error) {
	if err := a.pageReaderOf(n).requireNext(); err != nil {
		return nil, false, err
	}
	raw, ok = a.pageReaderOf(n).takeValue()
	return raw, ok, nil
}

// skipAbsent skips the placeholder that each leaf in or under n has if n is absent.
func (a *jsonAssembler) skipAbsent(n *schemaNode) error {
	for i := range n.leaves {
		pages := a.column.leaves[n.leaf-a.base+i]
		if err := pages.requireNext(); err != nil {
			return err
		}
		pages.takeValue()
	}
	return nil
}

// appendNode appends n as JSON: null, a list if n is repeated, or the content of n.
func (a *jsonAssembler) appendNode(n *schemaNode) error {
	if n.leaves == 0 {
		return newFormatError("Column %q of the Parquet file is a group without fields.", n.path)
	}
	if n.repeated {
		a.out = append(a.out, '[')
		if err := a.appendElements(n, func() error { return a.appendContent(n) }); err != nil {
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
			return a.skipAbsent(n)
		}
	}
	return a.appendContent(n)
}

// appendElements calls element for each repetition of n, and writes commas between them.
func (a *jsonAssembler) appendElements(n *schemaNode, element func() error) error {
	def, err := a.definition(n)
	if err != nil {
		return err
	}
	if def < n.def {
		return a.skipAbsent(n)
	}
	for {
		if err := element(); err != nil {
			return err
		}
		more, err := a.pageReaderOf(n).hasNext()
		if err != nil || !more {
			return err
		}
		if rep, _ := a.pageReaderOf(n).levels(); rep < n.rep {
			return nil
		}
		a.out = append(a.out, ',')
	}
}

// appendContent appends the content of n as JSON. n must be present.
func (a *jsonAssembler) appendContent(n *schemaNode) error {
	if n.isLeaf() {
		raw, ok, err := a.takeValue(n)
		if err != nil {
			return err
		}
		if !ok {
			a.out = append(a.out, "null"...)
			return nil
		}
		if a.out, err = n.kind.appendJSON(a.out, raw); err != nil {
			return newFormatError("Column %q of the Parquet file cannot be turned into text: %v.", n.path, err)
		}
		return nil
	}
	if repeated, item, ok := n.asList(); ok {
		a.out = append(a.out, '[')
		element := func() error { return a.appendNode(item) }
		if item == repeated {
			element = func() error { return a.appendContent(item) }
		}
		if err := a.appendElements(repeated, element); err != nil {
			return err
		}
		a.out = append(a.out, ']')
		return nil
	}
	a.out = append(a.out, '{')
	if repeated, ok := n.asMap(); ok {
		if err := a.appendElements(repeated, func() error { return a.appendMapEntry(repeated) }); err != nil {
			return err
		}
	} else {
		for i, child := range n.children {
			if i > 0 {
				a.out = append(a.out, ',')
			}
			a.out = append(textfmt.AppendString(a.out, []byte(child.name)), ':')
			if err := a.appendNode(child); err != nil {
				return err
			}
		}
	}
	a.out = append(a.out, '}')
	return nil
}

// appendMapEntry appends one key and value of a map. The key becomes text, because JSON allows
// only text keys.
func (a *jsonAssembler) appendMapEntry(n *schemaNode) error {
	key := n.children[0]
	raw, ok, err := a.takeValue(key)
	if err != nil {
		return err
	}
	var text []byte
	if ok {
		if text, err = key.kind.appendText(nil, raw); err != nil {
			return newFormatError("Column %q of the Parquet file cannot be turned into text: %v.", key.path, err)
		}
	}
	a.out = append(textfmt.AppendString(a.out, text), ':')
	return a.appendNode(n.children[1])
}

// appendFloat appends f as a JSON number: the shortest text that parses back to f.
func appendFloat(b []byte, f float64, bits int) []byte {
	format := byte('f')
	if abs := max(f, -f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(b, f, format, -1, bits)
}
