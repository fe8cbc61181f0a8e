package policyfile

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
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
	number int  // what a cost without placeholders says
}

// A templatePart is one placeholder.
type templatePart struct {
	value    keyFunc
	wildcard string       // of the pattern, if it names one
	id       string       // of the caller, if it names one; value is nil then
	others   templateRest // what it says where value says nothing
	offset   int
}

// A templateRest is what a placeholder says where those before it say nothing: the rest of
// {a|b}.
type templateRest []templatePart

// templates returns the shape of what is written as a template. YAML takes {host} without
// quotes for a mapping; it is read as what it was meant to be.
func templates(expected string, s schema, parse func(string) (template, error)) shape[template] {
	texts := scalar(expected, s, parse)
	return shape[template]{
		schema: func() schema {
			unquoted := schema{"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": schema{"type": "null"}}
			return schema{"anyOf": []any{s, unquoted}}
		},
		read: func(r *reader, n *yaml.Node) (t template, ok bool) {
			if n = follow(n); n.Kind == yaml.MappingNode && len(n.Content) == 2 && follow(n.Content[0]).Kind == yaml.ScalarNode && isEmpty(n.Content[1]) {
				t, ok = parsed(r, n, "{"+follow(n.Content[0]).Value+"}", parse)
			} else {
				t, ok = texts.read(r, n)
			}
			for i := range t.parts {
				ok = r.place(&t.parts[i], n) && ok
			}
			return t, ok
		},
	}
}

// place notes the wildcards that a placeholder expects in a pattern, and gives it the value of
// the id that it names.
func (r *reader) place(p *templatePart, n *yaml.Node) (ok bool) {
	ok = true
	if p.wildcard != "" {
		r.wildcards = append(r.wildcards, wildcard{p.wildcard, n, p.offset})
	}
	if p.id != "" {
		if p.value = r.ids[p.id]; p.value == nil {
			r.failIn(n, p.offset, "{id.%s} is unknown: ids are for the presets that the library has as files", clip(p.id))
			return false
		}
	}

	for i := range p.others {
		other := &p.others[i]
		ok = r.place(other, n) && ok
		p.value = firstSaid(p.value, other.value)
	}
	p.others = nil
	return ok
}

// firstSaid returns the key that is what a says of a request, and what b says where that is "".
func firstSaid(a, b keyFunc) keyFunc {
	return func(r *http.Request) string { return cmp.Or(a(r), b(r)) }
}

// key returns the key that a template says. That of one placeholder is the key that Go's
// functions give, so that a file and a table in Go share budgets; several are joined as by
// [throttle.Join], and texts between them only separate them for readers.
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

func parseTemplate(s string) (t template, err error) {
	from := 0
	for _, m := range placeholder.FindAllStringSubmatchIndex(s, -1) {
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

// parsePlaceholder reads what stands in braces: one value, or several of which the first that
// is not "" counts.
func parsePlaceholder(s string) (p templatePart, err error) {
	first, others, several := strings.Cut(s, "|")
	if p, err = parseValue(first); err != nil || !several {
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

// parseValue reads one value of a request.
func parseValue(s string) (templatePart, error) {
	switch group, name, dotted := strings.Cut(s, "."); {
	case dotted && group == "header":
		if err := checkHeaderName(name); err != nil {
			return templatePart{}, fmt.Errorf("{%s}: %w", clip(s), err)
		}
		return templatePart{value: throttle.Header(name)}, nil
	case dotted && group == "query" && name != "":
		return templatePart{value: throttle.Query(name)}, nil
	case dotted && group == "body" && name != "":
		return templatePart{value: throttle.BodyMember(name)}, nil
	case dotted && group == "id" && name != "":
		return templatePart{id: name}, nil
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
	return templatePart{}, fmt.Errorf("{%s} is unknown%s; there are {header.NAME}, {query.NAME}, {body.NAME}, {host}, {path}, {method}, and {NAME} for a wildcard of match",
		clip(s), didYouMean(group, []string{"header", "query", "body", "host", "path", "method"}))
}
