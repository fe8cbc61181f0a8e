package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/store"
	"github.com/spf13/cobra"
)

// A checkResult is the JSON of check.
type checkResult struct {
	Version  int       `json:"version"`
	Files    []tally   `json:"files"`
	Findings []finding `json:"findings"`
}

// A tally summarizes a file.
type tally struct {
	File     string `json:"file"`
	Policies int    `json:"policies"`
	Tests    int    `json:"tests"`

	Untested []string `json:"untested"` // policies that no test expects

	example string // a test for the first of Untested, as an example of the form
}

// tallyOf summarizes a file.
func tallyOf(file string, f *policyfile.File) tally {
	t := tally{File: file, Policies: len(f.All()), Tests: len(f.Tests), Untested: []string{}}
	for _, p := range f.Policies {
		tested := slices.ContainsFunc(f.Tests, func(test policyfile.Test) bool {
			return slices.ContainsFunc(test.Expects, func(e policyfile.Expectation) bool { return e.Policy == p.Name })
		})
		if tested {
			continue
		}
		t.Untested = append(t.Untested, p.Name)
		if t.example == "" {
			t.example = fmt.Sprintf("{request: GET https://HOST/PATH, policies: {%s: {cost: 1}}}", p.Name)
		}
	}

	return t
}

// mostUntested is how many untested policies are named.
const mostUntested = 5

// untested returns a hint to write tests for untested policies, or "".
func (t *tally) untested() string {
	if len(t.Untested) == 0 {
		return ""
	}
	names := strings.Join(t.Untested[:min(len(t.Untested), mostUntested)], ", ")
	if more := len(t.Untested) - mostUntested; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("no test proves which requests these policies match: %s; write one below \"tests:\", such as\n  - %s", names, t.example)
}

// newCheck returns the command check, which checks files of policies and runs their tests.
func newCheck() *cobra.Command {
	var nodes int
	var strict bool
	c := &cobra.Command{
		Use: "check FILE...",
		Example: `  throttle check policies.yaml
  throttle check policies.yaml --strict --nodes 60`,
		Short: "Check files of policies, and run their tests",
		Long: `Check reads files of policies, reports all mistakes at once, runs the tests of
the files, and warns of policies that cannot keep an upstream's limits. It exits
with 1 if there are mistakes, or if tests fail.`,
		Args: argumentCount(1, manyArguments),
		RunE: func(c *cobra.Command, files []string) error {
			all := checkResult{Version: outputVersion, Files: []tally{}, Findings: []finding{}}
			for _, file := range files {
				if err := all.check(c, file, nodes); err != nil {
					return err
				}
			}

			// Print first: the exit code comes on top of the findings.
			done, err := printJSON(c, all)
			if !done {
				_, err = io.WriteString(c.OutOrStdout(), all.text())
			}
			if err == nil && all.failed(strict) {
				err = &exit{code: exitFound}
			}

			return err
		},
	}

	c.Flags().IntVar(&nodes, "nodes", 0, "warn of limits that this number of nodes cannot share while Redis is away")
	c.Flags().BoolVar(&strict, "strict", false, "exit with 1 for warnings as well")
	return c
}

// check checks one file, and adds its tally and its findings: mistakes, failed tests and warnings. A file that cannot be
// parsed has no tally. nodes is the flag --nodes. check returns an error only if the file cannot be read.
func (all *checkResult) check(c *cobra.Command, file string, nodes int) error {
	f, err := loadInput(c, file)
	if err != nil {
		return all.addMistakes(err)
	}

	all.Files = append(all.Files, tallyOf(file, f))
	if err := all.addMistakes(f.Check()); err != nil {
		return err
	}

	all.Findings = append(all.Findings, advice(file, f, nodes)...)
	for _, e := range f.Warnings() {
		all.Findings = append(all.Findings, finding{"warning", file, e.Line, e.Column, e.Text, ""})
	}

	return nil
}

// addMistakes adds the mistakes in err as findings. If err holds no mistakes, it returns err.
func (all *checkResult) addMistakes(err error) error {
	mistakes := policyfile.Mistakes(err)
	if err != nil && mistakes == nil {
		return err
	}
	for _, e := range mistakes {
		all.Findings = append(all.Findings, finding{"error", e.File, e.Line, e.Column, e.Text, e.Excerpt()})
	}
	return nil
}

