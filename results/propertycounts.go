package results

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/textfmt"
)

const (
	// maxProperties limits the number of counted properties: more than an answer has, unless its
	// properties are data.
	maxProperties = 50
	// maxDistinct limits the number of different values of a property that are counted. A
	// property with more values is a text, and no category.
	maxDistinct = 1000
	// maxCountedValue is the length in bytes of the longest value of a category.
	maxCountedValue = 100
	// shownValues is the number of values of a property in the counts.
	shownValues = 20
	// histogramBins is the number of ranges of a histogram.
	histogramBins = 10
)

// PropertyCounts says how often the values of a property occur.
type PropertyCounts struct {
	Property string       `json:"property"` // name of the property; empty: the whole answer
	Rows     int64        `json:"rows"`     // rows with the property
	Values   []ValueCount `json:"values"`   // the most frequent values; empty for a free text
	Bins     []BinCount   `json:"bins"`     // ranges of a number with more than 20 different values, else empty
}

// A ValueCount is the number of rows with a value.
type ValueCount struct {
	Value string `json:"value"`
	Rows  int64  `json:"rows"`
}

// A BinCount is the number of rows with a number from From to To. To belongs to the last range
// only.
type BinCount struct {
	From float64 `json:"from"`
	To   float64 `json:"to"`
	Rows int64   `json:"rows"`
}

// A PropertyCounter counts the values of answers. Its memory is limited for any number of rows,
// except 8 bytes for each number.
type PropertyCounter struct {
	properties []*propertyValues
	finishes   map[string]int64
}

// propertyValues has the values of one property.
type propertyValues struct {
	name    string
	rows    int64
	values  map[string]int64
	numbers []float64
	mixed   bool // not all values are numbers
	long    bool // a value is longer than maxCountedValue
}

// Add counts an answer. It is no error if the answer is not JSON.
func (c *PropertyCounter) Add(out *rowmill.RowOutput) {
	if out.Err != nil {
		return
	}
	if out.Finish != "" {
		if c.finishes == nil {
			c.finishes = map[string]int64{}
		}
		c.finishes[string(out.Finish)]++
	}
	answer := strings.TrimSpace(WithoutReasoning(out.Text))
	switch object := []byte(answer); {
	case isObject(object):
		textfmt.VisitMembers(object, func(name string, _, value []byte) { c.counterOf(name).addJSON(value) })
	case answer != "":
		whole := c.counterOf("")
		whole.rows++
		whole.addText(answer)
	}
}

// counterOf returns the counter of a property. After maxProperties properties, a new property gets a
// counter that is not part of the result.
func (c *PropertyCounter) counterOf(name string) *propertyValues {
	at := slices.IndexFunc(c.properties, func(p *propertyValues) bool { return p.name == name })
	if at >= 0 {
		return c.properties[at]
	}
	p := &propertyValues{name: name, values: map[string]int64{}}
	if len(c.properties) < maxProperties {
		c.properties = append(c.properties, p)
	}
	return p
}

// addJSON counts a JSON value: each element of a list, nothing for an object.
func (p *propertyValues) addJSON(value []byte) {
	p.rows++
	p.addValue(value)
	if value[0] == '[' {
		textfmt.VisitElements(value, p.addValue)
	}
}

func (p *propertyValues) addValue(value []byte) {
	if text, isText := textfmt.DecodeString(value); isText {
		p.addText(text)
		return
	}
	number, err := strconv.ParseFloat(string(value), 64)
	switch {
	case err == nil:
		p.numbers = append(p.numbers, number)
		p.count(string(value))
	case value[0] == '[' || value[0] == '{':
		p.mixed = true
	default: // true, false and null
		p.mixed = true
		p.count(string(value))
	}
}

func (p *propertyValues) addText(text string) {
	p.mixed = true
	if p.long = p.long || len(text) > maxCountedValue; !p.long {
		p.count(text)
	}
}

// count counts a value.
func (p *propertyValues) count(value string) {
	if _, known := p.values[value]; known || len(p.values) < maxDistinct {
		p.values[value]++
	}
}

// Properties returns the counts of all properties in the order of their first answers.
func (c *PropertyCounter) Properties() []PropertyCounts {
	all := []PropertyCounts{}
	for _, p := range c.properties {
		all = append(all, p.counts())
	}
	return all
}

// FinishReasons returns the number of answers by finish reason, the most frequent first.
func (c *PropertyCounter) FinishReasons() []ValueCount { return mostFrequent(c.finishes) }

func (p *propertyValues) counts() PropertyCounts {
	counts := PropertyCounts{Property: p.name, Rows: p.rows, Values: []ValueCount{}, Bins: []BinCount{}}
	switch {
	case !p.mixed && len(p.values) > shownValues:
		counts.Bins = histogram(p.numbers)
	case !p.long && len(p.values) < maxDistinct && int64(len(p.values)) < max(2, p.rows): // no free text
		counts.Values = mostFrequent(p.values)
	}
	return counts
}

// mostFrequent returns the most frequent values.
func mostFrequent(values map[string]int64) []ValueCount {
	list := []ValueCount{}
	for value, rows := range values {
		list = append(list, ValueCount{value, rows})
	}
	slices.SortFunc(list, func(a, b ValueCount) int {
		return cmp.Or(cmp.Compare(b.Rows, a.Rows), cmp.Compare(a.Value, b.Value))
	})
	return list[:min(len(list), shownValues)]
}

// histogram counts numbers in ranges of equal size.
func histogram(numbers []float64) []BinCount {
	low, high := slices.Min(numbers), slices.Max(numbers)
	bins := make([]BinCount, histogramBins)
	width := high/histogramBins - low/histogramBins // divided first, so that it is finite
	for i := range bins {
		bins[i].From, bins[i].To = low+float64(i)*width, low+float64(i+1)*width
	}
	bins[len(bins)-1].To = high
	for _, n := range numbers {
		bins[min(int(math.Max(0, (n-low)/width)), len(bins)-1)].Rows++
	}
	return bins
}
