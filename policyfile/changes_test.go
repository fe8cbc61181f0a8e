package policyfile_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

		{"limit: 20/month", "limit: 10/month", nil},
		{"limit: 20/day Asia/Shanghai", "limit: 10/day Asia/Shanghai", nil},
		{"limit: 20/month", "limit: 30/month", []string{"its limit goes from 20/month to 30/month"}},
		{"limit: 20/month", "limit: 10/day", []string{"its limit goes from 20/month to 10/day"}},
		{"limit: 20/day", "limit: 10/day Asia/Shanghai", []string{"its limit goes from 20/day to 10/day Asia/Shanghai"}},
		{"limit: 20/day", "limit: 10/s fixed", []string{"its limit goes from 20/day to 10/s fixed"}},
		{"limit: told", "limit: unlimited", []string{"its limit goes from told to unlimited"}},

		{"", "penalty: none", []string{"its penalty has changed"}},
		{"", "penalty: retry-after", nil},
		{"penalty: retry-after", "", []string{"its penalty has changed"}}, // a single 503 closed the row, and a 429 more than one row
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

// A board is a text that can be changed, and what became of it.
type board struct {
	mu      sync.Mutex
	text    string
	err     error
	applied []string // the limits of the first policy
	states  []policyfile.State
	refuse  error
}

func (b *board) put(text string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text, b.err = text, err
}

func (b *board) read(context.Context) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return []byte(b.text), b.err
}

func (b *board) apply(f *policyfile.File) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse != nil {
		return b.refuse
	}
	b.applied = append(b.applied, f.Policies[0].Limit.String())
	return nil
}

func (b *board) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = err
}

func (b *board) options() policyfile.Options {
	return policyfile.Options{Name: "board", Read: b.read, Apply: b.apply, Report: b.report}
}

func (b *board) report(s policyfile.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.states = append(b.states, s)
}

func (b *board) reports() []policyfile.State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.states)
}

func (b *board) inForce() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.applied)
}

// version is a file with one policy of that limit, and more rows.
func version(limit, more string) string {
	return "version: 1\npolicies:\n  - {name: a, match: example.com/, limit: " + limit + "}\n" + more
}

// follow follows a board in virtual time.
func follow(t *testing.T, b *board, test func(f *policyfile.Follower)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		f, err := policyfile.Follow(ctx, b.options())
		require.NoError(t, err)
		require.Equal(t, []string{"20/s"}, b.inForce())
		pass(time.Millisecond) // so that each look is a little before ours
		test(f)
	})
}

// pass lets time pass, and then waits until all that it brings has been done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestFollowTightens: a lower limit is in force when two reads have agreed on it.
func TestFollowTightens(t *testing.T) {
	b := &board{text: version("20/s", "")}
	follow(t, b, func(f *policyfile.Follower) {
		first := f.State().InForce
		b.put(version("10/s", ""), nil)
		pass(time.Second)
		require.Equal(t, []string{"20/s"}, b.inForce())
		require.NotEqual(t, first, f.State().Seen)
		require.Equal(t, first, f.State().InForce)
		pass(time.Second)
		require.Equal(t, []string{"20/s", "10/s"}, b.inForce())
		require.Equal(t, f.State().Seen, f.State().InForce)
		require.Equal(t, "10/s", f.File().Policies[0].Limit.String())
	})
}

// TestFollowHalfAFile: what is there for one read only never comes into force.
func TestFollowHalfAFile(t *testing.T) {
	b := &board{text: version("20/s", "  - {name: b, match: /, limit: 5/s}\n")}
	follow(t, b, func(f *policyfile.Follower) {
		b.put("version: 1\n", nil) // it is being written
		pass(time.Second)
		b.put(version("10/s", "  - {name: b, match: /, limit: 5/s}\n"), nil)
		pass(5 * time.Second)
		require.Equal(t, []string{"20/s", "10/s"}, b.inForce())
	})
}

