package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// TestHelpHasExamples: the help of each command has an example, and each example is a command line that the command takes.
func TestHelpHasExamples(t *testing.T) {
	for _, c := range newRoot().Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		require.NotEmpty(t, c.Example, c.Name())
		for line := range strings.Lines(c.Example) {
			words := lineWords(t, strings.TrimSpace(line))
			require.Equal(t, "throttle", words[0], line)
			found, args, err := newRoot().Find(words[1:])
			require.NoError(t, err, line)
			require.Equal(t, c.Name(), found.Name(), line)
			require.NoError(t, found.ParseFlags(args), line)
			require.NoError(t, found.ValidateArgs(found.Flags().Args()), line)
		}
	}
}

// TestReference: docs/reference/command.md is the help of each command. $UPDATE writes the page.
func TestReference(t *testing.T) {
	const path = "../../docs/reference/command.md"
	page := new(strings.Builder)
	page.WriteString("# The command: reference\n\nThe help of each command, as the program prints it. A test writes this page. [The command](../../cmd/throttle/README.md) tells what the commands are for.\n")
	for _, c := range newRoot().Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		c.InitDefaultHelpFlag()
		help := new(strings.Builder)
		c.SetOut(help)
		require.NoError(t, c.Help())
		fmt.Fprintf(page, "\n## throttle %s\n\n```text\n%s\n```\n", c.Name(), strings.TrimSpace(help.String()))
	}

	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(page.String()), 0o644))
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(text), page.String(), "UPDATE=1 go test -run TestReference writes the page")
}

// lineWords takes a command line apart, with quoted words.
func lineWords(t *testing.T, line string) (words []string) {
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			words = append(words, part)
			continue
		}
		words = append(words, strings.Fields(part)...)
	}
	require.Zero(t, strings.Count(line, `"`)%2, line)
	return words
}

// TestLengthWords: what a person chose is asked about with its units.
func TestLengthWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Minute: "1 min", 90 * time.Minute: "1 h 30 min", 45 * time.Second: "45 s", 1500 * time.Millisecond: "1.5s", 24 * time.Hour: "24 h",
	} {
		require.Equal(t, want, lengthWords(d))
	}
}

// TestProgress: a computation that takes longer than a second says how far it is in one line, which is gone at the end. What is no terminal sees nothing.
func TestProgress(t *testing.T) {
	begun := time.Now()
	var out bytes.Buffer
	p := &progress{out: &out, begun: begun}
	p.showAt(0.1, begun.Add(900*time.Millisecond))
	p.end()
	require.Empty(t, out.String(), "it was quick")
	p.showAt(0.25, begun.Add(2*time.Second))
	p.showAt(0.26, begun.Add(2100*time.Millisecond))
	p.showAt(0.5, begun.Add(4*time.Second))
	p.end()
	p.end()
	require.Equal(t, "\r\x1b[K25 %, 6s left\r\x1b[K50 %, 4s left\r\x1b[K", out.String())

	c := newPlan()
	c.SetErr(&out)
	require.Nil(t, newProgress(c))
	newProgress(c).show(0.5)
	newProgress(c).end()
}

