package main

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
)

// Exit codes of throttle run, with the numbers that env and timeout use. All further codes come from the program.
const (
	exitRun       = 125 // throttle run failed
	exitNoProgram = 126 // the program cannot be executed
	exitNotFound  = 127 // there is no program of this name
)

// urlVariable is the environment variable with the proxy's address for programs of throttle run.
const urlVariable = "THROTTLE_URL"

// A baseURL is a variable, and the host and the path of its usual value.
type baseURL struct{ name, host, path string }

// baseURLs are the variables by which SDKs and tools take the base URL of an API, and the base URLs that they have by
// default.
var baseURLs = []baseURL{
	{"ANTHROPIC_BASE_URL", "api.anthropic.com", ""},
	{"DASHSCOPE_HTTP_BASE_URL", "dashscope.aliyuncs.com", "/api/v1"},
	{"GOOGLE_GEMINI_BASE_URL", "generativelanguage.googleapis.com", ""},
	{"OPENAI_API_BASE", "api.openai.com", "/v1"},
	{"OPENAI_BASE_URL", "api.openai.com", "/v1"},
}

// isUsual reports whether a host is one of baseURLs. The presets name all of them.
func isUsual(host string) bool {
	return slices.ContainsFunc(baseURLs, func(b baseURL) bool { return b.host == host })
}

// baseSuffixes end the names of variables with base URLs.
var baseSuffixes = []string{"_API_BASE", "_API_URL", "_BASE_URL", "_ENDPOINT"}

// proxyVariables are the variables by which clients are told of a proxy of the network for http, the scheme of the URLs
// that lead through this proxy.
var proxyVariables = []string{"ALL_PROXY", "HTTP_PROXY", "all_proxy", "http_proxy"}

// An environment leads a program through the proxy at a URL.
type environment struct {
	url   string                 // such as "http://127.0.0.1:39211"
	named func(host string) bool // reports whether a policy names a host
	tell  func(line string)      // is told of base URLs that lead round the proxy
}

// of returns variables, each "NAME=value", with the changes and additions that lead the program through the proxy.
func (e *environment) of(variables []string) []string {
	values := make(map[string]string)
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		values[name] = value
	}

	set := func(name, value string) {
		variables = slices.DeleteFunc(variables, func(v string) bool { return strings.HasPrefix(v, name+"=") })
		variables = append(variables, name+"="+value)
	}

	// Base URLs that the program has already lead through the proxy, also those through an outer "throttle run".
	outer := values[urlVariable]
	for _, name := range sortedNames(values) {
		if value, ok := e.through(name, values[name], outer); ok {
			set(name, value)
		}
	}

	// Set the base URLs of well-known clients, for the hosts that a policy names.
	for _, b := range baseURLs {
		if values[b.name] == "" && e.named(b.host) {
			set(b.name, e.url+"/"+b.host+b.path)
		}
	}

	// A proxy of the network cannot reach this machine's loopback.
	if slices.ContainsFunc(proxyVariables, func(name string) bool { return values[name] != "" }) {
		upper, lower := values["NO_PROXY"], values["no_proxy"]

		// Some clients read only one of the two variables. So a variable that is new gets the hosts of the other one.
		set("NO_PROXY", strings.TrimPrefix(cmp.Or(upper, lower)+",127.0.0.1", ","))
		set("no_proxy", strings.TrimPrefix(cmp.Or(lower, upper)+",127.0.0.1", ","))
	}

	set(urlVariable, e.url)
	return variables
}

// through returns the value with which a variable leads through the proxy. ok is false if the variable stays as it is: it has no
// base URL of https, or its URL has a user, a mistake, or a host that no policy names. Of such a URL through tells the user,
// unless its calls are held by the outer throttle run. outer is the URL of that throttle run's proxy, or "".
func (e *environment) through(name, value, outer string) (changed string, ok bool) {
	if !slices.ContainsFunc(baseSuffixes, func(end string) bool { return strings.HasSuffix(name, end) }) {
		return "", false
	}

	// Undo the change of the outer throttle run.
	rest, leadsThere := strings.CutPrefix(value, outer+"/")
	isHeld := leadsThere && outer != ""
	if isHeld {
		value = "https://" + rest
	}

	// Only an https URL leads to an API that the proxy reaches.
	if scheme, _, _ := strings.Cut(strings.TrimSpace(value), "://"); !strings.EqualFold(scheme, "https") {
		return "", false
	}

	u, err := url.Parse(value)
	if err != nil || u.Host == "" || u.User != nil {
		e.tell(name + " has a URL that throttle run leaves as it is, because it has a user or a mistake: its calls are not held")
		return "", false
	}

	if !e.named(u.Host) {
		// The outer throttle run goes on holding the calls.
		if isHeld {
			return "", false
		}
		e.tell(name + " leads to " + u.Host + ", which no limit names: its calls are not held. --limit " + u.Host + "/=20/s would hold them")
		return "", false
	}

	// What follows the host stays as it is written.
	hostAndRest := value[len("https://"):]
	if end := strings.IndexAny(hostAndRest, "/?#"); end >= 0 {
		return e.url + "/" + u.Host + hostAndRest[end:], true
	}
	return e.url + "/" + u.Host, true
}

// sortedNames returns the names of variables in order.
func sortedNames(values map[string]string) (names []string) {
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
