package policyfile

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"
)

// text is any text. A number or a yes is one, too, as people write them without quotes.
var text = defined("text", scalar("a text", schema{"type": []any{"string", "number", "boolean"}}, func(s string) (string, error) { return s, nil }))

// label is a text that is not empty: a name, an id, a field. An empty value would silently be a
// different value.
var label = defined("label", scalar("a text", anyText, parseLabel))

// parseLabel reads a text for people: one line that is not empty, without control characters, and without
// spaces around it.
func parseLabel(s string) (string, error) {
	switch {
	// A text of line breaks alone is an empty text.
	case strings.Trim(s, " \t\n") != "" && strings.Contains(s, "\n"):
		return "", fmt.Errorf("%q has a line break in it: write it in one line", clip(s))
	case strings.TrimSpace(s) == "":
		return "", errors.New("the text is empty: write one, or leave the field out")
	case strings.TrimSpace(s) != s:
		return "", fmt.Errorf("%q begins or ends with a space: take it out", clip(s))
	case strings.ContainsFunc(s, unicode.IsControl):
		return "", fmt.Errorf("%q has a control character in it: take it out", clip(s))
	}
	return s, nil
}

// header is the name of a header.
var header = defined("header", scalar("the name of a header", anyText, func(s string) (string, error) { return s, checkHeaderName(s) }))

// headerName is a field name of HTTP.
var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// checkHeaderName returns an error unless s can be the name of a field in HTTP.
func checkHeaderName(s string) error {
	switch {
	case headerName.MatchString(s):
		return nil
	case s == "":
		return errors.New("the name of a header is missing")
	}
	return fmt.Errorf("%q is no name of a header: it has letters, digits and hyphens only, as in X-App", clip(s))
}

// headerTable is a table from names of headers to texts. No two of them are the same header.
var headerTable = shape[map[string]string]{form: headerTexts.form, schema: headerTexts.schema, read: func(r *reader, n *yaml.Node) (map[string]string, bool) {
	all, ok := headerTexts.read(r, n)
	if all == nil {
		return nil, false
	}

	// Names in different spellings are different keys of the mapping, but one header.
	members, _, _ := r.members(n, "a mapping")
	first := make(map[string]keyed)
	for _, m := range members {
		name := http.CanonicalHeaderKey(m.name)
		if same, there := first[name]; there {
			r.fail(m.key, "%q is the same header as %q in line %d", clip(m.name), clip(same.name), same.key.Line)
			ok = false
			continue
		}
		first[name] = m
	}

	return all, ok
}}

// headerSet is a headerTable as the header of a message.
var headerSet = as(headerTable, func(all map[string]string) http.Header {
	h := make(http.Header)
	for name, value := range all {
		h.Set(name, value)
	}
	return h
})

var headerTexts = table(text, checkHeaderName)

// methods are the methods of HTTP.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
	http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace,
}

// checkMethod refuses a method that has small letters, or that looks like a slip of a known method:
// methods are compared letter by letter. It accepts every other unknown method.
func checkMethod(s string) error {
	if slices.Contains(methods, s) {
		return nil
	}
	if slices.Contains(methods, strings.ToUpper(s)) {
		return fmt.Errorf("the method %q is written in capitals: %s", clip(s), strings.ToUpper(s))
	}

	hint := didYouMean(s, methods)
	switch {
	case hint != "":
		return fmt.Errorf("the method %q is unknown%s", clip(s), hint)
	case strings.ToUpper(s) != s:
		return fmt.Errorf("%q is no method: methods are written in capitals, and a space in a path is written %%20", clip(s))
	}

	return nil
}

// status is a status code.
var status = defined("status", between(100, 999))

// method is a method of HTTP.
var method = defined("method", scalar("a method such as POST", anyText, func(s string) (string, error) { return s, checkMethod(strings.ToUpper(s)) }))

// hostName is a host that a when compares: without scheme, port and path.
var hostName = scalar(`a host such as "api.example.com"`, anyText, func(s string) (string, error) {
	if _, err := parseLabel(s); err != nil {
		return "", err
	}
	if err := checkStars(s); err != nil {
		return "", err
	}
	if strings.ContainsAny(s, ":/ ?#{}") {
		return "", fmt.Errorf("%q is not a host without scheme, port and path, such as api.example.com or *.example.com", clip(s))
	}
	return s, nil
})

// urlPath is a path that a when compares.
var urlPath = scalar(`a path such as "/v1/*"`, anyText, func(s string) (string, error) {
	switch {
	case !strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "*"):
		return "", fmt.Errorf("%q is not a path: a path begins with a slash, as in /v1/*", clip(s))
	case strings.ContainsAny(s, "{}?#"):
		return "", fmt.Errorf("%q is not a path such as /v1/*: it is compared as it is, with a \"*\" at either end for anything", clip(s))
	}
	return s, checkStars(s)
})

// checkStars refuses a "*" inside a text. Only at either end a "*" stands for any text.
func checkStars(s string) error {
	if inside := strings.TrimSuffix(strings.TrimPrefix(s, "*"), "*"); strings.Contains(inside, "*") {
		return fmt.Errorf("%q has a \"*\" inside: one stands for anything only at the beginning or at the end", clip(s))
	}
	return nil
}

// media is a Content-Type without parameters.
var media = scalar(`a media type such as "application/json"`, anyText, func(s string) (string, error) {
	switch {
	case strings.Contains(s, ";"):
		return "", fmt.Errorf("%q has parameters: leave out what begins with the semicolon", clip(s))
	case !strings.Contains(s, "/") && !strings.Contains(s, "*") || strings.ContainsAny(s, " \t"):
		return "", fmt.Errorf("%q is not a media type such as application/json or text/*", clip(s))
	}
	if s == "*/*" {
		return s, nil
	}
	return s, checkStars(s)
})
