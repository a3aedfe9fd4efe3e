package main

import (
	"slices"
	"testing"

	"github.com/rowmill/rowmill/blob/s3"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/doctor"
)

// The doctor lists the calls that the S3 service lacks and how nodes work without them,
// and warns if the operator must set something.
func TestDoctorTellsLimitsOfTheBucket(t *testing.T) {
	t.Parallel()
	x := &selfDiagnosis{}
	x.reportS3Limits([]s3.Limitation{
		{Missing: "copy an object", Answer: "501", Instead: "a node copies it"},
		{Missing: "list uploads", Answer: "405", Instead: "they stay", Remedy: "set a rule"},
	})
	want := []client.Finding{
		{Check: "bucket", Level: doctor.OK, Text: "the S3 service cannot copy an object, it answers \"501\": a node copies it"},
		{Check: "bucket", Level: doctor.Warn, Text: "the S3 service cannot list uploads, it answers \"405\": they stay", Remedy: "set a rule"},
	}
	if !slices.Equal(x.found, want) {
		t.Errorf("found %+v, want %+v", x.found, want)
	}
}
