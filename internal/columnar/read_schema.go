package columnar

import (
	"strings"

	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// maxSchemaDepth is the largest depth of a schema. Real schemas are much less deep.
const maxSchemaDepth = 64

// schemaNode is a column or a group of columns in the schema of a user's file.
type schemaNode struct {
	name     string
	path     string // names from the root to the node, separated by dots
	element  *format.SchemaElement
	optional bool   // true if the value can be null
	repeated bool   // true if the node can have several values
	rep, def int    // repetition level and definition level of a present value
	variant  string // path of the column of type VARIANT that contains the node, or empty
	children []*schemaNode
	leaf     int      // number of the first leaf in or under the node
	leaves   int      // number of leaves in or under the node
	kind     leafKind // how values of a leaf become text
}

// schemaTree builds the tree of nodes from the schema elements, which are in
// depth-first order.
func schemaTree(elements []format.SchemaElement) (*schemaNode, error) {
	b := treeBuilder{elements: elements}
	root, err := b.build(nil, 0)
	if err != nil {
		return nil, err
	}
	if b.next != len(elements) {
		return nil, newFormatError("The Parquet file is corrupt: its schema has %d elements too many.", len(elements)-b.next)
	}
	return root, nil
}

// treeBuilder is the state of one call of schemaTree: the next element, and the number
// of the next leaf.
type treeBuilder struct {
	elements []format.SchemaElement
	next     int
	leaf     int
}

// build builds the node of the next element, and its children.
func (b *treeBuilder) build(parent *schemaNode, depth int) (*schemaNode, error) {
	if b.next >= len(b.elements) || depth > maxSchemaDepth {
		return nil, newFormatError("The Parquet file is corrupt or nested too deeply: its schema ends early or has more than %d levels.", maxSchemaDepth)
	}
	e := &b.elements[b.next]
	b.next++
	n := &schemaNode{name: e.Name, element: e, leaf: b.leaf}
	if parent != nil {
		n.rep, n.def = parent.rep, parent.def
		n.path = strings.TrimPrefix(parent.path+"."+e.Name, ".")
		n.variant = parent.variant
		if _, ok := e.LogicalType.Value.(*format.VariantType); ok {
			n.variant = n.path
		}
		switch {
		case !e.RepetitionType.Valid || e.RepetitionType.V == format.Required:
		case e.RepetitionType.V == format.Optional:
			n.optional = true
			n.def++
		default:
			n.repeated = true
			n.rep++
			n.def++
		}
	}
	if e.Type.Valid && parent != nil {
		n.leaves = 1
		n.kind = leafKindOf(e)
		b.leaf++
		return n, nil
	}
	for range e.NumChildren.V {
		child, err := b.build(n, depth+1)
		if err != nil {
			return nil, err
		}
		n.children = append(n.children, child)
		n.leaves += child.leaves
	}
	return n, nil
}

// isFlat reports whether the node is a column of single values: no group, list or map.
func (n *schemaNode) isFlat() bool { return n.isLeaf() && n.rep == 0 && len(n.children) == 0 }

func (n *schemaNode) isLeaf() bool { return n.element.Type.Valid }

// byteArray is the width of a column whose values have different lengths.
const byteArray = -1

// valueWidth returns the size of a decoded value in bytes, or byteArray.
func (n *schemaNode) valueWidth() int {
	switch n.element.Type.V {
	case format.Boolean:
		return 1
	case format.Int32, format.Float:
		return 4
	case format.Int64, format.Double:
		return 8
	case format.Int96:
		return 12
	case format.FixedLenByteArray:
		return int(n.element.TypeLength.V)
	}
	return byteArray
}

// checkReadable returns an error if values of the leaf's type cannot be read.
func (n *schemaNode) checkReadable() error {
	switch {
	case n.kind.class == classBSON:
		return newFormatError("Column %q of the Parquet file has the type BSON, which is not supported. Write it as JSON or as plain text.", n.path)
	case n.variant != "":
		return newFormatError("Column %q of the Parquet file has the type VARIANT, which is not supported. Write it as JSON.", n.variant)
	case n.element.Type.V < format.Boolean || n.element.Type.V > format.FixedLenByteArray:
		return newFormatError("Column %q of the Parquet file has the physical type %d, which is not known. Write it as plain text.", n.path, n.element.Type.V)
	case n.element.Type.V == format.FixedLenByteArray && n.element.TypeLength.V <= 0:
		return newFormatError("The Parquet file is corrupt: column %q has values of %d bytes.", n.path, n.element.TypeLength.V)
	}
	return nil
}

// asList reports whether the node is a list as the format's LIST annotation defines it:
// a group with a single repeated child. item is the node of an element: the child
// itself, or the only field of the child.
// https://github.com/apache/parquet-format/blob/master/LogicalTypes.md#lists
func (n *schemaNode) asList() (repeated *schemaNode, item *schemaNode, ok bool) {
	_, logical := n.element.LogicalType.Value.(*format.ListType)
	legacy := n.element.ConvertedType.Valid && n.element.ConvertedType.V == deprecated.List
	if !logical && !legacy || len(n.children) != 1 || !n.children[0].repeated {
		return nil, nil, false
	}
	repeated = n.children[0]
	twoLevel := len(repeated.children) != 1 || repeated.name == "array" || repeated.name == n.name+"_tuple"
	if twoLevel {
		return repeated, repeated, true
	}
	return repeated, repeated.children[0], true
}

// asMap reports whether the node is a map: a group with a single repeated child that
// has a key and a value.
// https://github.com/apache/parquet-format/blob/master/LogicalTypes.md#maps
func (n *schemaNode) asMap() (repeated *schemaNode, ok bool) {
	_, logical := n.element.LogicalType.Value.(*format.MapType)
	c := n.element.ConvertedType
	legacy := c.Valid && (c.V == deprecated.Map || c.V == deprecated.MapKeyValue)
	if !logical && !legacy || len(n.children) != 1 || !n.children[0].repeated || len(n.children[0].children) != 2 || !n.children[0].children[0].isLeaf() {
		return nil, false
	}
	return n.children[0], true
}

// typeName returns the name of the node's type for users.
func (n *schemaNode) typeName() string {
	if s := n.element.LogicalType.String(); s != "" {
		return s
	}
	if c := n.element.ConvertedType; c.Valid {
		if name, ok := convertedNames[c.V]; ok {
			return name
		}
	}
	if n.isLeaf() {
		return n.element.Type.V.String()
	}
	return "GROUP"
}

// convertedNames maps old type annotations (ConvertedType) to type names. The format
// package has no names for them.
var convertedNames = map[deprecated.ConvertedType]string{
	deprecated.UTF8: "STRING", deprecated.Enum: "ENUM", deprecated.Json: "JSON", deprecated.Bson: "BSON",
	deprecated.Map: "MAP", deprecated.MapKeyValue: "MAP", deprecated.List: "LIST",
	deprecated.Decimal: "DECIMAL", deprecated.Date: "DATE", deprecated.Interval: "INTERVAL",
	deprecated.TimeMillis: "TIME", deprecated.TimeMicros: "TIME",
	deprecated.TimestampMillis: "TIMESTAMP", deprecated.TimestampMicros: "TIMESTAMP",
	deprecated.Uint8: "UINT8", deprecated.Uint16: "UINT16", deprecated.Uint32: "UINT32", deprecated.Uint64: "UINT64",
	deprecated.Int8: "INT8", deprecated.Int16: "INT16", deprecated.Int32: "INT32", deprecated.Int64: "INT64",
}
