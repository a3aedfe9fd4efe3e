package document

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"sync"
)

// A plan reads the next value into a settable one that is zero, and reports
// whether it could.
type plan func(d *decoder, into reflect.Value) bool

// giveUp is the plan of what is left to encoding/json.
func giveUp(*decoder, reflect.Value) bool { return false }

var (
	plans          sync.Map // reflect.Type → plan
	unmarshaler    = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshal  = reflect.TypeFor[encoding.TextUnmarshaler]()
	numberType     = reflect.TypeFor[json.Number]()
	freeFormType   = reflect.TypeFor[map[string]any]()
	stringListType = reflect.TypeFor[[]string]()
)

// planOf returns the plan of a type, which is worked out once.
func planOf(t reflect.Type) plan {
	if known, ok := plans.Load(t); ok {
		return known.(plan) //nolint:forcetypeassert // nothing else is in it
	}
	made, _ := plans.LoadOrStore(t, makePlan(t, nil))
	return made.(plan) //nolint:forcetypeassert // nothing else is in it
}

// makePlan works out a plan. Within are the structs around it: one that holds
// itself is left to encoding/json.
func makePlan(t reflect.Type, within []reflect.Type) plan {
	if t.Kind() != reflect.Pointer {
		switch self := reflect.PointerTo(t); {
		case self.Implements(unmarshaler):
			return readSelf
		case self.Implements(textUnmarshal):
			return giveUp
		}
	}
	switch t.Kind() {
	case reflect.String:
		if t == numberType {
			return giveUp
		}
		return orNull(readString)
	case reflect.Bool:
		return orNull(readBool)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return orNull(readInt)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return orNull(readUint)
	case reflect.Float32, reflect.Float64:
		return orNull(readFloat)
	case reflect.Interface:
		if t.NumMethod() == 0 {
			return orNull(readAny)
		}
	case reflect.Pointer:
		return orNull(pointerPlan(makePlan(t.Elem(), within)))
	case reflect.Slice:
		switch {
		case t == stringListType:
			return orNull(readStrings)
		case t.Elem().Kind() != reflect.Uint8: // those are base64
			return orNull(listPlan(makePlan(t.Elem(), within)))
		}
	case reflect.Map:
		switch {
		case t == freeFormType:
			return orNull(readFreeForm)
		case t.Key() == reflect.TypeFor[string]():
			return orNull(mapPlan(makePlan(t.Elem(), within)))
		}
	case reflect.Struct:
		for _, outer := range within {
			if outer == t {
				return giveUp
			}
		}
		return orNull(structPlan(t, append(within[:len(within):len(within)], t)))
	}
	return giveUp
}

// orNull lets null leave a value zero, as it is.
func orNull(read plan) plan {
	return func(d *decoder, into reflect.Value) bool {
		if d.peek() == 'n' {
			return d.word("null")
		}
		return read(d, into)
	}
}

// readSelf is for what decodes itself.
func readSelf(d *decoder, into reflect.Value) bool {
	d.space()
	from := d.at
	if !d.skip() {
		return false
	}
	self, ok := into.Addr().Interface().(json.Unmarshaler)
	return ok && self.UnmarshalJSON([]byte(d.text[from:d.at])) == nil
}

func readString(d *decoder, into reflect.Value) bool {
	text, ok := d.string()
	into.SetString(text)
	return ok
}

func readBool(d *decoder, into reflect.Value) bool {
	if d.peek() == 't' {
		into.SetBool(true)
		return d.word("true")
	}
	return d.word("false")
}

