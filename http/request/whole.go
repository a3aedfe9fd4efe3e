package request

import (
	"encoding/json"
	"math"
	"strconv"
)

// Decode decodes a JSON value of a request body. As in JSON Schema, a number without a
// fraction is an integer in every notation, such as 1.0 and 1e3.
func Decode(raw json.RawMessage, into any) error {
	err := json.Unmarshal(raw, into)
	if err == nil {
		return nil
	}
	var written json.Number
	if json.Unmarshal(raw, &written) != nil || raw[0] == '"' {
		return err
	}
	f, parse := written.Float64()
	if parse != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return err
	}
	return json.Unmarshal(strconv.AppendFloat(nil, f, 'f', -1, 64), into)
}