// failed reports whether the command fails: for errors or, if strict, for warnings.
func (all *checkResult) failed(strict bool) bool {
	for _, f := range all.Findings {
		if strict || f.Severity == "error" {
			return true
		}
	}
	return false
}

// text formats the findings like a compiler, then a summary per file. It has at most mostFindings findings
// per file and severity.
func (all *checkResult) text() string {
	var out strings.Builder
	inGroup := 0 // findings of this file and severity
	for i, f := range all.Findings {
		inGroup++
		if inGroup <= mostFindings {
			e := policyfile.Error{File: f.File, Line: f.Line, Column: f.Column, Text: f.Text}
			if f.Severity == "warning" {
				e.Text = "warning: " + e.Text
			}

			fmt.Fprintln(&out, clean(e.Error()))
			out.WriteString(f.excerpt)
		}

		// Where a group ends, count its findings that were not printed.
		isLast := i+1 == len(all.Findings) || all.Findings[i+1].File != f.File || all.Findings[i+1].Severity != f.Severity
		if isLast {
			if inGroup > mostFindings {
				fmt.Fprintf(&out, "%s: and %s\n", clean(f.File), stat.Count(inGroup-mostFindings, "more "+f.Severity, "more "+f.Severity+"s"))
			}
			inGroup = 0
		}
	}

	for _, t := range all.Files {
		fmt.Fprintf(&out, "%s: %s, %s\n", clean(t.File), stat.Count(t.Policies, "policy", "policies"), stat.Count(t.Tests, "test", "tests"))
		if text := t.untested(); text != "" {
			fmt.Fprintln(&out, clean(text))
		}
	}

	return out.String()
}

// mostFindings is how many errors, and how many warnings, of a file are
// printed. --json has all.
const mostFindings = 20

// newSchema returns the command schema, which prints the JSON schema of a file of policies.
func newSchema() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Example: "  throttle schema",
		Short:   "Print the JSON schema of a file of policies, for editors",
		Args:    argumentCount(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := c.OutOrStdout().Write(policyfile.Schema())
			return err
		},
	}
}

