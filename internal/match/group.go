package match

import (
	"net/netip"
	"strings"
)

// everyGroup is the group of patterns that can match requests to any host.
const everyGroup = "*"

// Groups returns the group of each pattern. Two patterns that can match the same request
// share a group. It is the pattern's own Group, unless the group of some pattern reaches
// wider: "*.com/" draws in all of .com, "*.com.cn/" all of .com.cn, and a pattern that can
// match any last label draws in everything.
//
// A nil pattern is of work that can need any policy, so it draws in everything.
func Groups(ps []*Pattern) []string {
	// A pattern of a whole zone can match the same request as every pattern in the zone.
	wide := make(map[string]bool)
	for _, p := range ps {
		if g, whole := p.Group(); whole {
			wide[g] = true
		}
	}

	gs := make([]string, len(ps))
	for i, p := range ps {
		gs[i], _ = p.Group()

		// The widest zone comes first, and draws in the narrower ones as well.
		for _, zone := range p.zones() {
			if wide[zone] {
				gs[i] = zone
				break
			}
		}
	}

	return gs
}

// Group returns the part of the pattern's host that somebody has registered:
// the label below its registry and the registry, as in "dingtalk.com" and
// "example.com.cn", or the whole of an IP address. If the pattern can match many
// such hosts it is all of the zone that they lie in, and whole is true.
func (p *Pattern) Group() (g string, whole bool) {
	zones := p.zones()
	g = zones[len(zones)-1]

	n := len(zones) - 1 // labels of the registry
	switch {
	// The pattern can match any last label.
	case n == 0:
		return g, true

	// The pattern names no label below the registry: it is the registry itself, or "*." in front of it.
	case len(p.labels) <= n:
		return g, p.deep
	case p.labels[n].wild:
		return g, true
	}

	// The labels of an IPv4 address are no registry and no names below it.
	if len(p.labels) == 4 && !p.wideHost() {
		host := p.zone(4)
		if _, err := netip.ParseAddr(host); err == nil {
			return host, false
		}
	}

	return p.zone(n + 1), false
}

// zones returns the zones around the pattern's hosts, the widest first: all, the
// last label and, if that is a registry, the last two.
func (p *Pattern) zones() []string {
	zones := []string{everyGroup}
	if p == nil || len(p.labels) == 0 || p.labels[0].wild {
		return zones
	}
	zones = append(zones, p.labels[0].text)
	if len(p.labels) > 1 && !p.labels[1].wild && registry(p.labels[1].text, p.labels[0].text) {
		zones = append(zones, p.zone(2))
	}
	return zones
}

// zone returns the last n labels, of which none is a wildcard.
func (p *Pattern) zone(n int) string {
	texts := make([]string, n)
	for i, l := range p.labels[:n] {
		texts[n-1-i] = l.text
	}
	return strings.Join(texts, ".")
}

// registry reports whether names are registered below a second label, as below
// com.cn and co.uk: a word for a kind of owner, in the zone of a country. The
// whole list of such zones is long and changes. A zone that is missing here makes
// its hosts share a group, which costs speed and breaks nothing.
func registry(second, country string) bool {
	if len(country) != 2 {
		return false
	}
	switch second {
	case "com", "net", "org", "edu", "gov", "mil", "co", "or", "ne", "ac", "go", "ad", "gob", "gouv":
		return true
	}
	return false
}
