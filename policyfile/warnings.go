package policyfile

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// Warnings returns likely oversights in the file's own rows. Each is allowed, and is no mistake.
//
//   - Rows that match the same requests and read refusals by default, if it is unclear which of them a 429 is about.
//   - A key or a share with {path} beside a match whose path has a wildcard, or a test whose path has an id: each path has a budget,
//     or a share, of its own.
func (f *File) Warnings() Errors {
	w := warner{file: f, reader: newReader(f.name, f.text)}
	w.warnOfRefusals()
	w.warnOfPaths()
	_ = w.reader.errs.sorted() // sorts errs in place
	return w.reader.errs
}

// A warner collects the warnings of one file.
type warner struct {
	file   *File
	reader *reader
}

// warn notes a warning about a row.
func (w *warner) warn(p *row, format string, args ...any) {
	w.reader.failAt(p.at.Line, 0, format, args...) // column 0 stands for the whole line
}

// warnOfRefusals warns of rows that match the same requests, if a 429 may close other rows than the
// row that caused it. Of all rows that read the 429 by default, a [throttle.Transport] closes the
// first row with a key, or all rows if none has a key.
func (w *warner) warnOfRefusals() {
	for _, rows := range w.sharedRequests((*row).readsByDefault) {
		keyed := slices.DeleteFunc(slices.Clone(rows), func(p *row) bool { return p.Key == nil })
		switch {
		case len(keyed) == 0 && holdDifferently(rows):
			w.warn(rows[0], "policies %s match the same requests, and a 429 closes all of them, because none has a key: write %s", names(rows), adviceOfRefusals)
		case holdDifferently(keyed):
			w.warn(rows[0], "policies %s match the same requests, and a 429 closes %q alone, because it is the first with a key: write %s", names(keyed), clip(keyed[0].Name), adviceOfRefusals)
		}
	}
}

// adviceOfRefusals is what to write in rows, so that it is clear which of them a 429 is about.
const adviceOfRefusals = `"penalty: retry-after" in each row that a 429 is about, and "penalty: none" in the others`

// readsByDefault reports whether the default alone says which answers close the row. It is false for a
// row that nothing closes: a shadow row, or a row without a match.
func (p *row) readsByDefault() bool {
	return p.penalty == nil && p.acted == nil && !p.Shadow && !p.named
}

// holdDifferently reports whether the rows hold different requests, so that it matters which of them
// closes. It is false for no rows.
func holdDifferently(rows []*row) bool {
	return slices.ContainsFunc(rows, func(p *row) bool {
		return p.Match != rows[0].Match || p.Scope != rows[0].Scope || written("key", "")(p) != written("key", "")(rows[0])
	})
}

// names returns the names of two or more rows for a sentence: `"a", "b" and "c"`. Of more than five rows it returns five
// names and how many more there are.
func names(rows []*row) string {
	const most = 5
	var all []string
	for _, p := range rows[:min(len(rows), most)] {
		all = append(all, fmt.Sprintf("%q", clip(p.Name)))
	}
	if more := len(rows) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all, ", "), more)
	}
	last := len(all) - 1
	return strings.Join(all[:last], ", ") + " and " + all[last]
}

// rawPath is the placeholder of the raw path, alone or as one of several.
var rawPath = regexp.MustCompile(`[{|]path[|}]`)

// pathWildcard is a wildcard in the path of a pattern.
var pathWildcard = regexp.MustCompile(`/[^{]*\{[^{}$]+\}`)

// idInPath is a segment of a path that is probably an id.
var idInPath = regexp.MustCompile(`/([0-9]+|[0-9a-fA-F-]{16,}|[A-Za-z_-]*[0-9]{3,}[0-9A-Za-z_-]*)(/|$)`)