// TestIdentity: a Redis whose certificate a private authority signed, and which wants one of
// its clients, is asked with flags, or with variables.
func TestIdentity(t *testing.T) {
	server := redistest.TLS(t)
	address := "rediss://:secret-52@" + server.TLSAddr
	require.NoError(t, server.Client(t).ConfigSet(t.Context(), "requirepass", "secret-52").Err())
	broken := filepath.Join(t.TempDir(), "broken.pem")
	require.NoError(t, os.WriteFile(broken, []byte("nonsense"), 0o600))

	ca, pair := []string{"--tls-ca", server.CertFile}, []string{"--tls-cert", server.CertFile, "--tls-key", server.KeyFile}
	for _, c := range []struct {
		address string
		flags   []string
		code    int
		says    string
	}{
		{address, append(ca, pair...), exitDone, "no program reports itself"},
		{address, pair, exitStore, "certificate signed by unknown authority"},
		{address, ca, exitStore, "certificate required"},
		{address, []string{"--tls-ca", broken}, exitUsage, "--tls-ca: " + broken + " has no certificate in PEM"},
		{address, []string{"--tls-ca", "nothing.pem"}, exitUsage, "--tls-ca: open nothing.pem: no such file"},
		{address, []string{"--tls-cert", server.CertFile}, exitUsage, "--tls-cert, --tls-key: a certificate and its key go together"},
		{server.URL(), ca, exitUsage, "the address is one without TLS; one with TLS begins with rediss"},
	} {
		code, out := throttleCommand(t, append([]string{"status", "--redis", c.address}, c.flags...)...)
		require.Equal(t, c.code, code, "%v: %s", c.flags, out)
		require.Contains(t, out, c.says)
	}

	t.Setenv(authorityVariable, server.CertFile)
	t.Setenv(certificateVariable, server.CertFile)
	t.Setenv(keyVariable, server.KeyFile)
	must(t, "status", "--redis", address)
	must(t, "status", "--redis", "redis://:secret-52@"+server.Addr)
}

// TestIdentity_RefusedBeforeTheWrite: a server that wants a certificate has closed the connection when the client
// writes for the first time. The write fails, and its error has the server's reason.
func TestIdentity_RefusedBeforeTheWrite(t *testing.T) {
	files := redistest.TLS(t)
	pair, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	require.NoError(t, err)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert})
	require.NoError(t, err)
	defer listener.Close()
	refused := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			err = conn.(*tls.Conn).Handshake()
			conn.Close()
		}
		refused <- err
	}()

	dial := tlsDialer(&tls.Config{RootCAs: files.Config.RootCAs}, 0)
	conn, err := dial(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err, "the handshake is complete for the client")
	defer conn.Close()
	require.ErrorContains(t, <-refused, "didn't provide a certificate")

	// The first write brings the reset, so a later one fails.
	for err == nil {
		_, err = conn.Write([]byte("PING"))
	}
	require.ErrorContains(t, err, "certificate required")
	require.Nil(t, tlsDialer(nil, 0), "an address without TLS")
}

// TestReadme replays README: its files are written, its commands run, and what they print
// is what stands there.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	path, err := filepath.Abs("README.md")
	require.NoError(t, err)
	t.Setenv("REDIS_URL", "redis://"+redistest.Single(t).Addr)
	recording, err := os.ReadFile(outage)
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("outage.jsonl", recording, 0o644))
	r := &transcript{T: t}
	samePage(t, path, string(readme), r.replay(string(readme)), nil)
}

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

// TestLabels: keys and budgets of a file have names, by the hash of each policy. A file that is wrong is refused as a whole, with the
// lines that are, and without their text.
func TestLabels(t *testing.T) {
	const acme = "shop/f32021364bac"
	require.Equal(t, acme, store.BudgetOf("shop", "acme").String())
	for text, want := range map[string]string{
		"":                                 "",
		"acme\tAcme GmbH\n":                "Acme GmbH",
		"# tenants\r\n\r\nacme\t Acme\r\n": "Acme",
		"acme\tby its key\n" + acme + "\tby its budget": "by its budget",
		"\ufeffacme\tAcme, from an editor":              "Acme, from an editor",
		"other\tOther\n":                                "",
		"crm/f32021364bac\tof another policy":           "",
	} {
		var l labels
		require.NoError(t, l.parse([]byte(text)), text)
		require.Equal(t, want, l.of("shop", acme), text)
		require.Empty(t, l.of("crm", "crm/0123456789ab"))
	}

	for text, want := range map[string]string{
		"acme\n":                         "line 1: it is not a key or a budget, a tab, and a name",
		"a\tA\n\tB\nhidden\t \n":         "line 2: it is not a key or a budget, a tab, and a name\nline 3: it is not a key or a budget, a tab, and a name",
		"a\t" + strings.Repeat("x", 101): "line 1: the name is no text of 100 characters at most",
		"a\t\xff":                        "line 1: the name is no text of 100 characters at most",
		strings.Repeat("a\tA\n", 10_001): "it has more than 10000 names",
	} {
		require.EqualError(t, new(labels).parse([]byte(text)), want)
	}
	err := new(labels).parse([]byte(strings.Repeat("hidden\n", 13)))
	require.ErrorContains(t, err, "and 3 more")
	require.NotContains(t, err.Error(), "hidden")
}

