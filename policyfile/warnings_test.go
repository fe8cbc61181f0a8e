package policyfile_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/policyfile"
)

// warningsOf returns the warnings about a file of these rows.
func warningsOf(t *testing.T, rows string) (texts []string) {
	t.Helper()
	f, err := policyfile.Parse("p.yaml", []byte("version: 1\npolicies:\n"+rows))
	require.NoError(t, err, rows)
	for _, e := range f.Warnings() {
		texts = append(texts, e.Text)
	}
	return texts
}

// TestWarnsOfDoubtfulRefusals: where a default 429 may be about another row than the transport closes, a warning names the rows.
func TestWarnsOfDoubtfulRefusals(t *testing.T) {
	const (
		tenant  = "  - {name: tenant, match: a.com/, limit: 1/s, key: '{header.X-Tenant}'}\n"
		app     = "  - {name: app, match: a.com/, limit: 2/s, key: '{header.X-App}'}\n"
		day     = "  - {name: day, match: a.com/, limit: 9/day, key: '{header.X-Tenant}'}\n"
		address = "  - {name: address, match: /, limit: 3/s}\n"
		search  = "  - {name: search, match: GET a.com/search, limit: 4/s}\n"
		whole   = "  - {name: whole, match: a.com/, limit: 5/s}\n"
		month   = "  - {name: month, match: a.com/, limit: 99/month}\n"
		shop    = "  - {name: shop, match: '{shop}.com/', limit: 1/s, key: '{shop}'}\n"
		own     = "  - {name: own, match: a.com/, limit: 2/s, key: '{header.X-App}', penalty: retry-after}\n"
		left    = "  - {name: left, match: a.com/, limit: 2/s, key: '{header.X-App}', quota: ratelimit}\n"
		open    = "  - {name: open, match: a.com/, limit: 2/s, key: '{header.X-App}', penalty: none}\n"
		counts  = "  - {name: counts, match: a.com/, limit: 2/s, key: '{header.X-App}', shadow: yes}\n"
		byName  = "  - {name: by-name, match: none, limit: 2/s, keyed: yes}\n"
		other   = "  - {name: other, match: b.com/, limit: 2/s, key: '{header.X-App}'}\n"
	)
	first := func(keyed, name string) string {
		return "policies " + keyed + " match the same requests, and a 429 closes \"" + name + "\" alone, because it is the first with a key: " +
			`write "penalty: retry-after" in each row that a 429 is about, and "penalty: none" in the others`
	}
	every := func(names string) string {
		return "policies " + names + " match the same requests, and a 429 closes all of them, because none has a key: " +
			`write "penalty: retry-after" in each row that a 429 is about, and "penalty: none" in the others`
	}
	for rows, want := range map[string][]string{
		tenant:                         nil,
		tenant + address:               nil, // the row with the key is closed, as the guide says
		address + tenant:               nil,
		tenant + day:                   nil, // whichever is closed stops the same requests
		whole + month:                  nil,
		tenant + open:                  nil,
		tenant + counts:                nil,
		tenant + byName:                nil,
		tenant + other:                 nil,
		tenant + own:                   nil,
		tenant + app:                   {first(`"tenant" and "app"`, "tenant")},
		app + tenant + address:         {first(`"app" and "tenant"`, "app")},
		tenant + left:                  {first(`"tenant" and "left"`, "tenant")},
		shop + tenant:                  {first(`"shop" and "tenant"`, "shop")},
		tenant + app + day:             {first(`"tenant", "app" and "day"`, "tenant")},
		whole + search:                 {every(`"whole" and "search"`)},
		search + whole + address:       {every(`"search", "whole" and "address"`)},
		whole + address + other:        {every(`"whole" and "address"`)},
		whole + search + tenant + open: nil,
	} {
		require.Equal(t, want, warningsOf(t, rows), rows)
	}
}