func readInt(d *decoder, into reflect.Value) bool {
	text, whole, ok := d.number()
	if !ok || !whole {
		return false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || into.OverflowInt(n) {
		return false
	}
	into.SetInt(n)
	return true
}

func readUint(d *decoder, into reflect.Value) bool {
	text, whole, ok := d.number()
	if !ok || !whole {
		return false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || into.OverflowUint(n) {
		return false
	}
	into.SetUint(n)
	return true
}

func readFloat(d *decoder, into reflect.Value) bool {
	text, _, ok := d.number()
	if !ok {
		return false
	}
	n, err := strconv.ParseFloat(text, into.Type().Bits())
	if err != nil || into.OverflowFloat(n) {
		return false
	}
	into.SetFloat(n)
	return true
}

func readAny(d *decoder, into reflect.Value) bool {
	v, ok := d.any()
	if ok {
		into.Set(reflect.ValueOf(v))
	}
	return ok
}

func readStrings(d *decoder, into reflect.Value) bool {
	list := []string{}
	ok := d.each('[', ']', func() bool {
		if d.peek() == 'n' { // null is ""
			list = append(list, "")
			return d.word("null")
		}
		text, ok := d.string()
		list = append(list, text)
		return ok
	})
	into.Set(reflect.ValueOf(list))
	return ok
}

func readFreeForm(d *decoder, into reflect.Value) bool {
	if d.peek() != '{' {
		return false
	}
	members, ok := d.any()
	into.Set(reflect.ValueOf(members))
	return ok
}

func pointerPlan(read plan) plan {
	return func(d *decoder, into reflect.Value) bool {
		value := reflect.New(into.Type().Elem())
		into.Set(value)
		return read(d, value.Elem())
	}
}

func listPlan(read plan) plan {
	return func(d *decoder, into reflect.Value) bool {
		into.Set(reflect.MakeSlice(into.Type(), 0, 0))
		return d.each('[', ']', func() bool {
			n := into.Len()
			into.Grow(1)
			into.SetLen(n + 1)
			into.Index(n).SetZero()
			return read(d, into.Index(n))
		})
	}
}

func mapPlan(read plan) plan {
	return func(d *decoder, into reflect.Value) bool {
		into.Set(reflect.MakeMap(into.Type()))
		return d.object(func(name string) bool {
			value := reflect.New(into.Type().Elem()).Elem()
			ok := read(d, value)
			into.SetMapIndex(reflect.ValueOf(name), value)
			return ok
		})
	}
}

// A place is where a member of a struct goes.
type place struct {
	name  string
	head  string // the name as it is written, and a colon
	index []int  // from the struct on, through those embedded in it
	read  plan
}

// maxMembers is the most members of a struct that is not left to encoding/json:
// those that were there are bits of a word.
const maxMembers = 64

// structPlan reads what a struct has places for and goes over the rest.
func structPlan(t reflect.Type, within []reflect.Type) plan {
	found := map[string]field{}
	new(shape).collect(t, nil, within, found)
	var places []place
	for _, f := range found {
		switch {
		case f.hidden:
			continue
		case f.quoted, behindPointer(t, f.index):
			return giveUp
		}
		places = append(places, place{f.name, `"` + f.name + `":`, f.index, makePlan(t.FieldByIndex(f.index).Type, within)})
	}
	if len(places) > maxMembers {
		return giveUp
	}
	// In the order of the type, which is that in which documents are written.
	slices.SortFunc(places, func(a, b place) int { return slices.Compare(a.index, b.index) })
	byName := make(map[string]int, len(places))
	for i, p := range places {
		byName[p.name] = i
	}
	// find returns the place of a member, or -1 for one that is not ours; ok is
	// false where its name is one of ours otherwise spelt.
	find := func(name string) (i int, ok bool) {
		if i, known := byName[name]; known {
			return i, true
		}
		_, spelt := found[fold(name)]
		return -1, !spelt
	}
	return func(d *decoder, into reflect.Value) bool {
		if !d.open('{') {
			return false
		}
		var seen uint64
		next := 0
		for first := true; !d.take('}'); first = false {
			if !first && !d.take(',') {
				return false
			}
			i, ok := next, true
			if next == len(places) || !d.word(places[next].head) {
				var name string
				if name, ok = d.string(); ok && d.take(':') {
					i, ok = find(name)
				} else {
					return false
				}
			}
			switch {
			case !ok, i >= 0 && seen&(1<<i) != 0:
				return false
			case i < 0:
				ok = d.skip()
			default:
				seen |= 1 << i
				next = i + 1
				member := into
				for _, at := range places[i].index {
					member = member.Field(at)
				}
				ok = places[i].read(d, member)
			}
			if !ok {
				return false
			}
		}
		d.depth--
		return true
	}
}

// behindPointer reports whether a field is in a struct that is embedded as a
// pointer, which may be nil.
func behindPointer(t reflect.Type, index []int) bool {
	for i := 1; i < len(index); i++ {
		if t.FieldByIndex(index[:i]).Type.Kind() == reflect.Pointer {
			return true
		}
	}
	return false
}
