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
	_ = w.reader.errs.sorted() // which sorts them in place
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

// adviceOfRefusals says how a row says whether a 429 is about it.
const adviceOfRefusals = `"penalty: retry-after" in each row that a 429 is about, and "penalty: none" in the others`

// readsByDefault reports whether nothing in the row says which answers close the budget.
func (p *row) readsByDefault() bool {
	return p.penalty == nil && p.acted == nil && !p.Shadow && !p.named
}

// holdDifferently reports whether the rows hold different requests, so that it matters which of them
// closes.
func holdDifferently(rows []*row) bool {
	return slices.ContainsFunc(rows, func(p *row) bool {
		return p.Match != rows[0].Match || p.Scope != rows[0].Scope || written("key", "")(p) != written("key", "")(rows[0])
	})
}

// names returns the names of two rows or more, as a sentence has them: five at most, and how many more there are.
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

// warnOfPaths warns of rows that have a budget, or a share, for each id.
func (w *warner) warnOfPaths() {
	for i := range w.file.rows {
		p := &w.file.rows[i]
		for _, is := range []struct{ field, kind string }{{"key", "budget"}, {"share", "share"}} {
			if !rawPath.MatchString(written(is.field, "")(p)) {
				continue
			}

			path := ""
			if at := p.Match[strings.LastIndexAny(p.Match, " \t")+1:]; pathWildcard.MatchString(at) {
				path = at[strings.IndexByte(at, '/'):]
			} else {
				path = w.idUnder(p)
			}

			if path != "" {
				w.warn(p, "policy %q: %s has a %s for each path such as %s: write {route}, with routes: [%q], for one of all", clip(p.Name), is.field, is.kind, clip(path), route(path))
			}
		}
	}
}

// idUnder returns the path with an id of the first test whose request a row matches, or "".
func (w *warner) idUnder(p *row) string {
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

// route returns the route of a path: the path with a wildcard in the place of each id.
func route(path string) string {
	n := 0
	for idInPath.MatchString(path) {
		n++
		path = idInPath.ReplaceAllString(path, fmt.Sprintf("/{id%d}$2", n))
	}
	return strings.ReplaceAll(path, "{id1}", "{id}")
}

// sharedRequests returns the file's own rows that match one request, for a request of the match of each
// row. It leaves out rows for which isMeant is false, single rows, and subsets of a longer
// result.
func (w *warner) sharedRequests(isMeant func(*row) bool) (all [][]*row) {
	var rows []*row
	var policies []throttle.Policy
	for i := range w.file.rows {
		if p := &w.file.rows[i]; isMeant(p) {
			rows, policies = append(rows, p), append(policies, throttle.Policy{Name: p.Name, Match: p.Match, Limit: p.Limit})
		}
	}

	transport, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: policies})
	if err != nil {
		return nil
	}

	for _, p := range rows {
		var matched []*row
		for _, c := range transport.Explain(sample(p.Match)) {
			i := slices.IndexFunc(rows, func(p *row) bool { return p.Name == c.Budget.Policy })
			matched = append(matched, rows[i])
		}

		if len(matched) > 1 {
			all = append(all, matched)
		}
	}

	return longest(all)
}

// longest returns the sets that are no subset of a longer set, each once.
func longest(all [][]*row) (kept [][]*row) {
	slices.SortStableFunc(all, func(a, b []*row) int { return len(b) - len(a) })
	for _, rows := range all {
		covered := slices.ContainsFunc(kept, func(k []*row) bool {
			return !slices.ContainsFunc(rows, func(p *row) bool { return !slices.Contains(k, p) })
		})
		if !covered {
			kept = append(kept, rows)
		}
	}
	return kept
}

// patternWildcard is a wildcard of a pattern.
var patternWildcard = regexp.MustCompile(`\{[^{}]*\}`)

// sample returns a request that a pattern matches.
func sample(match string) *http.Request {
	method, at, found := strings.Cut(match, " ")
	if !found {
		method, at = http.MethodGet, match
	}
	at = patternWildcard.ReplaceAllString(strings.ReplaceAll(strings.TrimSpace(at), "{$}", ""), "any-one")
	host, path, _ := strings.Cut(at, "/")
	if host == "" {
		host = "any-host.invalid"
	}
	host = strings.Replace(host, "*.", "any-one.", 1)
	return &http.Request{Method: method, URL: &url.URL{Scheme: "https", Host: host, Path: "/" + path}, Header: http.Header{}}
}
