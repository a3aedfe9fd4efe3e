package columnar

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Parquet has no type for durations and stores no time zone names. Programs that use
// Arrow store an Arrow schema in addition to the Parquet schema, and read it again:
// https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc.
// This file reads the Arrow schema only to find durations and time zones. It writes an
// Arrow schema only if a column has a duration or a time zone.

// arrowKey is the key of the Arrow schema in the key-value metadata.
const arrowKey = "ARROW:schema"

// Prefixes of notes, the values of Leaf.arrow. After arrowZone comes the name of a time
// zone, and after arrowDuration the number of a time unit.
const (
	arrowZone     = "zone="
	arrowDuration = "duration="
)

// maxZone limits a time zone name in the Arrow metadata of a column, in bytes: twice the
// longest real name.
const maxZone = 64

// Numbers from Arrow's Schema.fbs and Message.fbs.
const (
	arrowVersion   = 4 // metadata version V5
	arrowSchemaTag = 1 // message type Schema
	arrowInt       = 2
	arrowFloat     = 3
	arrowUTF8      = 5
	arrowBool      = 6
	arrowStamp     = 10
	arrowList      = 12
	arrowElapsed   = 18 // type Duration
	arrowSingle    = 1  // precision of a float32
	arrowDouble    = 2  // precision of a float64
)

// errArrow means that the bytes are not an Arrow schema.
var errArrow = errors.New("no Arrow schema")

// parseArrowTypes returns the time zone or the duration unit of each column that has one in
// the Arrow schema, by column position. schema is the value of arrowKey in the file's
// metadata. If there is no schema, or if it cannot be read, parseArrowTypes returns nil.
func parseArrowTypes(schema string) map[int]string {
	raw, err := base64.StdEncoding.DecodeString(schema)
	if err != nil {
		return nil
	}
	notes, err := readArrowSchema(raw)
	if err != nil {
		return nil
	}
	return notes
}

// readArrowSchema reads an Arrow message with a schema, and returns the result of parseArrowTypes.
func readArrowSchema(raw []byte) (notes map[int]string, err error) {
	defer func() { // a read at a bad offset panics
		if recover() != nil {
			notes, err = nil, errArrow
		}
	}()
	if len(raw) > 8 && binary.LittleEndian.Uint32(raw) == 0xFFFFFFFF {
		raw = raw[4:]
	}
	if len(raw) < 8 {
		return nil, errArrow
	}
	f := flatbuffer(raw[4:])
	message := f.followRef(0)
	if f.byteAt(f.memberOffset(message, 1)) != arrowSchemaTag {
		return nil, errArrow
	}
	fields := f.followRef(f.memberOffset(f.followRef(f.memberOffset(message, 2)), 1))
	notes = map[int]string{}
	for i := range f.int(fields) {
		if i == maxFooterStructs {
			return nil, errArrow
		}
		field := f.followRef(fields + 4 + 4*i)
		if note := f.zoneOrDuration(f.byteAt(f.memberOffset(field, 2)), f.memberOffset(field, 3)); note != "" {
			notes[i] = note
		}
	}
	return notes, nil
}

// zoneOrDuration returns the time zone or the duration unit of a column's type, with its prefix,
// or an empty string. kind is the number of the type, and at is the offset of the
// type's table.
func (f flatbuffer) zoneOrDuration(kind byte, at int) string {
	if at == 0 {
		return ""
	}
	table := f.followRef(at)
	switch kind {
	case arrowElapsed:
		unit := uint16(1) // the default, milliseconds
		if at := f.memberOffset(table, 0); at != 0 {
			unit = binary.LittleEndian.Uint16(f[at:])
		}
		if unit < 4 {
			return arrowDuration + strconv.Itoa(int(unit))
		}
	case arrowStamp:
		if at := f.memberOffset(table, 1); at != 0 {
			text := f.followRef(at)
			zone := string(f[text+4:][:f.int(text)])
			if isZone(zone) {
				return arrowZone + zone
			}
		}
	}
	return ""
}