// TestFollowLoosens: a version that would no longer hold what is held waits, says why, and
// can be taken back meanwhile.
func TestFollowLoosens(t *testing.T) {
	b := &board{text: version("20/s", "  - {name: b, match: /, limit: 5/s}\n")}
	follow(t, b, func(f *policyfile.Follower) {
		b.put(version("40/s", ""), nil)
		pass(2 * time.Second)
		require.Equal(t, []string{`policy "a": its limit goes from 20/s to 40/s`, `policy "b" is gone`}, f.State().Loosens)
		require.Equal(t, policyfile.DefaultGrace, time.Until(f.State().Until)+time.Millisecond)
		b.put(version("20/s", "  - {name: b, match: /, limit: 5/s}\n"), nil)
		pass(time.Minute)
		require.Equal(t, []string{"20/s"}, b.inForce())
		require.Equal(t, f.State().Seen, f.State().InForce)
		require.Empty(t, f.State().Loosens)

		b.put(version("40/s", ""), nil)
		pass(2*time.Second + policyfile.DefaultGrace - time.Second)
		require.Equal(t, []string{"20/s"}, b.inForce())
		pass(time.Second)
		require.Equal(t, []string{"20/s", "40/s"}, b.inForce())
		require.Len(t, b.reports(), 6) // seen, waits, put back, seen, waits, in force
	})
}

// TestFollowMistakes: a bad edit, a version that cannot be applied and a text that cannot
// be read keep the version before, and the state says why.
func TestFollowMistakes(t *testing.T) {
	b := &board{text: version("20/s", "")}
	follow(t, b, func(f *policyfile.Follower) {
		first := f.State().InForce
		b.put(version("20/fortnight", ""), nil)
		pass(2 * time.Second)
		require.ErrorContains(t, f.State().Err, "board:3:")
		b.put("", os.ErrNotExist)
		pass(time.Second)
		require.ErrorIs(t, f.State().Err, os.ErrNotExist)
		b.put(version("20/fortnight", ""), nil)
		pass(time.Second)
		require.ErrorContains(t, f.State().Err, "board:3:")
		b.fail(errors.New("not today"))
		b.put(version("10/s", ""), nil)
		pass(2 * time.Second)
		require.EqualError(t, f.State().Err, "not today")
		require.Equal(t, first, f.State().InForce)
		b.fail(nil)
		b.put(version("9/s", ""), nil)
		pass(2 * time.Second)
		require.NoError(t, f.State().Err)
		require.Equal(t, []string{"20/s", "9/s"}, b.inForce())
	})
}

// failing is a test that a file with one policy does not pass.
const failing = "tests:\n  - {request: GET https://other.com/, policies: [a]}\n"

// TestFollowRunsTests: a version whose own tests fail does not come into force.
func TestFollowRunsTests(t *testing.T) {
	b := &board{text: version("20/s", "")}
	follow(t, b, func(f *policyfile.Follower) {
		b.put(version("10/s", failing), nil)
		pass(2 * time.Second)
		require.ErrorContains(t, f.State().Err, `board:5:5: the request does not match policy "a"`)
		b.put(version("40/s", failing), nil)
		pass(time.Minute)
		require.ErrorContains(t, f.State().Err, `board:5:5: the request does not match policy "a"`)
		require.Equal(t, []string{"20/s"}, b.inForce())
		b.put(version("9/s", "tests:\n  - {request: GET https://example.com/, policies: [a]}\n"), nil)
		pass(2 * time.Second)
		require.Equal(t, []string{"20/s", "9/s"}, b.inForce())
	})
}

