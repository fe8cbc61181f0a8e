package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// A jsonCase is a command line with --json, in the order in which a fleet lives.
type jsonCase struct {
	name string // of the golden file, which is not there if nothing is printed
	args string
	code int
}

// empty are the cases of a Redis in which nothing is.
var empty = []jsonCase{
	{"version", "--version", exitDone},
	{"schema", "schema", exitDone},
	{"check", "check good.yaml", exitDone},
	{"check-findings", "check bad.yaml advice.yaml --nodes 3", exitFound},
	{"check-nothing", "check nothing.yaml", exitUsage},
	{"explain", "explain good.yaml GET https://acme.example.com/a --redis redis://ADDRESS", exitDone},
	{"explain-unmatched", "explain shop.yaml GET https://other.com/", exitDone},
	{"plan", "plan good.yaml -n 50 --at 2026-11-23T08:00:00Z --within 1s", exitFound},
	{"plan-unmatched", "plan shop.yaml -n 5 -r https://other.com/ --at 2026-11-23T08:00:00Z", exitUsage},
	{"plan-free", "plan shop.yaml -n 5 --latency 0 --request GET~https://other.com/ --at 2026-11-23T08:00:00Z", exitDone},
	{"simulate", "simulate good.yaml access.csv --max-wait 1s", exitFound},
	{"simulate-nothing", "simulate good.yaml empty.csv", exitDone},
	{"dashboard-exposed", "dashboard --listen 0.0.0.0:7072", exitUsage},
	{"proxy-exposed", "proxy good.yaml --listen 0.0.0.0:7070", exitUsage},
	{"envoy-exposed", "envoy good.yaml --listen 0.0.0.0:7072", exitUsage},
	{"run-nothing", "run", exitRun},
	{"status-empty", "status", exitDone},
	{"top-empty", "top --once", exitDone},
	{"audit-empty", "audit", exitDone},
	{"history-empty", "history", exitDone},
	{"pull-nothing", "pull", exitFound},
	{"diff-new", "diff good.yaml", exitFound},
	{"pause-unused", "pause all --for 10m --reason moving --by anna --yes --file good.yaml", exitDone},
	{"status-unused", "status", exitDone},
	{"resume-unused", "resume all --by anna --yes --file good.yaml", exitDone},
	{"rollback-nothing", "rollback --yes", exitUsage},
	{"push", "push good.yaml --by anna --reason begin --yes --wait 0", exitDone},
	{"push-same", "push good.yaml --by anna --yes", exitDone},
}

// used are the cases after a program has started to follow.
var used = []jsonCase{
	{"diff-same", "diff good.yaml", exitDone},
	{"diff-loosens", "diff loose.yaml", exitFound},
	{"push-bad", "push bad.yaml --yes", exitFound},
	{"push-loosens", "push loose.yaml --yes", exitDeclined},
	{"push-declined", "push tight.yaml < no", exitDeclined},
	{"push-nobody", "push tight.yaml < nobody", exitUsage},
	{"push-waits", "push loose.yaml --by anna --yes --loosen --wait 1ns", exitFound},
	{"rollback", "rollback --by ben --yes --loosen", exitDone},
	{"history", "history", exitDone},
	{"pull", "pull", exitDone},
	{"pull-number", "pull 2 -o pulled.yaml", exitDone},
	{"pull-unknown", "pull 7", exitUsage},
	{"pause", "pause shop --key acme --for 10m --reason moving --by anna --yes", exitDone},
	{"pause-shorter", "pause shop --key acme --for 5m --by ben --yes", exitConflict},
	{"explain-held", "explain good.yaml GET https://acme.example.com/admin/orders.json --redis redis://ADDRESS", exitFound},
	{"status", "status", exitDone},
	{"top", "top --once --filter shop", exitDone},
	{"resume", "resume shop --key acme --by anna --yes", exitDone},
	{"resume-open", "resume shop --key acme --by anna --yes", exitConflict},
	{"reset", "reset shop --key acme --by anna --yes", exitDone},
	{"set-used", "set-used shop --key acme --to 4 --reason counted --by anna --yes", exitDone},
	{"set-used-above", "set-used shop --key acme --to 6 --yes", exitUsage},
	{"set-used-unused", "set-used shop --key other --to 4 --yes", exitConflict},
	{"off", "off --for 15m --by anna --reason mending --yes", exitDone},
	{"status-off", "status", exitDone},
	{"off-longer", "off --for 25h --by anna --yes", exitUsage},
	{"on", "on --by ben --yes", exitDone},
	{"audit", "audit -n 5", exitDone},
	{"top-replay", "top --replay outage.jsonl", exitDone},
}

