package policyfile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/policyfile"
)

// ofFields is a file with one policy that has more fields.
func ofFields(t *testing.T, fields string) *policyfile.File {
	text := "version: 1\npolicies:\n  - name: a\n    match: example.com/\n"
	if !strings.Contains(fields, "limit:") {
		text += "    limit: 20/s\n"
	}
	for line := range strings.Lines(fields) {
		text += "    " + line
	}
	f, err := policyfile.Parse("new", []byte(text+"\n"))
	require.NoError(t, err)
	return f
}

// TestLoosens: what a version would no longer hold is said, for each field.
func TestLoosens(t *testing.T) {
	const (
		codes  = "penalty: {codes: {fields: errcode, lasts: {\"90018\": 1s}}}"
		twice  = "penalty: {codes: {fields: errcode, lasts: {\"90018\": 2s}}}"
		other  = "penalty:\n  codes:\n    fields: errcode\n    lasts:\n      90018: 1s"
		quota  = "quota: ratelimit"
		settle = "settle: {amount: {fields: cost}}"
	)
	for _, c := range []struct {
		from, to string
		loosens  []string
	}{
		{"", "", nil},
		{"limit: 20/s", "limit: 10/s", nil},
		{"limit: 20/s", "limit: 30/s", []string{"its limit goes from 20/s to 30/s"}},

		{"", "penalty: none", []string{"its penalty has changed"}},
		{"", "penalty: retry-after", nil},
		{"penalty: retry-after", "", nil},
		{"penalty: none", "", nil},
		{"penalty: none", codes, nil},
		{codes, "", []string{"its penalty has changed"}},
		{codes, twice, []string{"its penalty has changed"}},
		{codes, other, nil},

		{"acted: graphql", "", []string{"its acted has changed"}},
		{"", "acted: graphql", nil},
		{quota, "", []string{"its quota has changed"}},
		{"", quota, nil},
		{quota, "quota: {amount: {fields: left, per: 1h}}", []string{"its quota has changed"}},
		{settle, "", []string{"its settle has changed"}},
		{"", settle, []string{"its settle has changed"}},
		{"adaptive: yes", "", []string{"its adaptive has changed"}},
		{"adaptive: yes", "adaptive: off", []string{"its adaptive has changed"}},
		{"adaptive: on", "adaptive: true", nil},
		{"", "adaptive: yes", nil},
		{"adaptive: no", "adaptive: yes", nil},
		{"adaptive: no", "", nil},

		{"", "cost: 0", []string{"its cost has changed"}},
		{"", "key: \"{path}\"", []string{"its key has changed"}},
		{"", "jitter: 1ms", []string{"its jitter has changed"}},
		{"headroom: {low: 0.5}", "", []string{"its headroom has changed"}},
		{"", "scope: node", []string{"its scope has changed"}},

		// All at once.
		{"key: \"{path}\"\n" + codes, "limit: 30/s\npenalty: none", []string{"its limit goes from 20/s to 30/s", "its key has changed", "its penalty has changed"}},

		// What only counts holds nothing.
		{"shadow: yes\n" + codes, "", nil},
	} {
		var want []string
		for _, reason := range c.loosens {
			want = append(want, `policy "a": `+reason)
		}
		require.Equal(t, want, ofFields(t, c.to).Loosens(ofFields(t, c.from)), "from %q to %q", c.from, c.to)
	}
}

// TestPresetLoosens: a change of a preset's options is one of each of its policies.
func TestPresetLoosens(t *testing.T) {
	parse := func(text string) *policyfile.File {
		f, err := policyfile.Parse("new", []byte("version: 1\n"+text))
		require.NoError(t, err)
		return f
	}
	github := parse("presets: [github]\n")
	require.Empty(t, parse("presets: [github]\n").Loosens(github))
	for i, reason := range parse("presets: [github: {shadow: yes}]\n").Loosens(github) {
		require.Equal(t, fmt.Sprintf("policy %q only counts", github.Policies[i].Name), reason)
	}
	dingtalk := parse("presets: [dingtalk: {app: a, edition: standard}]\n")
	loosens := parse("presets: [dingtalk: {app: b, edition: standard}]\n").Loosens(dingtalk)
	require.Len(t, loosens, len(dingtalk.Policies))
	require.Contains(t, loosens[0], ": its preset has changed")
	require.Len(t, parse("policies: []\n").Loosens(github), len(github.Policies))
}