// TestFollowStart: a first version that is wrong is an error at once.
func TestFollowStart(t *testing.T) {
	for name, b := range map[string]*board{
		"cannot be read":    {err: os.ErrPermission},
		"cannot be parsed":  {text: "version: 2"},
		"fails its tests":   {text: version("20/s", failing)},
		"cannot be applied": {text: version("20/s", ""), refuse: errors.New("no")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := policyfile.Follow(t.Context(), b.options())
			require.Error(t, err)
		})
	}
	_, err := policyfile.Follow(t.Context(), policyfile.Options{})
	require.EqualError(t, err, "policyfile: Options.Apply is missing: it puts a version into force, as transport.SetPolicies(f.Policies) does\n"+
		"policyfile: Options.Path is missing: name the file, or set Read for a text that is no file")
	read := func(context.Context) ([]byte, error) { return nil, nil }
	_, err = policyfile.Follow(t.Context(), policyfile.Options{Apply: func(*policyfile.File) error { return nil }, Path: "a.yaml", Read: read, Interval: -1})
	require.EqualError(t, err, "policyfile: Options.Path is never read beside Read: set one of the two; Name is for errors\n"+
		"policyfile: Options.Interval is -1ns: use more than 0, or 0 for 1s")
}

// TestFollowLinks: a file behind links that are turned over, as those of a ConfigMap, is
// read anew.
func TestFollowLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		in := func(name string) string { return filepath.Join(dir, name) }
		for generation, limit := range map[string]string{"1": "20/s", "2": "10/s"} {
			require.NoError(t, os.Mkdir(in(generation), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(in(generation), "policies.yaml"), []byte(version(limit, "")), 0o644))
		}
		require.NoError(t, os.Symlink("1", in("..data")))
		require.NoError(t, os.Symlink(filepath.Join("..data", "policies.yaml"), in("policies.yaml")))
		b := new(board)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		_, err := policyfile.Follow(ctx, policyfile.Options{Path: in("policies.yaml"), Apply: b.apply})
		require.NoError(t, err)

		require.NoError(t, os.Symlink("2", in("..data_tmp")))
		require.NoError(t, os.Rename(in("..data_tmp"), in("..data")))
		pass(2*time.Second + time.Millisecond)
		require.Equal(t, []string{"20/s", "10/s"}, b.inForce())
	})
}

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
		"  - {name: a, match: 'a.com/users/{id}', limit: 1/s, key: '{path}'}\n":                                         warning("key", "/users/{id}", "/users/{id}"),
		"  - {name: a, match: 'GET a.com/v1/{rest...}', limit: 1/s, key: '{header.X}{path}'}\n":                         warning("key", "/v1/{rest...}", "/v1/{rest...}"),
		"  - {name: a, match: 'a.com/users/{id}', limit: 1/s, key: '{header.X|path}'}\n":                                warning("key", "/users/{id}", "/users/{id}"),
		"  - {name: a, match: 'a.com/users/{id}', limit: 1/s, share: '{path}'}\n":                                       warning("share", "/users/{id}", "/users/{id}"),
		"  - {name: a, match: a.com/, limit: 1/s, key: '{path}'}\n" + test:                                              warning("key", "/users/1234/posts", "/users/{id}/posts"),
		"  - {name: a, match: a.com/, limit: 1/s, key: '{path}'}\n":                                                     nil,
		"  - {name: a, match: a.com/, limit: 1/s, key: '{path}'}\n" + strings.Replace(test, "posts", "posts/5678/9", 1): warning("key", "/users/1234/posts/5678/9", "/users/{id}/posts/{id2}/{id3}"),
		"  - {name: a, match: '{shop}.a.com/', limit: 1/s, key: '{shop}{path}'}\n":                                      nil,
		"  - {name: a, match: 'a.com/users/{id}', limit: 1/s, key: '{id}'}\n":                                           nil,
		"  - {name: a, match: 'a.com/users/{$}', limit: 1/s, key: '{path}'}\n":                                          nil,
		"  - {name: a, match: 'a.com/', limit: 1/s, key: '{route}', routes: ['/users/{id}']}\n" + test:                  nil,
	} {
		require.Equal(t, want, warningsOf(t, rows), rows)
	}
}
