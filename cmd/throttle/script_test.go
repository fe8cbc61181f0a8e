package main

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(nodeVariable) != "":
		runNode()
	case os.Getenv(drillVariable) != "":
		runDrill()
	case os.Getenv(commandVariable) != "":
		main()
	case os.Getenv(deafVariable) != "":
		runDeaf()
	default:
		testscript.Main(tests{m}, map[string]func(){"throttle": main})
	}
}

// tests are the tests of the package, in an environment that they share because they run side by side.
type tests struct{ *testing.M }

// Run runs the tests.
func (all tests) Run() int {
	for _, name := range []string{addressVariable, urlVariable, "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"} {
		os.Unsetenv(name)
	}

	// Programs trust the authority of httptest, which all servers of httptest share.
	server := httptest.NewTLSServer(nil)
	server.Close()
	authority := made(os.CreateTemp("", "ca"))
	defer os.Remove(authority.Name())
	if err := errors.Join(pem.Encode(authority, &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), authority.Close()); err != nil {
		panic(err)
	}
	os.Setenv("SSL_CERT_FILE", authority.Name())

	// The race detector would have each program sleep for a second when it is done.
	os.Setenv(raceVariable, os.Getenv(raceVariable)+" atexit_sleep_ms=0")

	return all.M.Run()
}

// raceVariable has the options of the race detector.
const raceVariable = "GORACE"

// TestScripts runs the scripts in testdata/script. They have a Redis of their own in
// $REDIS_URL, "spend FILE METHOD URL" starts a request of a program, and "program NAME FILE
// METHOD URL" is one that reports itself until the script ends.
func TestScripts(t *testing.T) {
	soak.WithoutRace(t)
	t.Parallel()
	server := redistest.Single(t)
	setUsers(t, server)
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(env *testscript.Env) error {
			// Scripts run side by side, each in a database of its own.
			env.Setenv("REDIS_URL", fmt.Sprintf("redis://%s/%d", server.Addr, databases.Add(1)%16))
			env.Setenv("ADDRESS", server.Addr)
			env.Setenv(raceVariable, os.Getenv(raceVariable))
			env.Setenv("WATCHER_URL", strings.Replace(env.Getenv("REDIS_URL"), "://", "://watcher:"+redistest.Password+"@", 1))
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"spend": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(spend(ts.Getenv("REDIS_URL"), ts.MkAbs(args[0]), args[1], args[2]))
			},
			"program": func(ts *testscript.TestScript, _ bool, args []string) {
				stop, err := program(ts.Getenv("REDIS_URL"), args[0], ts.MkAbs(args[1]), args[2], args[3])
				ts.Check(err)
				ts.Defer(stop)
			},
		},
	})
}

// databases counts those that scripts have taken.
var databases atomic.Int64

// setUsers makes the user of docs/run/redis.md that can only read, for all databases.
func setUsers(t *testing.T, server *redistest.Server) {
	server.User(t, "watcher", append(redistest.Rights(t, "../../docs/run/redis.md", "watcher"), "+select"))
}

// program starts a request as a program with a reporter would, and returns when the fleet
// sees it.
func program(address, name, file, method, url string) (stop func(), err error) {
	f, err := policyfile.Load(file)
	if err != nil {
		return nil, err
	}
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(o)
	reporter := made(fleet.Start(client, redisstore.New(client, redisstore.Options{}), fleet.ReporterOptions{Program: name, Interval: 20 * time.Millisecond}))
	reporter.ReportFile(func() fleet.FileState { return fleet.FileState{Runbooks: f.Runbooks} })
	stop = func() {
		reporter.Close()
		client.Close()
	}
	if err := book(reporter, f, method, url); err != nil {
		return stop, err
	}
	for {
		s, err := made(fleet.New(client, fleet.Options{})).Snapshot(context.Background(), 0)
		if err != nil || slices.ContainsFunc(s.Nodes, func(n fleet.Node) bool { return n.ID == reporter.ID() && n.Budgets > 0 }) {
			return stop, err
		}
	}
}

// spend acquires the starts of a request, as a program would.
func spend(address, file, method, url string) error {
	f, err := policyfile.Load(file)
	if err != nil {
		return err
	}
	o, err := redis.ParseURL(address)
	if err != nil {
		return err
	}
	client := redis.NewClient(o)
	defer client.Close()
	return book(redisstore.New(client, redisstore.Options{}), f, method, url)
}

// book books the start of a request. A caller that does not wait gives Redis a second to answer, which on a busy machine is too little.
func book(s throttle.Store, f *policyfile.File, method, url string) error {
	t, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: s, Policies: f.Policies})
	if err != nil {
		return err
	}
	req, err := newRequest(method, url, nil)
	if err != nil {
		return err
	}
	b := &store.Booking{Charges: t.Explain(req), MaxWait: 30 * time.Second}
	_, err = s.Book(context.Background(), b)
	return err
}

// TestCodes: each kind of failure has the exit code that README documents.
func TestCodes(t *testing.T) {
	t.Parallel()
	good := "../../policyfile/testdata/good.yaml"
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"check", good}, exitDone},
		{[]string{"check", "--strict", good}, exitFound},
		{[]string{"check", "../../policyfile/testdata/bad.yaml"}, exitFound},
		{[]string{"check", "nothing.yaml"}, exitUsage},
		{[]string{"check"}, exitUsage},
		{[]string{"chekc"}, exitUsage},
		{[]string{"explain", good, "GET", "no url"}, exitUsage},
		{[]string{"explain", good, "GET", "https://acme.example.com/admin/x", "--redis", "redis://127.0.0.1:1", "--timeout", "100ms"}, exitStore},
		{[]string{"explain", good, "GET", "https://acme.example.com/admin/x", "--redis", "127.0.0.1:1"}, exitUsage},
		{[]string{"status"}, exitUsage},
		{[]string{"status", "--redis", "redis+moon://127.0.0.1:1"}, exitUsage},
		{[]string{"status", "--redis", "redis://127.0.0.1:1"}, exitStore},
		{[]string{"proxy", "--redis", "redis://127.0.0.1:1"}, exitStore},
		{[]string{"status", "--redis", "redis+cluster://127.0.0.1:1"}, exitStore},
		{[]string{"status", "--redis", "redis+sentinel://127.0.0.1:1?master_name=main", "--timeout", "100ms"}, exitStore},
	} {
		require.Equal(t, c.code, run(t.Context(), c.args, new(sink), new(sink)), "%v", c.args)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, exitInterrupted, run(ctx, []string{"explain", good, "GET", "https://acme.example.com/admin/x", "--redis", "redis://127.0.0.1:1"}, new(sink), new(sink)))
}

// A sink forgets what is written to it.
type sink struct{}

func (*sink) Write(p []byte) (int, error) { return len(p), nil }