// warnOfPaths warns of rows whose key or share has the whole path, if the path has an id: then each id has
// a budget, or a share, of its own.
func (w *warner) warnOfPaths() {
	for i := range w.file.rows {
		p := &w.file.rows[i]
		for _, f := range []struct{ name, makes string }{{"key", "budget"}, {"share", "share"}} {
			if !rawPath.MatchString(written(f.name, "")(p)) {
				continue
			}

			// Take a path with an id from the match, or else from the tests.
			path := ""
			if pattern := p.Match[strings.LastIndexAny(p.Match, " \t")+1:]; pathWildcard.MatchString(pattern) {
				path = pattern[strings.IndexByte(pattern, '/'):]
			} else {
				path = w.testedPath(p)
			}

			if path != "" {
				w.warn(p, "policy %q: %s has a %s for each path such as %s: write {route}, with routes: [%q], for one of all", clip(p.Name), f.name, f.makes, clip(path), route(path))
			}
		}
	}
}

// testedPath returns the path of the first test whose path has an id and whose request row p matches, or "".
func (w *warner) testedPath(p *row) string {
	// The row without its key and cost: a request that the row makes free must match, too.
	bare := throttle.Policy{Name: p.Name, Match: p.Match, Limit: p.Limit}
	transport, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{bare}})
	if err != nil {
		return ""
	}
	for i := range w.file.Tests {
		if req := w.file.Tests[i].Request(); idInPath.MatchString(req.URL.Path) && len(transport.Explain(req)) > 0 {
			return req.URL.Path
		}
	}
	return ""
}

// route returns the route of a path: the path with wildcards in the place of ids. Wildcards that the path
// has remain.
func route(path string) string {
	// Each id gets a name of its own: a wildcard name may stand once in a route.
	for n := 1; ; n++ {
		at := idInPath.FindStringSubmatchIndex(path)
		if at == nil {
			return strings.Replace(path, "{id1}", "{id}", 1)
		}
		path = path[:at[0]] + fmt.Sprintf("/{id%d}", n) + path[at[4]:] // at[4] is the begin of the second group, the slash behind the id
	}
}

// sharedRequests returns sets of the file's own rows that match the same request. It looks at the rows
// for which isMeant is true, and at one request for each of them, made from the row's match. Sets of one
// row, and subsets of a longer set, are left out.
func (w *warner) sharedRequests(isMeant func(*row) bool) (all [][]*row) {
	var rows []*row
	var policies []throttle.Policy
	for i := range w.file.rows {
		if p := &w.file.rows[i]; isMeant(p) {
			// Without its key and cost, as in testedPath.
			rows, policies = append(rows, p), append(policies, throttle.Policy{Name: p.Name, Match: p.Match, Limit: p.Limit})
		}
	}

	transport, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: policies})
	if err != nil {
		return nil
	}

	for _, sampled := range rows {
		var matched []*row
		for _, c := range transport.Explain(sample(sampled.Match)) {
			i := slices.IndexFunc(rows, func(p *row) bool { return p.Name == c.Budget.Policy })
			matched = append(matched, rows[i])
		}

		if len(matched) > 1 {
			all = append(all, matched)
		}
	}

	return longest(all)
}

// longest returns the sets that are no subset of a longer set, each once. It sorts all, the longest set
// first.
func longest(all [][]*row) (kept [][]*row) {
	slices.SortStableFunc(all, func(a, b []*row) int { return len(b) - len(a) })
	for _, rows := range all {
		isSubset := slices.ContainsFunc(kept, func(k []*row) bool {
			return !slices.ContainsFunc(rows, func(p *row) bool { return !slices.Contains(k, p) })
		})
		if !isSubset {
			kept = append(kept, rows)
		}
	}
	return kept
}

// patternWildcard is a wildcard of a pattern.
var patternWildcard = regexp.MustCompile(`\{[^{}]*\}`)

// sample returns a request that a match matches: "[METHOD ][HOST]/[PATH]".
func sample(match string) *http.Request {
	method, pattern, found := strings.Cut(match, " ")
	if !found {
		method, pattern = http.MethodGet, match
	}

	// "{$}" is the end of a path. Every other wildcard stands for any text.
	pattern = strings.ReplaceAll(strings.TrimSpace(pattern), "{$}", "")
	host, path, _ := strings.Cut(patternWildcard.ReplaceAllString(pattern, "any-one"), "/")
	if host == "" {
		host = "any-host.invalid"
	}
	host = strings.Replace(host, "*.", "any-one.", 1)
	return &http.Request{Method: method, URL: &url.URL{Scheme: "https", Host: host, Path: "/" + path}, Header: http.Header{}}
}
