package main

import (
	"context"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/redisstore"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"throttle": func() {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}})
}

// TestScripts runs the scripts in testdata/script. They have a Redis of their own in
// $REDIS_URL, and "spend FILE METHOD URL" starts a request of a program.
func TestScripts(t *testing.T) {
	server := redistest.Single(t)
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("REDIS_URL", "redis://"+server.Addr)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"spend": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(spend(ts.Getenv("REDIS_URL"), ts.MkAbs(args[0]), args[1], args[2]))
			},
		},
	})
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
	store := redisstore.New(client, nil)
	t, err := throttle.New(throttle.Config{Store: store, Policies: f.Policies})
	if err != nil {
		return err
	}
	req, err := newRequest(method, url, nil)
	if err != nil {
		return err
	}
	b := &throttle.Booking{Charges: t.Explain(req)}
	_, err = store.Book(context.Background(), b)
	return err
}

// TestCodes: each kind of failure has the exit code that README documents.
func TestCodes(t *testing.T) {
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
