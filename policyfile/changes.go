package policyfile

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/servers/proxy"
	"github.com/fleetthrottle/throttle/store"
)

// An effect is the part of a policy that decides how much it holds back.
type effect struct {
	limit  throttle.Limit
	shadow bool              // the policy only counts
	fields map[string]string // the texts of comparedFields by name; of a preset's policy only "preset"
	reads  string            // the texts of the policy's key and share, or its preset's whole entry if it has one of them, or ""
}

// comparedFields are the fields, beside the limit, that decide how much a policy holds back.
var comparedFields = []struct {
	name string
	text func(*row) string
}{
	{"match", func(p *row) string { return p.Match }},
	{"key", written("key", "")},
	{"routes", written("routes", "")},
	{"keyed", func(p *row) string { return fmt.Sprint(p.Keyed) }},
	{"cost", written("cost", "1")},
	{"penalty", written("penalty", "")},
	{"acted", written("acted", "")},
	{"quota", written("quota", "")},
	{"settle", written("settle", "")},
	{"adaptive", func(p *row) string { return fmt.Sprint(p.Adaptive) }},
	{"jitter", func(p *row) string { return p.Jitter.String() }},
	{"headroom", func(p *row) string { return fmt.Sprint(p.Headroom) }},
	{"scope", func(p *row) string { return fmt.Sprint(p.Scope) }},
	{"preset", func(*row) string { return "" }},
}

// least has the value with which a field holds back least: a change from that value loosens nothing.
var least = map[string]string{"penalty": "none", "acted": "", "quota": "", "adaptive": "false"}

// written returns a function that returns the text of a row's field, or missing for a missing field.
func written(field, missing string) func(*row) string {
	return func(p *row) string {
		if n := p.fields[field]; n != nil {
			return canonical(n)
		}
		return missing
	}
}

// effects returns the effects of all policies by name, to compare two files.
func (d *document) effects() map[string]effect {
	all := make(map[string]effect)
	for _, t := range d.tables {
		// A preset has no fields in the file, so its whole entry is compared.
		preset := map[string]string{"preset": canonical(t.at)}
		for _, p := range t.rows {
			// What the policy's key and share read is unknown, so the entry stands for them, too.
			reads := ""
			if p.Key != nil || p.Share != nil {
				reads = preset["preset"]
			}
			all[p.Name] = effect{p.Limit, p.Shadow, preset, reads}
		}
	}

	for i := range d.rows {
		p := &d.rows[i]
		fields := make(map[string]string)
		for _, f := range comparedFields {
			fields[f.name] = f.text(p)
		}

		reads := strings.TrimSpace(written("key", "")(p) + " " + written("share", "")(p))
		all[p.Name] = effect{p.Limit, p.Shadow, fields, reads}
	}

	return all
}

// canonical returns the value of a node as a text that is the same for all spellings of the value.
func canonical(n *yaml.Node) string {
	var v any
	if err := n.Decode(&v); err != nil {
		return err.Error() // no value has this text
	}
	return fmt.Sprint(v) // maps are printed in the order of their keys
}

// loosened returns a reason for each way in which a new file may hold back less than the policies of
// an old file. before has the old file's effects, and now has the new file's.
func loosened(old []throttle.Policy, before, now map[string]effect) (reasons []string) {
	for _, p := range old {
		was := before[p.Name]
		switch is, there := now[p.Name]; {
		// A shadow policy held nothing back, so it cannot loosen.
		case was.shadow:
		case !there:
			reasons = append(reasons, fmt.Sprintf("policy %q is gone", p.Name))
		case is.shadow:
			reasons = append(reasons, fmt.Sprintf("policy %q only counts", p.Name))
		default:
			for _, text := range is.loosens(&was) {
				reasons = append(reasons, fmt.Sprintf("policy %q: %s", p.Name, text))
			}
		}
	}

	return reasons
}

