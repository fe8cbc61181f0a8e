package policyfile_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/policyfile"
)

// parsedRows returns a file whose rows are a text.
func parsedRows(t *testing.T, rows string) *policyfile.File {
	f, err := policyfile.Parse("rows", []byte("version: 1\n"+rows))
	require.NoError(t, err)
	return f
}

// TestOpens: a file opens what it reaches, or learns of requests, more than another one, also if its policies only count.
func TestOpens(t *testing.T) {
	const old = "policies:\n" +
		"  - {name: bank, match: \"api.bank.com/\", limit: 9/s, key: \"{header.X-App}\"}\n" +
		"  - {name: wide, match: \"*.example.com/\", limit: 9/s}\n"
	for _, c := range []struct {
		more  string
		opens []string
	}{
		{"", nil},
		{"  - {name: more, match: \"POST API.bank.com:443/v1/\", limit: 1/s, key: \"{header.X-App}\"}\n", nil},
		{"  - {name: more, match: \"a.example.com/\", limit: 1/s}\n", nil},
		{"  - {name: more, match: \"/\", limit: 1/s, penalty: none}\n", nil},
		{"  - {name: more, match: \"other.org/\", limit: 1/s}\n  - {name: again, match: \"other.org/v1/\", limit: 1/s}\n", []string{`policy "more" names the host "other.org"`}},
		{"  - {name: more, match: \"api.bank.com:8443/\", limit: 1/s}\n", []string{`policy "more" names the host "api.bank.com:8443"`}},
		{"  - {name: spy, match: \"api.bank.com/\", limit: 9/s, shadow: true, key: \"{query.pin}\"}\n", []string{`policy "spy" makes keys of requests, by {query.pin}`}},
		{"  - {name: spy, match: \"api.bank.com/\", limit: 9/s, share: \"{header.X-App}\", key: \"{header.X-App}\"}\n", []string{`policy "spy" makes keys of requests, by {header.X-App} {header.X-App}`}},
		{"  - {name: spy, match: \"a.example.com/\", limit: 9/s, key: \"{header.X-App}\"}\n", []string{`policy "spy" makes keys of requests, by {header.X-App}`}},
		{"  - {name: spy, match: /, limit: 9/s, key: \"{header.X-App}\"}\n", []string{`policy "spy" makes keys of requests, by {header.X-App}`}},
		{"presets: [github: {shadow: yes}]\n", []string{`policy "github"`}},
	} {
		opens := parsedRows(t, old+c.more).Opens(parsedRows(t, old))
		if len(c.opens) == 1 && c.opens[0] == `policy "github"` {
			require.NotEmpty(t, opens)
			continue
		}
		require.Equal(t, c.opens, opens, c.more)
	}

	github := parsedRows(t, "presets: [github]\n")
	require.Empty(t, github.Opens(github))
}

// TestTunnelsLoosen: a host whose tunnels are carried from now on is held no more, request by request.
func TestTunnelsLoosen(t *testing.T) {
	const row = "policies: [{name: a, match: a.example.com/, limit: 1/s}]\n"
	without, with := parsedRows(t, row), parsedRows(t, row+"tunnels: a.example.com\n")

	require.Equal(t, []string{"requests in tunnels to a.example.com are neither counted nor held"}, with.Loosens(without))
	require.Empty(t, without.Loosens(with))
	require.Empty(t, with.Loosens(with))
	require.Equal(t, []string{"a.example.com"}, with.Tunnels)
}

// TestTunnelsThatWouldBeRefused: a file that has the tunnels of a host carried whose policies need to see requests is refused.
func TestTunnelsThatWouldBeRefused(t *testing.T) {
	_, err := policyfile.Parse("f", []byte("version: 1\npolicies: [{name: a, match: a.example.com/v1/, limit: 1/s}]\ntunnels: [a.example.com]\n"))
	require.ErrorContains(t, err, `f:3:11: policy "a": it needs to see paths, which TLS hides: a tunnel to "a.example.com" would be refused`)
}

// TestCeiling: a version that opens more than the ceiling is not put into force.
func TestCeiling(t *testing.T) {
	const text = "version: 1\npolicies: [{name: a, match: b.example.com/, limit: 1/s}]\n"
	ceiling := parsedRows(t, "policies: [{name: a, match: a.example.com/, limit: 1/s}]\n")
	_, err := policyfile.Follow(t.Context(), policyfile.Options{
		Name: "pushed", Ceiling: ceiling,
		Read:  func(context.Context) ([]byte, error) { return []byte(text), nil },
		Apply: func(*policyfile.File) error { t.Error("it is in force"); return nil },
	})
	require.EqualError(t, err, `policyfile: the file opens what rows does not: policy "a" names the host "b.example.com"`)
}
