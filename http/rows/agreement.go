package rows

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/rowmill/rowmill/http/jobs"
)

const (
	// maxComparedProperties limits how many properties of outputs are counted.
	maxComparedProperties = 100
	// maxPropertyValues limits the different values of a property. A property with more values is not
	// counted.
	maxPropertyValues = 20
	// maxValueBytes limits the length of a value that is a text.
	maxValueBytes = 200
)

// An agreement counts rows with equal outputs, and equal values of the outputs' properties. Its size
// does not depend on the number of rows.
type agreement struct {
	jobs                      int
	equal, different, pending int64
	differentInputs           int64
	properties                map[string]*jointCounts // nil for a property that is not counted
}

// jointCounts counts the values of a property: a property of outputs that are JSON objects, or the
// whole output if it is not an object.
type jointCounts struct {
	rows, equal int64
	values      map[any]*[jobs.MaxCompared]int64 // number of rows by value, for each job
	pairs       map[[2]any]int64                 // number of rows by the values of the first two jobs
}

func newAgreement(jobs int) *agreement {
	return &agreement{jobs: jobs, properties: map[string]*jointCounts{}}
}

// add counts a row.
func (a *agreement) add(row *jointRow) {
	done, pending := 0, false
	for _, o := range row.outcomes {
		pending = pending || o.status == rowPending
		if o.status == rowDone {
			done++
		}
	}
	if pending {
		a.pending++
	}
	if !row.sameInput {
		a.differentInputs++
	}
	switch {
	case row.isDifferent():
		a.different++
	case done == a.jobs:
		a.equal++
	}
	if done == a.jobs {
		a.addProperties(row)
	}
}

// addProperties counts the values of a row that is done in all jobs. A property that one job's output
// lacks has the value null.
func (a *agreement) addProperties(row *jointRow) {
	names, values, objects := map[string]bool{}, make([]any, a.jobs), 0
	for i, o := range row.outcomes {
		values[i] = o.value
		if object, isObject := o.value.(map[string]any); isObject {
			objects++
			for name := range object {
				names[name] = true
			}
		}
	}
	if objects == 0 {
		a.count("", values)
	}
	if objects < a.jobs {
		return
	}
	for name := range names {
		for i, o := range row.outcomes {
			values[i] = o.value.(map[string]any)[name]
		}
		a.count(name, values)
	}
}

// count counts the values of a property in one row, by job.
func (a *agreement) count(name string, values []any) {
	f, known := a.properties[name]
	if !known && len(a.properties) < maxComparedProperties && len(name) <= maxValueBytes {
		f = &jointCounts{values: map[any]*[jobs.MaxCompared]int64{}, pairs: map[[2]any]int64{}}
		a.properties[name] = f
	}
	if f == nil {
		return
	}
	equal := true
	for i, v := range values {
		if !isCountable(v) || f.values[v] == nil && len(f.values) == maxPropertyValues {
			a.properties[name] = nil
			return
		}
		if f.values[v] == nil {
			f.values[v] = new([jobs.MaxCompared]int64)
		}
		f.values[v][i]++
		equal = equal && v == values[0]
	}
	f.rows++
	f.pairs[[2]any{values[0], values[1]}]++
	if equal {
		f.equal++
	}
}

// isCountable reports whether a value is null, a boolean, a number or a short text.
func isCountable(value any) bool {
	switch value := value.(type) {
	case nil, bool, int64, float64:
		return true
	case string:
		return len(value) <= maxValueBytes
	}
	return false
}

// propertyView is a property in the summary of a comparison.
type propertyView struct {
	Property  string    `json:"property"`
	Rows      int64     `json:"rows"`
	Equal     int64     `json:"equal"`
	Values    []any     `json:"values"`
	Counts    [][]int64 `json:"counts"`    // for each job, the number of rows with each value
	Confusion [][]int64 `json:"confusion"` // of two jobs: a line for each value of the first job, a column for each value of the second; else null
}

// views returns the counted properties by name.
func (a *agreement) views() []propertyView {
	views := []propertyView{}
	for _, name := range slices.Sorted(maps.Keys(a.properties)) {
		f := a.properties[name]
		if f == nil {
			continue
		}
		values := slices.SortedFunc(maps.Keys(f.values), compareValues)
		view := propertyView{Property: name, Rows: f.rows, Equal: f.equal, Values: values, Counts: make([][]int64, a.jobs)}
		for i := range view.Counts {
			for _, v := range values {
				view.Counts[i] = append(view.Counts[i], f.values[v][i])
			}
		}
		if a.jobs == 2 {
			for _, first := range values {
				var line []int64
				for _, second := range values {
					line = append(line, f.pairs[[2]any{first, second}])
				}
				view.Confusion = append(view.Confusion, line)
			}
		}
		views = append(views, view)
	}
	return views
}

// compareValues orders values: booleans, numbers, texts, null.
func compareValues(a, b any) int {
	kindA, numberA := rank(a)
	kindB, numberB := rank(b)
	return cmp.Or(cmp.Compare(kindA, kindB), cmp.Compare(numberA, numberB), cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
}

// rank returns the place of a value's kind among the kinds, and the value of a number.
func rank(value any) (kind int, number float64) {
	switch value := value.(type) {
	case bool:
		return 0, 0
	case int64:
		return 1, float64(value)
	case float64:
		return 1, value
	case string:
		return 2, 0
	}
	return 3, 0
}