// isZone reports whether name looks like a time zone that a note must have. UTC needs
// no note.
func isZone(name string) bool {
	plain := func(r rune) bool { return r > ' ' && r <= '~' && r != ';' }
	return name != "" && name != "UTC" && len(name) <= maxZone && strings.IndexFunc(name, func(r rune) bool { return !plain(r) }) < 0
}

// flatbuffer is a flatbuffer, https://flatbuffers.dev/internals. A read beyond its end
// panics.
type flatbuffer []byte

// int returns the 4-byte number at an offset.
func (f flatbuffer) int(at int) int { return int(binary.LittleEndian.Uint32(f[at:])) }

// followRef returns the offset to which the reference at an offset points.
func (f flatbuffer) followRef(at int) int { return at + f.int(at) }

// byteAt returns the byte at an offset, or 0 for offset 0, which means that the member
// is missing.
func (f flatbuffer) byteAt(at int) byte {
	if at == 0 {
		return 0
	}
	return f[at]
}

// memberOffset returns the offset of member n of a table, or 0 if the table does not have this
// member.
func (f flatbuffer) memberOffset(table, n int) int {
	vtable := table - int(int32(f.int(table)))
	if size := int(binary.LittleEndian.Uint16(f[vtable:])); 4+2*n+2 > size {
		return 0
	}
	if at := int(binary.LittleEndian.Uint16(f[vtable+4+2*n:])); at != 0 {
		return table + at
	}
	return 0
}

// arrowSchema returns the metadata value of arrowKey for a table with these columns. It
// returns an empty string if no column has a time zone or a duration.
func arrowSchema(columns []TableColumn) string {
	notes := make([]string, len(columns))
	for i, c := range columns {
		if l := c.leafType(); l != nil {
			notes[i] = l.arrow
		}
	}
	if strings.Join(notes, "") == "" {
		return ""
	}
	w := flatbufferWriter{0, 0, 0, 0}
	message := w.appendTable(0, 1, 1, 1)
	w.putNumber(message[0], arrowVersion)
	w.putNumber(message[1], arrowSchemaTag)
	schema := w.appendTable(message[2], 0, 1)
	fields := w.appendVector(schema[1], len(columns))
	for i, c := range columns {
		w.appendField(fields[i], c, notes[i])
	}
	for len(w)%8 != 0 {
		w = append(w, 0)
	}
	head := binary.LittleEndian.AppendUint32([]byte{0xFF, 0xFF, 0xFF, 0xFF}, uint32(len(w)))
	return base64.StdEncoding.EncodeToString(append(head, w...))
}

// flatbufferWriter writes a flatbuffer from front to back. Each member of a table takes four
// bytes.
type flatbufferWriter []byte

// pointToEnd makes the member at an offset refer to the end of the buffer, where the next
// object begins.
func (w *flatbufferWriter) pointToEnd(at int) {
	for len(*w)%4 != 0 {
		*w = append(*w, 0)
	}
	binary.LittleEndian.PutUint32((*w)[at:], uint32(len(*w)-at))
}

// putNumber stores the number v in the member at an offset.
func (w *flatbufferWriter) putNumber(at, v int) { binary.LittleEndian.PutUint32((*w)[at:], uint32(v)) }

// appendTable appends a table, and makes the member at an offset refer to it. present[n] is 1
// if the table has member n, otherwise 0. appendTable returns the offsets of the members.
func (w *flatbufferWriter) appendTable(refOffset int, present ...int) (members []int) {
	vtable := make([]byte, 4+2*len(present))
	size := 4
	for i, there := range present {
		if there == 1 {
			binary.LittleEndian.PutUint16(vtable[4+2*i:], uint16(size))
			size += 4
		}
	}
	binary.LittleEndian.PutUint16(vtable, uint16(len(vtable)))
	binary.LittleEndian.PutUint16(vtable[2:], uint16(size))
	for (len(*w)+len(vtable))%4 != 0 {
		*w = append(*w, 0)
	}
	*w = append(*w, vtable...)
	w.pointToEnd(refOffset)
	table := len(*w)
	*w = append(*w, make([]byte, size)...)
	w.putNumber(table, len(vtable))
	for i := range present {
		members = append(members, table+int(binary.LittleEndian.Uint16(vtable[4+2*i:])))
	}
	return members
}

