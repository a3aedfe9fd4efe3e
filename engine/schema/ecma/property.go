package ecma

import (
	_ "embed" // the tables
	"errors"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// tables holds properties and names of scripts that package unicode does not have. It has
// a line for each property, with its name and its characters in hexadecimal, and a line
// for each script, with its short and its long name. A test gets the tables from Node.js
// and writes the file: go test ./engine/schema/ecma -run Record -record.
//
//go:embed properties.txt
var tables string

var errUnknown = errors.New("no such property")

// property returns the set of \p{name} or \p{name=value}, with the names that ECMA-262
// allows. It does not support Script_Extensions, and supports only the binary properties
// of package unicode and of the variable tables.
func property(name, value string, named bool) (set, error) {
	if !named {
		if s := category(name); s != nil {
			return s, nil
		}
		return binary(name)
	}
	switch name {
	case "General_Category", "gc":
		if s := category(value); s != nil {
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

func category(name string) set {
	if short, ok := unicode.CategoryAliases[name]; ok {
		name = short
	}
	if table := unicode.Categories[name]; table != nil {
		return setOf(table)
	}
	return nil
}

// shortNames maps the short names of binary properties to their long names.
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

// binary returns the set of a binary property. If package unicode has only a part of the
// property, binary derives the set by the rules of Unicode's DerivedCoreProperties.
func binary(name string) (set, error) {
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
		return set{0, 0x7f}, nil
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
	case "Hyphen", "Prepended_Concatenation_Mark": // which ECMA-262 leaves out
		return nil, errUnknown
	}
	if table := unicode.Properties[name]; table != nil && !strings.HasPrefix(name, "Other_") && name != "STerm" {
		return setOf(table), nil
	}
	return nil, errUnknown
}

// knowledge is the decoded content of tables.
type knowledge struct {
	properties map[string]set
	scripts    map[string]string // long names by short ones
}

// known returns the content of tables, which it decodes once.
var known = sync.OnceValue(func() knowledge {
	k := knowledge{properties: map[string]set{}, scripts: map[string]string{}}
	for line := range strings.Lines(tables) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "Script":
			k.scripts[words[1]] = words[2]
		default:
			var s set
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