// TestAnAnswerClosesOneRowOfThoseByDefault: a test of a file sees of a 429 what a transport makes of it. Of several rows that
// read it by default, the first that has a key is closed.
func TestAnAnswerClosesOneRowOfThoseByDefault(t *testing.T) {
	const (
		address = "  - {name: address, match: /, limit: 3/s}\n"
		tenant  = "  - {name: tenant, match: a.com/, limit: 1/s, key: '{header.X-Tenant}'}\n"
		app     = "  - {name: app, match: a.com/, limit: 2/s, key: '{header.X-App}'}\n"
		banned  = "  - {name: banned, match: /, limit: 3/s, penalty: retry-after}\n"
		free    = "  - {name: free, match: a.com/, limit: 1/s, key: '{header.X-App}', cost: 0}\n"
	)
	for _, c := range []struct{ rows, headers, policies, closes string }{
		{address + tenant, "X-Tenant: t", "address, tenant", "tenant: 5s"},
		{address + tenant, "X-Other: t", "address, tenant", "address: 5s, tenant: 5s"}, // the request has no key
		{address + tenant + app, "X-Tenant: t, X-App: a", "address, tenant, app", "tenant: 5s"},
		{address + tenant + app, "X-App: a", "address, tenant, app", "app: 5s"},
		{banned + tenant + address, "X-Tenant: t", "banned, tenant, address", "banned: 5s, tenant: 5s"},
		{address + free, "X-App: a", "address", "address: 5s, free: 5s"},
	} {
		f, err := policyfile.Parse("p.yaml", []byte("version: 1\npolicies:\n"+c.rows+
			"tests:\n  - request: GET https://a.com/\n    headers: {"+c.headers+"}\n    policies: ["+c.policies+"]\n"+
			"    answer: {status: 429, headers: {Retry-After: 5}}\n    closes: {"+c.closes+"}\n"))
		require.NoError(t, err)
		require.NoError(t, f.Check(), c.rows)
	}
}

// TestWarnsOfPathsWithIDs: a key of the raw path is one budget for each id, which holds nothing.
func TestWarnsOfPathsWithIDs(t *testing.T) {
	const test = "tests:\n  - {request: GET https://a.com/users/1234/posts, policies: [a]}\n  - {request: GET https://a.com/about, policies: [a]}\n"
	kinds := map[string]string{"key": "budget", "share": "share"}
	warning := func(field, path, route string) []string {
		return []string{`policy "a": ` + field + " has a " + kinds[field] + " for each path such as " + path + `: write {route}, with routes: ["` + route + `"], for one of all`}
	}
	for rows, want := range map[string][]string{
		"  - {name: a, match: 'a.com/users/{id}', limit: 1/s, key: '{path}'}\n":                        warning("key", "/users/{id}", "/users/{id}"),
		"  - {name: a, match: 'GET a.com/v1/{rest...}', limit: 1/s, key: '{header.X}{path}'}\n":        warning("key", "/v1/{rest...}", "/v1/{rest...}"),
		"  - {name: a, match: 'a.com/users/{id}', limit: 1/s, key: '{header.X|path}'}\n":               warning("key", "/users/{id}", "/users/{id}"),
		"  - {name: a, match: 'a.com/users/{id}', limit: 1/s, share: '{path}'}\n":                      warning("share", "/users/{id}", "/users/{id}"),
		"  - {name: a, match: a.com/, limit: 1/s, key: '{path}'}\n" + test:                             warning("key", "/users/1234/posts", "/users/{id}/posts"),
		"  - {name: a, match: a.com/, limit: 1/s, key: '{path}'}\n":                                    nil,
		"  - {name: a, match: '{shop}.a.com/', limit: 1/s, key: '{shop}{path}'}\n":                     nil,
		"  - {name: a, match: 'a.com/users/{id}', limit: 1/s, key: '{id}'}\n":                          nil,
		"  - {name: a, match: 'a.com/users/{$}', limit: 1/s, key: '{path}'}\n":                         nil,
		"  - {name: a, match: 'a.com/', limit: 1/s, key: '{route}', routes: ['/users/{id}']}\n" + test: nil,
	} {
		require.Equal(t, want, warningsOf(t, rows), rows)
	}
}