// appendVector appends a vector of n elements, and makes the member at an offset refer to it.
// It returns the offsets of the elements.
func (w *flatbufferWriter) appendVector(refOffset, n int) (places []int) {
	w.pointToEnd(refOffset)
	*w = binary.LittleEndian.AppendUint32(*w, uint32(n))
	for range n {
		places = append(places, len(*w))
		*w = append(*w, 0, 0, 0, 0)
	}
	return places
}

// appendText appends a string, and makes the member at an offset refer to it.
func (w *flatbufferWriter) appendText(refOffset int, s string) {
	w.pointToEnd(refOffset)
	*w = append(binary.LittleEndian.AppendUint32(*w, uint32(len(s))), s...)
	*w = append(*w, 0)
}

// appendField appends the Arrow description of one column: name, nullable, type, children.
func (w *flatbufferWriter) appendField(refOffset int, c TableColumn, note string) {
	nullable := 1
	if c.Required {
		nullable = 0
	}
	kind := map[TableKind]int{
		TableText: arrowUTF8, TableInt: arrowInt, TableUint: arrowInt, TableReal: arrowFloat, TableBool: arrowBool, TableFloats: arrowList,
	}[c.Kind]
	switch {
	case strings.HasPrefix(note, arrowZone):
		kind = arrowStamp
	case c.Kind == TableLeaf:
		kind = arrowElapsed
	}
	lists := 0
	if kind == arrowList {
		lists = 1
	}
	field := w.appendTable(refOffset, 1, 1, 1, 1, 0, 1)
	w.appendText(field[0], c.Name)
	w.putNumber(field[1], nullable)
	w.putNumber(field[2], kind)
	switch kind {
	case arrowInt:
		t := w.appendTable(field[3], 1, 1)
		w.putNumber(t[0], 64)
		w.putNumber(t[1], map[bool]int{true: 1}[c.Kind == TableInt])
	case arrowFloat:
		t := w.appendTable(field[3], 1)
		w.putNumber(t[0], arrowDouble)
	case arrowStamp:
		t := w.appendTable(field[3], 1, 1)
		w.putNumber(t[0], c.leafType().arrowUnit())
		w.appendText(t[1], strings.TrimPrefix(note, arrowZone))
	case arrowElapsed:
		t := w.appendTable(field[3], 1)
		w.putNumber(t[0], c.leafType().arrowUnit())
	default:
		w.appendTable(field[3])
	}
	children := w.appendVector(field[5], lists)
	for _, child := range children {
		w.appendElement(child)
	}
}

// appendElement appends the Arrow description of the floats in a list.
func (w *flatbufferWriter) appendElement(refOffset int) {
	element := w.appendTable(refOffset, 1, 1, 1, 1, 0, 1)
	w.appendText(element[0], "element")
	w.putNumber(element[1], 1)
	w.putNumber(element[2], arrowFloat)
	t := w.appendTable(element[3], 1)
	w.putNumber(t[0], arrowSingle)
	w.appendVector(element[5], 0)
}

// arrowUnit returns Arrow's number for the time unit of a duration, or of a timestamp
// with a time zone.
func (l *LeafType) arrowUnit() int {
	if text, ok := strings.CutPrefix(l.arrow, arrowDuration); ok {
		n, err := strconv.Atoi(text)
		if err != nil {
			panic(fmt.Sprintf("the duration %q is invalid, although leafWithArrowType checked it", l.arrow))
		}
		return n
	}
	for n, unit := range []int64{1e9, 1e6, 1e3, 1} {
		if int64(l.kind.unit) == unit {
			return n
		}
	}
	return 0
}