// TestLabelsStayHere: status, top and a recording that is played show the names of a file. Redis, and the recording, do not have them.
func TestLabelsStayHere(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	at := "--redis=" + server.URL()
	client := server.Client(t)
	reporter := made(fleet.Start(client, redisstore.New(client, redisstore.Options{}), fleet.ReporterOptions{Program: "till", Interval: 20 * time.Millisecond}))
	t.Cleanup(reporter.Close)
	l, err := throttle.NewLimiter(reporter, throttle.Policy{Name: "shop", Keyed: true, Limit: throttle.PerHour(9)})
	require.NoError(t, err)
	_, err = l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "acme", 1)
	require.NoError(t, err)

	dir := t.TempDir()
	file, record := filepath.Join(dir, "labels"), filepath.Join(dir, "record")
	require.NoError(t, os.WriteFile(file, []byte("acme\tAcme GmbH\n"), 0o600))
	require.Eventually(t, func() bool {
		return strings.Contains(must(t, "status", "--labels", file, at), "shop/f32021364bac (Acme GmbH)")
	}, time.Minute, 10*time.Millisecond)
	require.NotContains(t, must(t, "status", at), "Acme")

	var s fleet.Snapshot
	require.NoError(t, json.Unmarshal([]byte(must(t, "status", "--labels", file, "--json", at)), &s))
	require.Equal(t, "Acme GmbH", s.Budgets[0].Label)

	const named = "shop/f32021364bac (Acme GmbH)"
	require.Contains(t, must(t, "top", "--once", "--labels", file, "--filter", "gmbh", "--record", record, at), named)
	text, err := os.ReadFile(record)
	require.NoError(t, err)
	require.NotContains(t, string(text), "Acme")
	require.NotContains(t, must(t, "top", "--once", "--replay", record), "Acme")
	require.Contains(t, must(t, "top", "--once", "--replay", record, "--labels", file), named)

	code, out := throttleCommand(t, "status", "--labels", filepath.Join(dir, "none"))
	require.Equal(t, exitUsage, code)
	require.Contains(t, out, "--labels")
}

