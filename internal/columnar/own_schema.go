package columnar

import (
	"fmt"

	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"github.com/rowmill/rowmill"
)

// A Table is a Parquet file in the restricted form that this program writes. The
// form lets the program copy column chunks byte for byte and find any row
// without a scan:
//
//   - columns are flat, or a three-level list of floats; data pages version 1,
//     PLAIN values, RLE levels, Snappy, a CRC on every page, no dictionary
//     (Snappy compresses repeated short words to about a byte each);
//   - the pages of all columns in a row group end at the same rows: a set of
//     such pages is a RowBlock;
//   - the eight bytes before the footer are the magic "RMF1" and the CRC-32C
//     of the footer, which other readers ignore.
//
// The format is https://github.com/apache/parquet-format. Any Parquet reader
// can read a table. The other half of this package reads files that users
// bring.

// TableKind is the type of the values in a table column.
type TableKind uint8

// The kinds of table columns, with their Parquet types.
const (
	TableText   TableKind = iota + 1 // BYTE_ARRAY, STRING
	TableInt                         // INT64
	TableUint                        // INT64, unsigned
	TableReal                        // DOUBLE
	TableBool                        // BOOLEAN
	TableFloats                      // LIST of FLOAT
	TableLeaf                        // the type is in TableColumn.Leaf
)