// Opens returns a reason for each host of the policies of f that the policies of old neither name nor
// cover by a wildcard, and for each policy with a key or a share, unless old has a policy of the same host
// whose key and share have the same text. A preset has no such text, so its whole entry is compared.
// Without reasons the policies of f name no host that the policies of old do not, and old has each key and
// share of f at the same host. Opens is for files from a place where more people can write than may read
// the traffic. It compares shadow policies, too, because they read requests. It looks at neither Tunnels,
// which Loosens compares, nor Named, which no request matches.
func (f *File) Opens(old *File) (reasons []string) {
	table := proxy.NewTable(old.Policies)
	oldReads := make(map[string]bool) // hosts with the texts of old's keys and shares there
	known := make(map[string]bool)    // hosts as old writes them, and hosts that are reported
	for i := range old.Policies {
		p := &old.Policies[i]
		known[hostOf(p)] = true
		oldReads[hostOf(p)+" "+old.effects[p.Name].reads] = true
	}

	for i := range f.Policies {
		p := &f.Policies[i]
		host := hostOf(p)

		// A pattern without a host names none.
		if host != "" && !known[host] && !reaches(table, host) {
			known[host] = true // report a host once, however many rows it has
			reasons = append(reasons, fmt.Sprintf("policy %q names the host %q", p.Name, host))
		}

		if reads := f.effects[p.Name].reads; reads != "" && !oldReads[host+" "+reads] {
			reasons = append(reasons, fmt.Sprintf("policy %q makes keys of requests, by %s", p.Name, clip(reads)))
		}
	}

	return reasons
}

// mostLabels is more labels than a host has.
const mostLabels = 128

// reaches reports whether a table has all hosts that a pattern's host stands for. A host that begins
// with "*." stands for hosts of any number of labels, so the table must have a host of very many labels,
// too: a table with wildcards for single labels has only some of these hosts.
func reaches(table *proxy.Table, host string) bool {
	below, deep := strings.CutPrefix(host, "*.")
	return table.Has(host) && (!deep || table.Has(strings.Repeat("x.", mostLabels)+below))
}

// hostOf returns the host of a policy's pattern in lower case, without the default port 443, or "" for
// a pattern of all hosts.
func hostOf(p *throttle.Policy) string {
	pattern := p.Match[strings.LastIndexAny(p.Match, " \t")+1:]
	host, _, _ := strings.Cut(pattern, "/")
	return strings.ToLower(strings.TrimSuffix(host, ":443"))
}

// tunnelled returns a reason for each host of tunnels that is not in old.
func tunnelled(old, hosts []string) (reasons []string) {
	for _, host := range hosts {
		if !slices.ContainsFunc(old, func(was string) bool { return strings.EqualFold(was, host) }) {
			reasons = append(reasons, fmt.Sprintf("requests in tunnels to %s are neither counted nor held", host))
		}
	}
	return reasons
}

// loosens returns a reason for each part by which a policy may hold back less than it did before.
func (is *effect) loosens(was *effect) (reasons []string) {
	if !within(is.limit, was.limit) {
		reasons = append(reasons, fmt.Sprintf("its limit goes from %v to %v", was.limit, is.limit))
	}

	for _, f := range comparedFields {
		before, now := was.fields[f.name], is.fields[f.name]
		if before == now {
			continue
		}

		// A change from the value that holds back least can only tighten.
		bottom, hasLeast := least[f.name]
		fromLeast := hasLeast && before == bottom

		// Retry-after closes the row at every 429, and at every 503 with Retry-After. The default leaves the row open at
		// some of these.
		fromDefault := f.name == "penalty" && before == "" && now == "retry-after"
		if !fromLeast && !fromDefault {
			reasons = append(reasons, fmt.Sprintf("its %s has changed", f.name))
		}
	}
	return reasons
}

// windowOf returns the unit and the zone of a calendar's window, as the limit's text has them.
func windowOf(limit throttle.Limit) string {
	_, window, _ := strings.Cut(limit.String(), "/")
	return window
}

// within reports whether limit surely allows at most as much as other. Limits of different forms or
// windows are not compared, so within is false for them.
func within(limit, other throttle.Limit) bool {
	if limit == other {
		return true
	}
	if limit.Kind() != other.Kind() {
		return false
	}

	// A limit of requests in flight has no window and no burst.
	if limit.Kind() == store.KindConcurrency {
		return limit.N() <= other.N()
	}

	// A calendar window has no fixed length, so only its text tells whether two windows are the same.
	if limit.Per() == 0 {
		return windowOf(limit) == windowOf(other) && limit.N() <= other.N()
	}

	return limit.Per() == other.Per() && limit.N() <= other.N() && limit.Capacity() <= other.Capacity()
}
