package main

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/fleetthrottle/throttle/servers/proxy"
)

// An upstreamAt is an address for one host alone.
type upstreamAt struct{ address, host string }

// upstreamsOf returns what the flags --upstream say, and what is wrong with them: taken is an
// address that another flag has.
func upstreamsOf(flags []string, taken string, expose bool) (all []upstreamAt, mistakes []error) {
	addresses := []string{taken}
	for _, text := range flags {
		end := max(0, strings.LastIndexByte(text, '='))
		u := upstreamAt{text[:end], strings.TrimPrefix(text[end:], "=")}
		note := func(wrong bool, what string) bool {
			if wrong {
				mistakes = append(mistakes, fmt.Errorf("--upstream %s: %s", text, what))
			}
			return wrong
		}
		if note(u.host == "" || !isAddress(u.address), "use ADDRESS:PORT=HOST, such as 127.0.0.1:7071=api.example.com") {
			continue
		}

		note(!expose && isExposed(u.address), "other machines would reach this address, and could send requests: pass --expose as well")
		note(strings.ContainsAny(u.host, "/@?#* "), "what follows = is a host, without a scheme and without a path")
		note(slices.Contains(addresses, u.address) && !strings.HasSuffix(u.address, ":0"), "another flag has this address")
		all, addresses = append(all, u), append(addresses, u.address)
	}

	return all, mistakes
}

// isAddress reports whether a proxy can be told to listen at an address.
func isAddress(s string) bool {
	if path, ok := strings.CutPrefix(s, unixPrefix); ok {
		return path != ""
	}
	_, _, err := net.SplitHostPort(s)
	return err == nil
}

// missing returns the mistakes of upstreams whose hosts a table does not have.
func missing(all []upstreamAt, table *proxy.Table) (mistakes []error) {
	for _, u := range all {
		if !table.Has(u.host) {
			mistakes = append(mistakes, fmt.Errorf("--upstream %s=%s: no policy of the file names this host", u.address, u.host))
		}
	}
	return mistakes
}

// firsts are texts of which each is told once.
type firsts struct {
	mu   sync.Mutex
	told map[string]bool
}

// mostFirsts bounds the texts: callers and upstreams have their parts in them.
const mostFirsts = 100

// add reports whether a text is to be told.
func (f *firsts) add(text string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.told[text] || len(f.told) >= mostFirsts {
		return false
	}
	if f.told == nil {
		f.told = make(map[string]bool)
	}
	f.told[text] = true
	return true
}