// A finding is one result of check.
type finding struct {
	Severity string `json:"severity"` // "error" or "warning"
	File     string `json:"file"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Text     string `json:"text"`

	excerpt string
}

// advice returns warnings about the policies of a file that are not a preset's: of token buckets, of long jitter, of limits
// that this number of nodes cannot share, of limits above a preset's, and of limits that never hold because a tighter policy
// matches the same requests.
func advice(file string, f *policyfile.File, nodes int) (all []finding) {
	warn := func(p *throttle.Policy, format string, args ...any) {
		text := fmt.Sprintf("policy %q: ", p.Name) + fmt.Sprintf(format, args...)
		all = append(all, finding{Severity: "warning", File: file, Line: f.Line(p.Name), Text: text})
	}

	known, tightest := knownTables(), tightestOf(f.Own())
	for i := range f.Own() {
		p := &f.Own()[i]
		l := p.Limit
		if l.Kind() == store.KindTokenBucket {
			warn(p, "%v lets up to %d requests start within %v; an upstream that counts %d in each window of %v refuses some: write %q for such a one",
				l, l.Capacity()+l.N(), l.Per(), l.N(), l.Per(), throttle.SlidingWindow(l.N(), l.Per()))
		}

		// The usable part of a limit is per / (per + Jitter).
		if per := l.Per(); per > 0 && p.Jitter > per/2 {
			warn(p, "a jitter of %v leaves less than two thirds of %v", p.Jitter, l)
		}

		// While Redis is away a limit is divided among the nodes, except for a leaky bucket and Concurrency. With more nodes
		// than starts each has less than one start.
		divided := p.Scope == throttle.ScopeFleet && l.Kind() != store.KindLeakyBucket && l.Kind() != store.KindConcurrency
		if n := l.N(); divided && n > 0 && nodes > n {
			warn(p, "%d nodes cannot share %v while Redis is away: with redisstore.OutageSplit each has nothing", nodes, l)
		}
		if table, row := above(p, known); row != nil {
			warn(p, "%v is above what preset %s knows of the same requests: %v (%s)", l, table, row.Limit, row.Name)
		}

		rival := tightest[requestsOf(p)]
		if rival != nil && sameRequests(p, rival) && looser(l, rival.Limit) {
			warn(p, "it never holds: policy %q matches the same requests and holds more", rival.Name)
		}
	}

	return all
}

// looser reports whether l has the same form as o and more room, so that l never holds a request that o lets pass.
func looser(l, o throttle.Limit) bool {
	sameForm := l.Kind() == o.Kind() && l.Per() == o.Per() && windowOf(l) == windowOf(o)
	return sameForm && l.N() > o.N() && l.Capacity() >= o.Capacity()
}

// windowOf returns the unit and the zone of a calendar's window as the limit's text has them: such a limit has no Per. For
// every other limit windowOf returns "".
func windowOf(l throttle.Limit) string {
	if l.Kind() != store.KindFixedWindow || l.Per() > 0 {
		return ""
	}
	_, window, _ := strings.Cut(l.String(), "/")
	return window
}

// A requests groups policies whose limits can be compared.
type requests struct {
	match  string
	scope  throttle.Scope
	kind   store.Kind
	per    time.Duration
	window string // see windowOf
}

// requestsOf returns the group of a policy.
func requestsOf(p *throttle.Policy) requests {
	return requests{p.Match, p.Scope, p.Limit.Kind(), p.Limit.Per(), windowOf(p.Limit)}
}

// tightestOf returns the policy with the lowest limit in each group. It leaves out shadow policies, and policies with a key or
// a cost.
func tightestOf(policies []throttle.Policy) map[requests]*throttle.Policy {
	all := make(map[requests]*throttle.Policy)
	for i := range policies {
		p := &policies[i]
		tightest := all[requestsOf(p)]

		// sameRequests(p, p) is false for the policies that are left out.
		if sameRequests(p, p) && (tightest == nil || looser(tightest.Limit, p.Limit)) {
			all[requestsOf(p)] = p
		}
	}
	return all
}

// sameRequests reports whether o holds all requests that p matches, in a single budget. It is false if one of the policies has a
// key or a cost, because functions cannot be compared, and if o is a shadow policy.
func sameRequests(p, o *throttle.Policy) bool {
	return p.Match == o.Match && p.Key == nil && o.Key == nil && p.Cost == nil && o.Cost == nil && p.Scope == o.Scope && !o.Shadow
}

// A knownTable is a preset with its documented limits.
type knownTable struct {
	name      string
	transport *throttle.Transport
	rows      map[string]*throttle.Policy
}

// knownTables returns the presets with zero options, except presets with a required option.
func knownTables() (all []knownTable) {
	for _, name := range policyfile.Presets() {
		f, err := policyfile.Parse("", []byte("version: 1\npresets: ["+name+"]"))

		// A preset with a required option cannot be parsed without it.
		if err != nil {
			continue
		}

		// New accepts each table that Parse accepts.
		t := throttle.Must(throttle.New(throttle.Config{Store: memstore.New(), Policies: f.Policies}))
		table := knownTable{name, t, make(map[string]*throttle.Policy)}
		for i := range f.Policies {
			table.rows[f.Policies[i].Name] = &f.Policies[i]
		}

		all = append(all, table)
	}

	return all
}

// above returns the first preset that has a row with less room than p for a sample of p's requests, and that row, or "" and
// nil. The search ends at a preset with a row of the name and the match of p. A p whose match names no host has no sample.
func above(p *throttle.Policy, known []knownTable) (preset string, row *throttle.Policy) {
	req := sample(p.Match)
	if req == nil {
		return "", nil
	}

	for _, k := range known {
		if own, ok := k.rows[p.Name]; ok && own.Match == p.Match {
			return "", nil // p is the preset's row, or replaces it
		}

		for _, c := range k.transport.Explain(req) {
			if row := k.rows[c.Budget.Policy]; row != nil && looser(p.Limit, row.Limit) {
				return k.name, row
			}
		}
	}

	return "", nil
}

var wildcard = regexp.MustCompile(`\{[^{}]*\}`)

// sample returns a request that a pattern matches, or nil for a pattern without a host. Without a method in the pattern it is
// a GET.
func sample(match string) *http.Request {
	method, at := http.MethodGet, match
	if fields := strings.Fields(match); len(fields) == 2 {
		method, at = fields[0], fields[1]
	}

	// {$} stands for nothing, and any other wildcard matches x.
	at = wildcard.ReplaceAllStringFunc(strings.ReplaceAll(at, "{$}", ""), func(string) string { return "x" })
	host, path, _ := strings.Cut(at, "/")
	if host == "" {
		return nil
	}
	return &http.Request{Method: method, URL: &url.URL{Scheme: "https", Host: strings.Replace(host, "*.", "x.", 1), Path: "/" + path}, Header: http.Header{}}
}
