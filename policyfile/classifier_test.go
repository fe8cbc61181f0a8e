package policyfile_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/policyfile"
)

// TestEmptyHeadersAreFound: headers that name no field are found whatever else is wrong in the
// file, and a field that has a mistake is not taken for one that is missing.
func TestEmptyHeadersAreFound(t *testing.T) {
	_, err := policyfile.Parse("f", []byte(`version: 1
policies:
  - {name: a, match: /, limit: 1/fortnight}
  - {name: b, match: /, limit: 1/s, quota: {headers: {limit: X-Limit}}}
  - {name: c, match: /, limit: 1/s, penalty: {headers: {reset: []}}}
  - {name: d, match: /, limit: 1/s, penalty: {headers: {remaining: ""}}}
`))
	var found []string
	for _, e := range policyfile.Mistakes(err) {
		found = append(found, e.Error())
	}
	require.Len(t, found, 4, "%v", found)
	require.Equal(t, "f:4:54: headers need remaining, used or reset", found[1])
	require.Equal(t, `f:5:64: the name of a header is expected here, not a list`, found[2])
	require.Equal(t, "f:6:68: the name of a header is missing", found[3])
}
