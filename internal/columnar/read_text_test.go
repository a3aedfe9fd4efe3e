package columnar

import (
	"testing"

	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// The annotations of old programs (ConvertedType) mean the same as those of new programs
// (LogicalType), with every physical type.
func TestConvertedTypesAreLogicalTypes(t *testing.T) {
	t.Parallel()
	millis, micros := format.TimeUnit{Value: new(format.MilliSeconds)}, format.TimeUnit{Value: new(format.MicroSeconds)}
	for converted, logical := range map[deprecated.ConvertedType]format.LogicalTypeValue{
		deprecated.Decimal:         &format.DecimalType{Scale: 2, Precision: 9},
		deprecated.Date:            new(format.DateType),
		deprecated.TimeMillis:      &format.TimeType{IsAdjustedToUTC: true, Unit: millis},
		deprecated.TimeMicros:      &format.TimeType{IsAdjustedToUTC: true, Unit: micros},
		deprecated.TimestampMillis: &format.TimestampType{IsAdjustedToUTC: true, Unit: millis},
		deprecated.TimestampMicros: &format.TimestampType{IsAdjustedToUTC: true, Unit: micros},
		deprecated.Uint32:          &format.IntType{BitWidth: 32},
		deprecated.Uint64:          &format.IntType{BitWidth: 64},
		deprecated.Json:            new(format.JsonType),
		deprecated.Bson:            new(format.BsonType),
	} {
		for physical := format.Boolean; physical <= format.FixedLenByteArray; physical++ {
			var plain, before, after format.SchemaElement
			for _, e := range []*format.SchemaElement{&plain, &before, &after} {
				e.Type.Set(physical)
				e.TypeLength.Set(12)
				e.Scale.Set(2)
				e.Precision.Set(9)
			}
			before.ConvertedType.Set(converted)
			after.LogicalType.Value = logical
			got, want := leafKindOf(&before), leafKindOf(&after)
			ignored := want.class == leafKindOf(&plain).class // the annotation does not fit; its unit may stay
			if got.class != want.class || !ignored && got != want {
				t.Errorf("%v as %v: %+v, want %+v", physical, converted, got, want)
			}
		}
	}
}
