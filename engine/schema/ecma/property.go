package ecma

import (
	_ "embed" // for the file properties.txt
	"errors"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// tables holds the Unicode properties and script names that package unicode lacks. Each
// line is a property, with its name and its characters in hexadecimal, or a script, with
// its short and its long name. A test gets the tables from Node.js and writes the file:
// go test ./engine/schema/ecma -run Record -record.
//
//go:embed properties.txt
var tables string

// errUnknown reports that this package does not know a Unicode property.
var errUnknown = errors.New("unknown Unicode property")

// propertySet returns the characters of \p{name} or \p{name=value}, with the names that
// ECMA-262 allows; named says that there is a value. It does not support
// Script_Extensions. It supports only the binary properties in package unicode and in
// tables.
func propertySet(name, value string, named bool) (charSet, error) {
	if !named {
		if s := categorySet(name); s != nil {
			return s, nil
		}
		return binaryPropertySet(name)
	}
	switch name {
	case "General_Category", "gc":
		if s := categorySet(value); s != nil {
			return s, nil
		}
	case "Script", "sc":
		if long, ok := known().scripts[value]; ok {
			value = long
		}
		if table := unicode.Scripts[value]; table != nil {
			return setOf(table), nil
		}
	}
	return nil, errUnknown
}

// categorySet returns the characters of a general category, such as Lu; nil if unknown.
func categorySet(name string) charSet {
	if short, ok := unicode.CategoryAliases[name]; ok {
		name = short
	}
	if table := unicode.Categories[name]; table != nil {
		return setOf(table)
	}
	return nil
}

// shortNames maps the short name of a binary Unicode property to its long name.
var shortNames = map[string]string{
	"AHex": "ASCII_Hex_Digit", "Alpha": "Alphabetic", "Bidi_C": "Bidi_Control", "Dep": "Deprecated",
	"Dia": "Diacritic", "EBase": "Emoji_Modifier_Base", "EComp": "Emoji_Component", "EMod": "Emoji_Modifier",
	"EPres": "Emoji_Presentation", "Ext": "Extender", "ExtPict": "Extended_Pictographic", "Hex": "Hex_Digit",
	"IDC": "ID_Continue", "IDS": "ID_Start", "IDSB": "IDS_Binary_Operator", "IDST": "IDS_Trinary_Operator",
	"Ideo": "Ideographic", "Join_C": "Join_Control", "LOE": "Logical_Order_Exception", "Lower": "Lowercase",
	"NChar": "Noncharacter_Code_Point", "Pat_Syn": "Pattern_Syntax", "Pat_WS": "Pattern_White_Space",
	"QMark": "Quotation_Mark", "RI": "Regional_Indicator", "SD": "Soft_Dotted", "STerm": "Sentence_Terminal",
	"Term": "Terminal_Punctuation", "UIdeo": "Unified_Ideograph", "Upper": "Uppercase",
	"VS": "Variation_Selector", "space": "White_Space",
}

// binaryPropertySet returns the characters of a binary Unicode property. For a property
// that package unicode has only in part, binaryPropertySet derives the characters by the
// rules of Unicode's DerivedCoreProperties.
func binaryPropertySet(name string) (charSet, error) {
	if long, ok := shortNames[name]; ok {
		name = long
	}
	if s := known().properties[name]; s != nil {
		return s, nil
	}
	switch name {
	case "Any":
		return anything, nil
	case "ASCII":
		return charSet{0, 0x7f}, nil
	case "Assigned":
		return setOf(unicode.Categories["Cn"]).complement(), nil
	case "Alphabetic":
		return setOf(unicode.L, unicode.Nl, unicode.Other_Lowercase, unicode.Other_Uppercase, unicode.Other_Alphabetic), nil
	case "Lowercase":
		return setOf(unicode.Ll, unicode.Other_Lowercase), nil
	case "Uppercase":
		return setOf(unicode.Lu, unicode.Other_Uppercase), nil
	case "Cased":
		return setOf(unicode.Ll, unicode.Lu, unicode.Lt, unicode.Other_Lowercase, unicode.Other_Uppercase), nil
	case "Math":
		return setOf(unicode.Sm, unicode.Other_Math), nil
	case "ID_Start":
		return setOf(unicode.L, unicode.Nl, unicode.Other_ID_Start).without(setOf(unicode.Pattern_Syntax, unicode.Pattern_White_Space)), nil
	case "ID_Continue":
		return setOf(unicode.L, unicode.Nl, unicode.Other_ID_Start, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc, unicode.Other_ID_Continue).
			without(setOf(unicode.Pattern_Syntax, unicode.Pattern_White_Space)), nil
	case "Hyphen", "Prepended_Concatenation_Mark": // ECMA-262 does not have these
		return nil, errUnknown
	}
	if table := unicode.Properties[name]; table != nil && !strings.HasPrefix(name, "Other_") && name != "STerm" {
		return setOf(table), nil
	}
	return nil, errUnknown
}

// unicodeTables is the decoded content of `tables`.
type unicodeTables struct {
	properties map[string]charSet // characters of each property, by its name
	scripts    map[string]string  // long name of each script, by its short name
}

// known returns the decoded content of the variable tables. It decodes them once.
var known = sync.OnceValue(func() unicodeTables {
	k := unicodeTables{properties: map[string]charSet{}, scripts: map[string]string{}}
	for line := range strings.Lines(tables) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "Script":
			k.scripts[words[1]] = words[2]
		default:
			var s charSet
			for _, word := range words[1:] {
				low, high, isRange := strings.Cut(word, "-")
				if !isRange {
					high = low
				}
				s = append(s, fromHex(low), fromHex(high))
			}
			k.properties[words[0]] = s
		}
	}
	return k
})

func fromHex(digits string) rune {
	c, err := strconv.ParseInt(digits, 16, 32)
	if err != nil {
		panic("a table of package ecma is broken: " + digits)
	}
	return rune(c)
}