// TestEnvironment: base URLs of APIs that limits name lead through the proxy, and all further variables stay.
func TestEnvironment(t *testing.T) {
	const url = "http://127.0.0.1:7"
	const strange = "OPENAI_BASE_URL has a URL that throttle run leaves as it is, because it has a user or a mistake: its calls are not held"
	defaults := []string{
		"ANTHROPIC_BASE_URL=" + url + "/api.anthropic.com", "DASHSCOPE_HTTP_BASE_URL=" + url + "/dashscope.aliyuncs.com/api/v1",
		"GOOGLE_GEMINI_BASE_URL=" + url + "/generativelanguage.googleapis.com",
		"OPENAI_API_BASE=" + url + "/api.openai.com/v1", "OPENAI_BASE_URL=" + url + "/api.openai.com/v1", "THROTTLE_URL=" + url,
	}

	for _, c := range []struct {
		variables []string
		want      []string // in place of the defaults of the same names
		told      string
	}{
		{nil, nil, ""},
		{[]string{"HOME=/home/a", "EMPTY=", "A=b=c"}, []string{"HOME=/home/a", "EMPTY=", "A=b=c"}, ""},
		{[]string{"OPENAI_BASE_URL="}, nil, ""},
		{[]string{"OPENAI_BASE_URL=https://api.deepseek.com"}, []string{"OPENAI_BASE_URL=" + url + "/api.deepseek.com"}, ""},
		{[]string{"OPENAI_BASE_URL=https://api.deepseek.com/v1/?a=b"}, []string{"OPENAI_BASE_URL=" + url + "/api.deepseek.com/v1/?a=b"}, ""},
		{[]string{"GITHUB_API_URL=https://api.deepseek.com/x"}, []string{"GITHUB_API_URL=" + url + "/api.deepseek.com/x"}, ""},
		{[]string{"X_ENDPOINT=https://api.deepseek.com/x"}, []string{"X_ENDPOINT=" + url + "/api.deepseek.com/x"}, ""},
		{[]string{"X_URL=https://api.deepseek.com/x"}, []string{"X_URL=https://api.deepseek.com/x"}, ""},
		{[]string{"OPENAI_BASE_URL=https://gate.example/v1"}, []string{"OPENAI_BASE_URL=https://gate.example/v1"}, "OPENAI_BASE_URL leads to gate.example, which no limit names: its calls are not held. --limit gate.example/=20/s would hold them"},
		{[]string{"OPENAI_BASE_URL=http://localhost:1234/v1"}, []string{"OPENAI_BASE_URL=http://localhost:1234/v1"}, ""},
		{[]string{"OPENAI_BASE_URL=https://a:b@api.deepseek.com"}, []string{"OPENAI_BASE_URL=https://a:b@api.deepseek.com"}, strange},
		{[]string{"OPENAI_BASE_URL=https://[::1"}, []string{"OPENAI_BASE_URL=https://[::1"}, strange},
		{[]string{"OPENAI_BASE_URL= https://api.deepseek.com"}, []string{"OPENAI_BASE_URL= https://api.deepseek.com"}, strange},
		{[]string{"OPENAI_BASE_URL=HTTPS://api.deepseek.com/v1"}, []string{"OPENAI_BASE_URL=" + url + "/api.deepseek.com/v1"}, ""},
		{[]string{"OPENAI_BASE_URL=https://api.deepseek.com?a=b"}, []string{"OPENAI_BASE_URL=" + url + "/api.deepseek.com?a=b"}, ""},
		// In another throttle run.
		{[]string{"THROTTLE_URL=http://127.0.0.1:9", "OPENAI_BASE_URL=http://127.0.0.1:9/api.deepseek.com/v1"}, []string{"OPENAI_BASE_URL=" + url + "/api.deepseek.com/v1"}, ""},
		{[]string{"THROTTLE_URL=http://127.0.0.1:9", "OPENAI_BASE_URL=http://127.0.0.1:9/gate.example/v1"}, []string{"OPENAI_BASE_URL=http://127.0.0.1:9/gate.example/v1"}, ""},
		// In a network with a proxy.
		{[]string{"http_proxy=http://proxy:1"}, []string{"http_proxy=http://proxy:1", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1"}, ""},
		{[]string{"HTTP_PROXY=http://proxy:1", "no_proxy=a"}, []string{"HTTP_PROXY=http://proxy:1", "NO_PROXY=a,127.0.0.1", "no_proxy=a,127.0.0.1"}, ""},
		{[]string{"http_proxy=http://proxy:1", "NO_PROXY=a", "no_proxy=b"}, []string{"http_proxy=http://proxy:1", "NO_PROXY=a,127.0.0.1", "no_proxy=b,127.0.0.1"}, ""},
		{[]string{"http_proxy=http://proxy:1", "NO_PROXY=a"}, []string{"http_proxy=http://proxy:1", "NO_PROXY=a,127.0.0.1", "no_proxy=a,127.0.0.1"}, ""},
	} {
		want := slices.Clone(c.want)
		for _, d := range defaults {
			name, _, _ := strings.Cut(d, "=")
			if !slices.ContainsFunc(want, func(v string) bool { return strings.HasPrefix(v, name+"=") }) {
				want = append(want, d)
			}
		}

		var told []string
		e := environment{url: url, tell: func(line string) { told = append(told, line) }, named: func(host string) bool { return host != "gate.example" }}
		require.ElementsMatch(t, want, e.of(slices.Clone(c.variables)), "%v", c.variables)
		require.Equal(t, c.told, strings.Join(told, "\n"))
	}
}
