package policyfile

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/fleetthrottle/throttle"
)

// A keyFunc is a [throttle.Policy.Key].
type keyFunc = func(*http.Request) string

// key is the template of a key: "{header.X-App}", "{shop}/{query.access_token}".
var key = defined("key", as(templates(`a key such as "{header.X-App}"`, schema{"type": "string"}, parseTemplate), template.key))

// A template is a text with values of a request in it.
type template struct {
	parts  []templatePart
	bare   bool // there is nothing but one placeholder
	number int  // of a cost without placeholders
}

// A templatePart is one placeholder.
type templatePart struct {
	value    keyFunc
	wildcard string       // of the pattern, if it names one
	id       string       // of the caller, if it names one; value is nil then
	route    bool         // of the row's routes; value is nil then
	others   templateRest // are tried in turn while the value is empty
	offset   int          // of the placeholder in the template's text
}

// A templateRest is the rest of {a|b}: the alternatives behind the first.
type templateRest []templatePart

// templates returns the shape of a template, which parse reads. YAML takes an unquoted {host} for a
// mapping; the shape reads it as the template that was meant. expected describes a valid template.
func templates(expected string, s schema, parse func(string) (template, error)) shape[template] {
	texts := scalar(expected, s, parse)
	return shape[template]{
		form: expected,
		schema: func() schema {
			unquoted := schema{"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": schema{"type": "null"}}
			return schema{"anyOf": []any{s, unquoted}}
		},
		read: func(r *reader, n *yaml.Node) (t template, ok bool) {
			// A mapping of one key without a value is a template without quotes.
			n = follow(n)
			isPair := n.Kind == yaml.MappingNode && len(n.Content) == 2
			isUnquoted := isPair && follow(n.Content[0]).Kind == yaml.ScalarNode && isEmpty(n.Content[1])
			if isUnquoted {
				t, ok = parsed(r, n, "{"+follow(n.Content[0]).Value+"}", parse)
			} else {
				t, ok = texts.read(r, n)
			}

			for i := range t.parts {
				ok = r.bind(&t.parts[i], n) && ok
			}
			return t, ok
		},
	}
}

// bind binds a placeholder of node n to the row around it. It notes a wildcard, which checkWildcards
// looks for in the match, and sets the value of an id or of {route}. It does the same for the
// placeholder's alternatives, and joins their values into p.value. It returns false after a mistake.
func (r *reader) bind(p *templatePart, n *yaml.Node) (ok bool) {
	ok = true
	if p.wildcard != "" {
		r.wildcards = append(r.wildcards, wildcard{p.wildcard, n, p.offset})
	}

	if p.id != "" {
		p.value = r.ids[p.id]
		if p.value == nil {
			r.failIn(n, p.offset, "{id.%s} is unknown: ids are for the presets that the library has as files", clip(p.id))
			return false
		}
	}

	if p.route {
		if r.routes == nil {
			r.failIn(n, p.offset, "{route} is for rows of policies, which have routes: a preset has rows of its own")
			return false
		}

		// The row's field routes may not have been read yet, so routes.of is called only for requests.
		r.routes.named = append(r.routes.named, placeInText{n, p.offset})
		p.value = r.routes.of
	}

	for i := range p.others {
		other := &p.others[i]
		ok = r.bind(other, n) && ok
		p.value = firstNonEmpty(p.value, other.value)
	}

	p.others = nil // their values are in p.value now
	return ok
}

// firstNonEmpty returns the key with a's value for a request, or b's value if a's is "".
func firstNonEmpty(a, b keyFunc) keyFunc {
	return func(r *http.Request) string { return cmp.Or(a(r), b(r)) }
}

// key returns the key of a template. A single placeholder is the function that a table in Go would
// use for the same value, so that the file and the table share budgets. Several
// placeholders are joined by [throttle.Join]. The texts between placeholders are for readers only.
func (t template) key() keyFunc {
	if len(t.parts) == 1 {
		return t.parts[0].value
	}
	var all []keyFunc
	for _, p := range t.parts {
		all = append(all, p.value)
	}
	return throttle.Join(all...)
}

// placeholder is what stands in braces.
var placeholder = regexp.MustCompile(`\{([^{}]*)\}`)

