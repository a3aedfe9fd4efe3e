package ingest

import (
	"testing"

	"github.com/rowmill/rowmill"
)

// A quota failure names the limit, the value and the command that raises the limit.
func TestQuotaFailuresNameLimitValueAndCommand(t *testing.T) {
	t.Parallel()
	prototype := &rowmill.Spec{JobQuotas: rowmill.JobQuotas{RowQuota: 1000, TokenQuota: 50_000}}
	production := &rowmill.Spec{JobQuotas: rowmill.JobQuotas{RowQuota: 1000, TokenQuota: 50_000}, Priority: 1}
	for _, test := range []struct {
		err  error
		want string
	}{
		{checkRows(1500, false, prototype), "The input has 1500 rows, and the quota of a job of priority 0 is 1000 rows. " +
			"Split the input, submit it with priority 1, or ask an administrator to raise the quota: rowmill quotas set --priority 0 --rows 1500."},
		{checkRows(1001, true, production), "The input has at least 1001 rows, and the quota of a job of priority 1 is 1000 rows. " +
			"Split the input, or ask an administrator to raise the quota: rowmill quotas set --priority 1 --rows N."},
		{tokenQuotaFailure(50_007, 12, production), "The input has at least 50007 tokens, counted to row 12, and the quota of a job of priority 1 is 50000 tokens. " +
			"Split the input, or ask an administrator to raise the quota: rowmill quotas set --priority 1 --tokens N."},
	} {
		if got := test.err.Error(); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
	for _, err := range []error{checkRows(1000, true, prototype), checkRows(1500, true, &rowmill.Spec{})} {
		if err != nil {
			t.Error(err)
		}
	}
}
