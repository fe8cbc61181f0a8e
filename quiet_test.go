package throttle_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

const module = "github.com/fleetthrottle/throttle"

// goList returns the lines that go list prints.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

// TestP15_OnlyTheStandardLibrary: a user of these packages links nothing else.
func TestP15_OnlyTheStandardLibrary(t *testing.T) {
	contract := module + "/store"
	acquire := []string{module + "/internal/outage", contract, module + "/internal/acquire"}
	ledger := []string{contract, module + "/internal/ledger", module + "/internal/outage", module + "/internal/node", module + "/internal/virtual", module + "/memstore"}
	for pkg, want := range map[string][]string{
		".": append(slices.Clone(acquire),
			module+"/internal/dialect", module+"/internal/match", module+"/internal/panics", module+"/internal/peek",
			module+"/internal/jsonscan", module+"/internal/reqbody", module,
		),
		"./store":            {contract},
		"./internal/acquire": acquire,
		"./memstore":         ledger,
		"./stores/storetest": {module + "/internal/lab/bubble", contract, module + "/stores/storetest"},
	} {
		require.Equal(t, want, goList(t, "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", pkg))
	}
}

// TestP15_AcquireKnowsNoHTTP: a caller's way to its start is the same for requests and for other work.
func TestP15_AcquireKnowsNoHTTP(t *testing.T) {
	deps := goList(t, "-deps", "./internal/acquire")
	require.Contains(t, deps, "context")
	require.NotContains(t, deps, "net/http")
}

func TestP15_NothingThatLogsIsImported(t *testing.T) {
	imports := goList(t, "-f", `{{join .Imports "\n"}}`, ".", "./memstore")
	require.Contains(t, imports, "net/http")
	require.NotContains(t, imports, "log")
	require.NotContains(t, imports, "log/slog")
	require.NotContains(t, imports, "os")
}

// TestP15_NothingIsLogged goes through everything that could be worth a line,
// in a process of its own, so that whatever way out is found is seen.
func TestP15_NothingIsLogged(t *testing.T) {
	const inside = "THROTTLE_TEST_NOTHING_IS_LOGGED"
	if os.Getenv(inside) != "" {
		synctest.Test(t, muchHappens)
		return
	}
	var stderr strings.Builder
	c := exec.CommandContext(t.Context(), must(os.Executable()), "-test.run=^TestP15_NothingIsLogged$")
	c.Env = append(os.Environ(), inside+"=1")
	c.Stderr = &stderr
	stdout, err := c.Output()
	require.NoError(t, err)
	require.Equal(t, "PASS", strings.Fields(string(stdout))[0], "the test's own word comes first")
	require.Empty(t, stderr.String())
}

func muchHappens(t *testing.T) {
	store := newSpy()
	store.pause = func(context.Context) error { return errors.New("down") }
	d := newDialer(always(100 * ms))
	d.written.then = answer(429, "")
	tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Base: d, Policies: everywhere(onePerSecond)}))
	line(t, tr, 3, home)
	r := get(t, home)
	require.ErrorIs(t, send(t, tr, r.WithContext(throttle.WithMaxWait(r.Context(), -1))), throttle.ErrLimited)
	require.Error(t, tr.SetPolicies([]throttle.Policy{{}}))
	require.NoError(t, tr.SetPolicies(nil))
	tr = must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: brokenStore{err: errors.New("down")}, Base: d, Policies: everywhere(onePerSecond)}))
	require.Error(t, send(t, tr, get(t, home)))
}

// TestP15_IdleWithTheStore: when the work is done nothing is left running, and
// no timer is set: a bubble with a goroutine in it would not end.
func TestP15_IdleWithTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(t, base(func(r *http.Request) (*http.Response, error) {
			return answer(429, "", "Retry-After", "3600")(r)
		}), onePerSecond)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		require.NoError(t, send(t, tr, get(t, home)))
		require.NoError(t, send(t, tr, get(t, home).WithContext(ctx)))
		require.ErrorIs(t, send(t, tr, get(t, home).WithContext(throttle.WithMaxWait(t.Context(), -1))), throttle.ErrLimited)
	})
}