// parseTemplate reads a text with placeholders in braces, such as "{header.X-App}/{shop}". A text without a
// placeholder is an error. An error about a place has the words " at offset N": see placeOf.
func parseTemplate(s string) (t template, err error) {
	from := 0 // the end of the placeholder before
	for _, m := range placeholder.FindAllStringSubmatchIndex(s, -1) {
		// A brace between placeholders has no second half.
		if i := strings.IndexAny(s[from:m[0]], "{}"); i >= 0 {
			return t, halfBrace(s, from+i)
		}

		p, err := parsePlaceholder(s[m[2]:m[3]])
		if err != nil {
			return t, fmt.Errorf("%w at offset %d", err, m[0])
		}

		p.offset = m[0]
		t.parts, from = append(t.parts, p), m[1]
	}

	t.bare = len(t.parts) == 1 && strings.HasPrefix(s, "{") && strings.HasSuffix(s, "}")

	// Text behind the last placeholder may have half of a brace.
	switch i := strings.IndexAny(s[from:], "{}"); {
	case i >= 0:
		return t, halfBrace(s, from+i)
	case len(t.parts) == 0:
		return t, fmt.Errorf("%q has nothing in braces, so all requests would have the same key: leave the field out, or write \"{header.X-App}\" or the like", clip(s))
	}

	return t, nil
}

func halfBrace(s string, offset int) error {
	return fmt.Errorf("%q has a brace without its other half at offset %d", clip(s), offset)
}

// pathName is the name of a wildcard of a pattern.
var pathName = regexp.MustCompile(`^[\pL_][\pL\pN_]*$`)

// parsePlaceholder reads what stands in braces: one value, or several with "|" between them. The others
// are the alternatives of the first.
func parsePlaceholder(s string) (p templatePart, err error) {
	first, others, several := strings.Cut(s, "|")
	p, err = parseValue(first)
	if err != nil || !several {
		return p, err
	}

	for other := range strings.SplitSeq(others, "|") {
		next, err := parseValue(other)
		if err != nil {
			return p, err
		}
		p.others = append(p.others, next)
	}

	return p, nil
}

// parseValue reads the name of one value of a request, such as header.X-App.
func parseValue(s string) (templatePart, error) {
	switch group, name, dotted := strings.Cut(s, "."); {
	case dotted && group == "header":
		if err := checkHeaderName(name); err != nil {
			return templatePart{}, fmt.Errorf("{%s}: %w", clip(s), err)
		}
		if strings.EqualFold(name, "host") {
			return templatePart{}, fmt.Errorf("{%s} is always empty, because the host of a request is no header: write {host}", clip(s))
		}

		return templatePart{value: throttle.Header(name)}, nil

	case dotted && group == "query" && name != "":
		return templatePart{value: throttle.Query(name)}, nil
	case dotted && group == "body" && name != "":
		return templatePart{value: throttle.BodyMember(name)}, nil
	case dotted && group == "id" && name != "":
		return templatePart{id: name}, nil
	case s == "route":
		return templatePart{route: true}, nil
	case s == "host":
		return templatePart{value: throttle.Host}, nil
	case s == "path":
		return templatePart{value: throttle.RawPath}, nil
	case s == "method":
		return templatePart{value: throttle.Method}, nil
	case pathName.MatchString(s):
		return templatePart{value: throttle.PathValue(s), wildcard: s}, nil
	}

	group, _, _ := strings.Cut(strings.TrimSpace(s), ".")
	return templatePart{}, fmt.Errorf("{%s} is unknown%s; there are {header.NAME}, {query.NAME}, {body.NAME}, {host}, {path}, {route}, {method}, and {NAME} for a wildcard of match",
		clip(s), didYouMean(group, []string{"header", "query", "body", "host", "path", "route", "method"}))
}

// A routes has the routes of one row, which the row's key and share name as {route}. The field routes
// may stand behind both, so key is set when the whole row has been read.
type routes struct {
	key   keyFunc // [throttle.Route] of the patterns, or nil without patterns
	named []placeInText
}

// A placeInText is a place in the text of a node.
type placeInText struct {
	at     *yaml.Node
	offset int
}

// of returns the route of a request.
func (all *routes) of(r *http.Request) string { return all.key(r) }

// A routePattern is a pattern and where it stands.
type routePattern struct {
	text string
	at   *yaml.Node
}

// mostRoutes is how many routes a row has at most.
const mostRoutes = 200

