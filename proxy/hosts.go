package proxy

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/match"
)

// Hosts returns a [Config.Hosts] that knows the hosts that the patterns of policies name. A
// pattern without a port is for port 443 alone. A pattern without a host, or one whose host is nothing
// but wildcards, names none.
func Hosts(policies []throttle.Policy) func(host string) bool {
	var all []*match.Pattern
	for i := range policies {
		if p, err := match.Parse(hostPattern(policies[i].Match)); err == nil {
			all = append(all, p)
		}
	}
	index := match.NewIndex(all)
	return func(host string) bool {
		r := &http.Request{URL: &url.URL{Scheme: "https", Host: host, Path: "/"}}
		return len(index.Match(nil, r)) > 0
	}
}

// noHost is a pattern that cannot be parsed.
const noHost = "//"

// hostPattern returns the pattern of all that is at the host of a pattern.
func hostPattern(pattern string) string {
	if i := strings.LastIndexAny(pattern, " \t"); i >= 0 {
		pattern = pattern[i+1:]
	}
	host, _, _ := strings.Cut(pattern, "/")
	name, port := match.SplitPort(host)
	if !namesLabel(name) {
		return noHost
	}
	if port == "" {
		port = ":443"
	}
	return name + port + "/"
}

// namesLabel reports whether a label of a host is no wildcard.
func namesLabel(host string) bool {
	for label := range strings.SplitSeq(host, ".") {
		if label != "" && label != "*" && label[0] != '{' {
			return true
		}
	}
	return false
}