// TestP15_TheAnswersContextIsReleased: whatever the caller does with the body,
// nothing of the request is kept.
func TestP15_TheAnswersContextIsReleased(t *testing.T) {
	var inner context.Context
	tr := newTransport(t, base(func(r *http.Request) (*http.Response, error) {
		inner = r.Context()
		return answer(200, "body")(r)
	}), throttle.Policy{Name: "p", Limit: throttle.PerHour(100)})
	for name, end := range map[string]func(*http.Response) error{
		"closed": func(resp *http.Response) error { return resp.Body.Close() },
		"read": func(resp *http.Response) error {
			_, err := resp.Body.Read(make([]byte, 10))
			require.NoError(t, err)
			require.NoError(t, inner.Err(), "there may be more")
			_, err = resp.Body.Read(make([]byte, 10))
			require.Error(t, err)
			return nil
		},
	} {
		resp, err := tr.RoundTrip(get(t, home))
		require.NoError(t, err)
		require.NoError(t, inner.Err(), name)
		require.NoError(t, end(resp))
		require.ErrorIs(t, inner.Err(), context.Canceled, name)
	}
}

// dependencies are all that this module may need, with their licences. A change that
// adds one adds it here, and its commit says why.
var dependencies = map[string]string{
	"github.com/redis/go-redis/v9":          "BSD-2-Clause", // redisstore
	"github.com/hashicorp/go-retryablehttp": "MPL-2.0",      // retry
	"github.com/stretchr/testify":           "MIT",          // tests

	// What those need.
	"github.com/cespare/xxhash/v2":      "MIT",
	"github.com/hashicorp/go-cleanhttp": "MPL-2.0",
	"go.uber.org/atomic":                "MIT",
	"go.yaml.in/yaml/v3":                "MIT and Apache-2.0",
	"golang.org/x/sys":                  "BSD-3-Clause",
}

// phrases are what licences are known by.
var phrases = map[string][]string{
	"MIT":                {"Permission is hereby granted, free of charge"},
	"MIT and Apache-2.0": {"covered by two different licenses: MIT and Apache"},
	"BSD-2-Clause":       {"Redistribution and use in source and binary forms", "this list of conditions and the following disclaimer"},
	"BSD-3-Clause":       {"Redistribution and use in source and binary forms", "used to endorse or promote products"},
	"MPL-2.0":            {"Mozilla Public License, version 2.0"},
}

// TestDependencies compares go.mod with the list: three direct requirements, each a
// released version, and nothing replaced.
func TestDependencies(t *testing.T) {
	mod := read(t, "go.mod")
	for _, word := range []string{"replace", "exclude", "toolchain", "tool", "ignore", "godebug", "// indirect; "} {
		require.NotRegexp(t, `(?m)^`+word+`\b`, mod)
	}
	direct, sum := 0, read(t, "go.sum")
	all := regexp.MustCompile(`(?m)^\t(\S+) (v\S+)( // indirect)?$`).FindAllStringSubmatch(mod, -1)
	require.Len(t, all, len(dependencies))
	for _, m := range all {
		path, version, indirect := m[1], m[2], m[3] != ""
		require.Contains(t, dependencies, path)
		require.Regexp(t, `^v\d+\.\d+\.\d+$`, version, path)
		require.Contains(t, sum, path+" "+version+" h1:")
		if !indirect {
			direct++
		}
	}
	require.Equal(t, 3, direct)
}

// TestLicences reads the licence of every module that is linked, as it lies in the
// module cache. It asks nobody.
func TestLicences(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-test",
		"-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Dir}}{{end}}{{end}}", "./...")
	cmd.Env = append(cmd.Environ(), "GOFLAGS=-mod=readonly")
	out, err := cmd.Output()
	require.NoError(t, err)
	seen := make(map[string]bool)
	for line := range strings.Lines(string(out)) {
		path, dir, found := strings.Cut(strings.TrimSpace(line), "\t")
		if !found || seen[path] {
			continue
		}
		seen[path] = true
		require.Contains(t, dependencies, path)
		files, err := filepath.Glob(filepath.Join(dir, "LICENSE*"))
		require.NoError(t, err)
		require.NotEmpty(t, files, path)
		for _, phrase := range phrases[dependencies[path]] {
			require.Contains(t, strings.Join(strings.Fields(read(t, files[0])), " "), phrase, path)
		}
	}
	require.Len(t, seen, len(dependencies), "one of the list is not needed any more")
}