// files are those that the cases name.
var files = map[string]string{
	"good.yaml":   "version: 1\npolicies:\n  - {name: shop, match: \"{shop}.example.com/admin/\", key: \"{shop}\", limit: 5/h}\n  - {name: all, match: \"{shop}.example.com/\", limit: 20/h}\ntests:\n  - {request: GET https://acme.example.com/admin/orders.json, policies: {shop: {cost: 1, key: acme}, all: {}}}\n",
	"tight.yaml":  "version: 1\npolicies:\n  - {name: shop, match: \"{shop}.example.com/admin/\", key: \"{shop}\", limit: 4/h}\n  - {name: all, match: \"{shop}.example.com/\", limit: 20/h}\n",
	"loose.yaml":  "version: 1\npolicies:\n  - {name: shop, match: \"{shop}.example.com/admin/\", key: \"{shop}\", limit: 6/h}\n",
	"shop.yaml":   "version: 1\npolicies:\n  - {name: shop, match: \"{shop}.example.com/admin/\", key: \"{shop}\", limit: 5/h}\n",
	"bad.yaml":    "version: 1\npolicies:\n  - {name: shop, match: /, limit: 0/s}\n",
	"advice.yaml": "version: 1\npolicies:\n  - {name: month, match: /, limit: 2/month}\n",
	"access.csv":  "2026-11-23T08:00:00.1Z,GET,https://acme.example.com/admin/a\n2026-11-23T08:00:00.2Z,GET,https://acme.example.com/admin/a\nnonsense\n" + strings.Repeat("2026-11-23T08:00:01.2Z,GET,https://acme.example.com/admin/a\n", 5),
	"empty.csv":   "",
	"no":          "no\n",
	"nobody":      "",
}

// volatile finds what differs from run to run in the output of a command.
var volatile = regexp.MustCompile(`("(?:at|until|closed_since|throttle|go|host|id|node|library)": )"[^"]*"|("(?:pid|up_ms|ago_ms|for_ms|grace_ms|wait_ms|paused_ms|heard_us|left_ms|passed|oldest_wait_ms|starts_per_second|cost_per_second)": )-?[\d.]+`)

// TestJSON: what --json prints is what the golden files have, for each command, and where a
// command fails before it has a result nothing is printed. $UPDATE writes the files.
func TestJSON(t *testing.T) {
	server := redistest.Single(t)
	t.Setenv(addressVariable, server.URL())
	recording, err := os.ReadFile(outage)
	require.NoError(t, err)
	golden, err := filepath.Abs("testdata/json")
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("outage.jsonl", recording, 0o600))
	for name, text := range files {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	known := make(map[string]bool)
	try := func(cases []jsonCase) {
		for _, c := range cases {
			known[strings.Fields(c.args)[0]] = true
			c.try(t, golden, server.Addr)
		}
	}
	try(empty)
	startFollower(t, server)
	try(used)
	for _, c := range newRoot().Commands() {
		require.True(t, known[c.Name()], "%s has no case", c.Name())
	}
}

// startFollower starts a program that has used budgets, and says that it has good.yaml in force
// whatever is pushed.
func startFollower(t *testing.T, server *redistest.Server) {
	client := server.Client(t)
	reporter := made(fleet.Start(client, redisstore.New(client, redisstore.Options{}), fleet.ReporterOptions{Program: "importer", Interval: time.Hour}))
	t.Cleanup(reporter.Close)
	f, err := policyfile.Load("good.yaml")
	require.NoError(t, err)
	good := policyfile.Generation([]byte(files["good.yaml"]))
	reporter.ReportFile(func() fleet.FileState {
		return fleet.FileState{Reads: policyfile.Version, Pushed: true, InForce: good, Seen: good}
	})
	require.NoError(t, book(reporter, f, "GET", "https://acme.example.com/admin/orders.json"))
	reporter.ReportSoon()
	require.Eventually(t, func() bool {
		nodes, err := made(fleet.New(client, fleet.Options{})).Nodes(t.Context())
		return err == nil && len(nodes) == 1 && nodes[0].Budgets == 2 && nodes[0].File.Pushed
	}, time.Minute, time.Millisecond)
}

// try runs the case and compares its output.
func (c *jsonCase) try(t *testing.T, golden, address string) {
	line, input, _ := strings.Cut(strings.ReplaceAll(c.args, "ADDRESS", address), " < ")
	args := strings.Fields(line)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "~", " ")
	}
	var out, talk bytes.Buffer
	root := newRoot()
	if input != "" {
		file, err := os.Open(input)
		require.NoError(t, err)
		defer file.Close()
		root.SetIn(file)
	}
	code := execute(t.Context(), root, append(args, "--json"), &out, &talk)
	require.Equal(t, c.code, code, "%s: %s%s", c.name, talk.String(), out.String())
	requireDocuments(t, c, out.Bytes())
	if c.name == "schema" {
		return // package policyfile has it
	}
	text := volatile.ReplaceAllString(out.String(), `${1}${2}"…"`)
	path := filepath.Join(golden, c.name+".json")
	if os.Getenv("UPDATE") != "" && text != "" {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	require.True(t, err == nil || text == "" && os.IsNotExist(err), "%s: %v", c.name, err)
	require.Equal(t, string(want), text, c.name)
}

// requireDocuments requires that an output is one document of JSON, or none where the case fails
// before it has a result, or one a line; and that no list in it is null.
func requireDocuments(t *testing.T, c *jsonCase, text []byte) {
	d := json.NewDecoder(bytes.NewReader(text))
	n := 0
	for ; ; n++ {
		var v any
		err := d.Decode(&v)
		if err == io.EOF {
			break
		}
		require.NoError(t, err, "%s: %s", c.name, text)
		requireNoNull(t, c.name, v)
	}
	require.True(t, n <= 1 || n == bytes.Count(text, []byte("\n")), "%s: %s", c.name, text)
}

// requireNoNull requires that there is no null in a value.
func requireNoNull(t *testing.T, where string, v any) {
	switch v := v.(type) {
	case nil:
		require.Fail(t, "a null", where)
	case []any:
		for _, item := range v {
			requireNoNull(t, where, item)
		}
	case map[string]any:
		for name, item := range v {
			requireNoNull(t, where+"."+name, item)
		}
	}
}
