package policyfile

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/fleetthrottle/throttle"
)

// A keyFunc is a [throttle.Policy.Key].
type keyFunc = func(*http.Request) string

// key is the template of a key: "{header.X-App}", "{shop}/{query.access_token}".
var key = scalar(`a key such as "{header.X-App}"`, schema{"type": "string"}, parseKey)

// placeholder is what stands in braces.
var placeholder = regexp.MustCompile(`\{([^{}]*)\}`)

// parseKey reads a template. A template that is one placeholder gives the key that
// Go's functions give, so that a file and a table in Go share budgets; several are joined as by
// [throttle.Join], and texts between them only separate them for readers.
func parseKey(s string) (keyFunc, error) {
	var parts []keyFunc
	from := 0
	for _, m := range placeholder.FindAllStringSubmatchIndex(s, -1) {
		if strings.ContainsAny(s[from:m[0]], "{}") {
			return nil, fmt.Errorf("%q has a brace without its other half at offset %d", clip(s), from+strings.IndexAny(s[from:m[0]], "{}"))
		}
		f, err := parsePlaceholder(s[m[2]:m[3]])
		if err != nil {
			return nil, fmt.Errorf("%w at offset %d", err, m[0])
		}
		parts, from = append(parts, f), m[1]
	}
	switch i := strings.IndexAny(s[from:], "{}"); {
	case i >= 0:
		return nil, fmt.Errorf("%q has a brace without its other half at offset %d", clip(s), from+i)
	case len(parts) == 0:
		return nil, fmt.Errorf("%q has nothing in braces, so all requests would have the same key: leave the field out, or write \"{header.X-App}\" or the like", clip(s))
	case len(parts) == 1:
		return parts[0], nil
	}
	return throttle.Join(parts...), nil
}

// pathName is the name of a wildcard of a pattern.
var pathName = regexp.MustCompile(`^[\pL_][\pL\pN_]*$`)

// parsePlaceholder reads what stands in braces.
func parsePlaceholder(s string) (keyFunc, error) {
	switch group, name, dotted := strings.Cut(s, "."); {
	case dotted && group == "header" && name != "":
		return throttle.Header(name), nil
	case dotted && group == "query" && name != "":
		return throttle.Query(name), nil
	case s == "host":
		return throttle.Host, nil
	case s == "path":
		return throttle.Path, nil
	case s == "method":
		return throttle.Method, nil
	case pathName.MatchString(s):
		return throttle.PathValue(s), nil
	}
	return nil, fmt.Errorf("{%s} is unknown: there are {header.NAME}, {query.NAME}, {host}, {path}, {method}, and {NAME} for a wildcard of match", clip(s))
}