// String returns the name of the kind for error messages.
func (k TableKind) String() string {
	names := [...]string{"nothing", "text", "int", "uint", "real", "bool", "list of floats", "a type of a user's file"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// TableColumn describes one column of a table.
type TableColumn struct {
	Name     string
	Kind     TableKind
	Required bool                  // true if no value is null; a list of floats cannot be required
	Leaf     rowmill.IDParquetType // type of the values; set only if the kind is TableLeaf
}

// leafType returns the type of a TableLeaf column. It returns nil for other columns.
func (c TableColumn) leafType() *LeafType {
	if c.Kind != TableLeaf {
		return nil
	}
	l, err := ParseLeaf(c.Leaf)
	if err != nil {
		panic(fmt.Sprintf("column %q: %v", c.Name, err))
	}
	return l
}

// maxDefinitionLevel returns the definition level of a value that is not null.
func (c TableColumn) maxDefinitionLevel() byte {
	switch {
	case c.Kind == TableFloats:
		return listPresent
	case c.Required:
		return 0
	default:
		return 1
	}
}

// Definition levels of a list of floats. Level 2 would be a null inside the list; this
// program never writes it.
const (
	listNull    = 0 // the list is null
	listEmpty   = 1 // the list has no floats
	listPresent = 3 // a float of the list
)

// physical returns the physical Parquet type of the column's values.
func (c TableColumn) physical() format.Type {
	switch c.Kind {
	case TableLeaf:
		return c.leafType().element.Type.V
	case TableText:
		return format.ByteArray
	case TableInt, TableUint:
		return format.Int64
	case TableReal:
		return format.Double
	case TableBool:
		return format.Boolean
	default:
		return format.Float
	}
}

// path returns the path of the column's values in the Parquet schema.
func (c TableColumn) path() []string {
	if c.Kind == TableFloats {
		return []string{c.Name, "list", "element"}
	}
	return []string{c.Name}
}

// elements returns the column's entries for the Parquet schema in the footer.
func (c TableColumn) elements() []format.SchemaElement {
	e := format.SchemaElement{}
	if l := c.leafType(); l != nil {
		e = l.element
	}
	e.Name = c.Name
	e.RepetitionType.Set(format.Optional)
	if c.Required {
		e.RepetitionType.Set(format.Required)
	}
	if c.Kind == TableFloats {
		e.NumChildren.Set(1)
		e.ConvertedType.Set(deprecated.List)
		e.LogicalType.Value = new(format.ListType)
		list := format.SchemaElement{Name: "list"}
		list.RepetitionType.Set(format.Repeated)
		list.NumChildren.Set(1)
		element := format.SchemaElement{Name: "element"}
		element.RepetitionType.Set(format.Optional)
		element.Type.Set(format.Float)
		return []format.SchemaElement{e, list, element}
	}
	if c.Kind == TableLeaf {
		return []format.SchemaElement{e}
	}
	e.Type.Set(c.physical())
	switch c.Kind {
	case TableText:
		e.ConvertedType.Set(deprecated.UTF8)
		e.LogicalType.Value = new(format.StringType)
	case TableUint:
		e.ConvertedType.Set(deprecated.Uint64)
		e.LogicalType.Value = &format.IntType{BitWidth: 64, IsSigned: false}
	}
	return []format.SchemaElement{e}
}

// checkColumns returns an error if a table cannot have these columns.
func checkColumns(columns []TableColumn) error {
	if len(columns) == 0 {
		return fmt.Errorf("a table needs at least one column")
	}
	seen := make(map[string]bool, len(columns))
	for _, c := range columns {
		switch {
		case c.Name == "":
			return fmt.Errorf("a table's column needs a name")
		case seen[c.Name]:
			return fmt.Errorf("column %q appears twice", c.Name)
		case c.Kind < TableText || c.Kind > TableLeaf:
			return fmt.Errorf("column %q: %v is not a kind of column", c.Name, c.Kind)
		case c.Kind == TableFloats && c.Required:
			return fmt.Errorf("column %q: a list of floats cannot be required", c.Name)
		case (c.Kind == TableLeaf) != (c.Leaf != ""):
			return fmt.Errorf("column %q: Leaf is %q, which does not fit the kind (%v)", c.Name, c.Leaf, c.Kind)
		case c.Kind == TableLeaf:
			if _, err := ParseLeaf(c.Leaf); err != nil {
				return fmt.Errorf("column %q: %w", c.Name, err)
			}
		}
		seen[c.Name] = true
	}
	return nil
}

// tableSchema returns the Parquet schema of a table with these columns.
func tableSchema(columns []TableColumn) []format.SchemaElement {
	root := format.SchemaElement{Name: "rowmill"}
	root.NumChildren.Set(int32(len(columns)))
	schema := []format.SchemaElement{root}
	for _, c := range columns {
		schema = append(schema, c.elements()...)
	}
	return schema
}

// tableColumns returns the columns for a Parquet schema. It is the inverse of
// tableSchema and arrowSchema. notes has the result of parseArrowTypes.
func tableColumns(schema []format.SchemaElement, notes map[int]string) ([]TableColumn, error) {
	if len(schema) == 0 {
		return nil, fmt.Errorf("the schema is empty")
	}
	var columns []TableColumn
	for i := 1; i < len(schema); {
		e := schema[i]
		c := TableColumn{Name: e.Name, Required: e.RepetitionType.V == format.Required}
		i++
		if e.NumChildren.V > 0 {
			if i+2 > len(schema) || schema[i+1].Type.V != format.Float {
				return nil, fmt.Errorf("column %q is not a list of floats", e.Name)
			}
			c.Kind = TableFloats
			i += 2
		} else if l, ok := leafWithArrowType(&e, notes[len(columns)]); ok {
			var err error
			c.Kind = TableLeaf
			if c.Leaf, err = l.encodeIDLeaf(); err != nil {
				return nil, fmt.Errorf("column %q: %w", e.Name, err)
			}
		} else {
			switch e.Type.V {
			case format.ByteArray:
				c.Kind = TableText
			case format.Int64:
				c.Kind = TableInt
				if t, ok := e.LogicalType.Value.(*format.IntType); ok && !t.IsSigned {
					c.Kind = TableUint
				}
			case format.Double:
				c.Kind = TableReal
			case format.Boolean:
				c.Kind = TableBool
			default:
				return nil, fmt.Errorf("column %q has the type %v, which tables do not support", e.Name, e.Type.V)
			}
		}
		columns = append(columns, c)
	}
	return columns, checkColumns(columns)
}