// routeList is the patterns of a row's routes.
var routeList = shape[[]routePattern]{form: someRoutes.form, schema: someRoutes.schema, read: func(r *reader, n *yaml.Node) ([]routePattern, bool) {
	all, ok := someRoutes.read(r, n)
	if len(all) > mostRoutes {
		r.fail(follow(n), "these are %d routes; %d are the most", len(all), mostRoutes)
		return nil, false
	}
	return all, ok
}}

var someRoutes = some(shape[routePattern]{form: routeText.form, schema: routeText.schema, read: func(r *reader, n *yaml.Node) (routePattern, bool) {
	text, ok := routeText.read(r, n)
	return routePattern{text, follow(n)}, ok
}})

var routeText = scalar(`a pattern such as "/users/{id}"`, anyText, func(s string) (string, error) {
	if s == "" {
		return s, errors.New("the pattern is empty: write one such as \"/users/{id}\"")
	}
	return s, checkPrintable(s)
})

// setRoutes makes the key of the row's routes. It returns false, and notes the mistakes, for a wrong
// pattern, for routes without a {route}, and for a {route} without routes.
func (r *reader) setRoutes(p *row) (ok bool) {
	field := p.fields["routes"]
	if field == nil {
		for _, at := range r.routes.named {
			r.failIn(at.at, at.offset, `{route} needs a field "routes" beside it, such as routes: ["/users/{id}", "/users/{id}/posts"]`)
		}
		return len(r.routes.named) == 0
	}

	ok = r.checkRoutes(p.routes)

	// A key or a share with a mistake may have meant {route}.
	if len(r.routes.named) == 0 && p.keysAreRead() {
		r.fail(follow(field), `routes has no effect: write "{route}" in the key, or in the share`)
		ok = false
	}

	r.routes.key = routeKey(p.routes)
	return ok
}

// keysAreRead reports whether the row's key and share, as far as the row has them, were read without a mistake.
func (p *row) keysAreRead() bool {
	return (p.fields["key"] == nil || p.Key != nil) && (p.fields["share"] == nil || p.Share != nil)
}

// routeKey returns the [throttle.Route] of patterns.
func routeKey(all []routePattern) keyFunc {
	var patterns []string
	for _, p := range all {
		patterns = append(patterns, p.text)
	}
	return throttle.Route(patterns...)
}

// checkRoutes returns false, and notes each mistake at its place, for a pattern with an unknown method,
// a pattern that throttle refuses, and a pattern that never counts behind earlier patterns.
func (r *reader) checkRoutes(all []routePattern) (ok bool) {
	ok = true

	// Throttle accepts unknown methods, so look for misspelt methods here.
	for _, p := range all {
		if method, _, found := strings.Cut(p.text, " "); found {
			if err := checkMethod(method); err != nil {
				r.fail(p.at, "%v", err)
				ok = false
			}
		}
	}

	if len(all) == 0 {
		return ok // the mistake of an empty list is noted already
	}

	// Let throttle check the patterns in a policy made for it, so that both agree.
	probe := throttle.Policy{Name: rowName(0), Match: "/", Limit: throttle.Unlimited(), Key: routeKey(all)}
	next := 0 // the first pattern that the mistake may be about
	for _, e := range configErrors([]row{{Policy: probe}})[rowName(0)] {
		// The mistakes have the order of the patterns, and each text begins with its pattern.
		mistake := strings.TrimPrefix(e.Err.Error(), "Route: ")
		for next < len(all)-1 && !isAboutRoute(mistake, all[:next], all[next].text) {
			next++
		}

		offset, text := placeOf(errors.New(strings.TrimPrefix(mistake, fmt.Sprintf("pattern %q: ", all[next].text))))
		r.failIn(all[next].at, offset, "%s", text)
		next, ok = min(next+1, len(all)-1), false
	}

	return ok
}

// isAboutRoute reports whether throttle's text of a mistake is about a pattern: the pattern is wrong, or
// never counts because of one of the earlier patterns.
func isAboutRoute(mistake string, earlier []routePattern, pattern string) bool {
	begin := fmt.Sprintf("pattern %q", pattern)
	return strings.HasPrefix(mistake, begin+": ") || slices.ContainsFunc(earlier, func(o routePattern) bool {
		return strings.HasPrefix(mistake, begin+fmt.Sprintf(" never counts, because %q", o.text))
	})
}
