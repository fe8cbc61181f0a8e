package main

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/store"
)

// A finding is one thing that check has to say.
type finding struct {
	Severity string `json:"severity"` // "error" or "warning"
	File     string `json:"file"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Text     string `json:"text"`

	excerpt string
}

// advice says what a file's own rows promise that they may not keep. It knows nothing of
// the upstream but what presets know.
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

		if per := l.Per(); per > 0 && p.Jitter > per/2 {
			warn(p, "a jitter of %v leaves less than two thirds of %v", p.Jitter, l)
		}
		if n := l.N(); nodes > n && n > 0 && p.Scope == throttle.ScopeFleet && l.Kind() != store.KindLeakyBucket && l.Kind() != store.KindConcurrency {
			warn(p, "%d nodes cannot share %v while Redis is away: with redisstore.Share each has nothing", nodes, l)
		}
		if table, row := above(p, known); row != nil {
			warn(p, "%v is above what preset %s knows of the same requests: %v (%s)", l, table, row.Limit, row.Name)
		}
		if o := tightest[requestsOf(p)]; o != nil && sameRequests(p, o) && looser(l, o.Limit) {
			warn(p, "it never holds: policy %q matches the same requests and holds more", o.Name)
		}
	}

	return all
}

// looser reports whether a limit can never hold what another of the same form lets pass.
func looser(l, o throttle.Limit) bool {
	return l.Kind() == o.Kind() && l.Per() == o.Per() && l.N() > o.N() && l.Capacity() >= o.Capacity() && o.N() > 0
}

// A requests is what the requests of policies whose limits can be compared have in common.
type requests struct {
	match string
	scope throttle.Scope
	kind  store.Kind
	per   time.Duration
}

func requestsOf(p *throttle.Policy) requests {
	return requests{p.Match, p.Scope, p.Limit.Kind(), p.Limit.Per()}
}

// tightestOf returns the policy with the lowest limit for each group of requests, of those
// that hold all of them in one budget.
func tightestOf(policies []throttle.Policy) map[requests]*throttle.Policy {
	all := make(map[requests]*throttle.Policy)
	for i := range policies {
		p := &policies[i]
		o := all[requestsOf(p)]
		if sameRequests(p, p) && (o == nil || looser(o.Limit, p.Limit)) {
			all[requestsOf(p)] = p
		}
	}
	return all
}

// sameRequests reports whether two policies hold the same requests in the same budgets, as
// far as can be told: those with functions differ.
func sameRequests(p, o *throttle.Policy) bool {
	return p.Match == o.Match && p.Key == nil && o.Key == nil && p.Cost == nil && o.Cost == nil && p.Scope == o.Scope && !o.Shadow
}

// A knownTable is a preset as its documentation has it.
type knownTable struct {
	name      string
	transport *throttle.Transport
	rows      map[string]*throttle.Policy
}

// knownTables returns the presets, with their zero options.
func knownTables() (all []knownTable) {
	for _, name := range policyfile.Presets() {
		f, err := policyfile.Parse("", []byte("version: 1\npresets: ["+name+"]"))
		if err != nil {
			continue
		}

		t, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: f.Policies})
		if err != nil {
			continue
		}

		table := knownTable{name, t, make(map[string]*throttle.Policy)}
		for i := range f.Policies {
			table.rows[f.Policies[i].Name] = &f.Policies[i]
		}

		all = append(all, table)
	}

	return all
}

// above returns the row of a preset of the same form that allows less than a policy to
// the requests that it matches.
func above(p *throttle.Policy, known []knownTable) (table string, row *throttle.Policy) {
	req := sample(p.Match)
	if req == nil {
		return "", nil
	}

	for _, k := range known {
		if own, ok := k.rows[p.Name]; ok && own.Match == p.Match {
			return "", nil // it is the preset's
		}

		for _, c := range k.transport.Explain(req) {
			if r := k.rows[c.Budget.Policy]; r != nil && looser(p.Limit, r.Limit) {
				return k.name, r
			}
		}
	}

	return "", nil
}

var wildcard = regexp.MustCompile(`\{[^{}]*\}`)

// sample returns a request that a pattern with a host matches, nil if it has none.
func sample(match string) *http.Request {
	method, at, ok := strings.Cut(match, " ")
	if !ok {
		method, at = http.MethodGet, match
	}
	at = wildcard.ReplaceAllStringFunc(strings.ReplaceAll(at, "{$}", ""), func(string) string { return "x" })
	host, path, _ := strings.Cut(at, "/")
	if host == "" {
		return nil
	}
	return &http.Request{Method: method, URL: &url.URL{Scheme: "https", Host: strings.Replace(host, "*.", "x.", 1), Path: "/" + path}, Header: http.Header{}}
}
