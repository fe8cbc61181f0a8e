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

// An effect is the part of a policy that decides how much it holds back: its limit, whether it only
// counts, and as texts its remaining fields or its preset. Reads are the parts of requests that the
// policy reads for the keys of budgets and the names of shares.
type effect struct {
	limit  throttle.Limit
	shadow bool
	fields map[string]string
	reads  string
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

// written returns the text of a row's field, or missing for a missing field.
func written(field, missing string) func(*row) string {
	return func(p *row) string {
		if n := p.fields[field]; n != nil {
			return canonical(n)
		}
		return missing
	}
}

// effects returns by policy what decides how much it holds back, to compare two files.
func (d *document) effects() map[string]effect {
	all := make(map[string]effect)
	for _, t := range d.tables {
		// A preset has no fields in the file, so its whole entry is compared.
		preset := map[string]string{"preset": canonical(t.at)}
		for _, p := range t.rows {
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

// canonical returns the value of a node in one spelling.
func canonical(n *yaml.Node) string {
	var v any
	if err := n.Decode(&v); err != nil {
		return err.Error() // a text that equals no value
	}
	return fmt.Sprint(v) // maps are printed in the order of their keys
}

// loosened returns a reason for each way in which a new file may hold back less than the policies of
// an old file. before has the effects of the old file, and now those of the new file.
func loosened(old []throttle.Policy, before, now map[string]effect) (reasons []string) {
	for _, p := range old {
		was := before[p.Name]
		switch is, there := now[p.Name]; {
		// A shadow policy held nothing back, so nothing of it can loosen.
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

// Opens returns a reason for each host that f names and old does not, and for each policy whose keys
// or shares read parts of requests that no policy of old reads at the same host. Without reasons f
// reaches the hosts of old alone, and learns nothing new of requests. Opens serves files from a place
// where more people can write than may read the traffic. Policies that only count read requests,
// too, so Opens compares them as well.
func (f *File) Opens(old *File) (reasons []string) {
	known := proxy.NewTable(old.Policies)
	read := make(map[string]bool)    // hosts with the parts of requests that old reads there
	written := make(map[string]bool) // hosts as old writes them
	for i := range old.Policies {
		p := &old.Policies[i]
		written[hostOf(p)] = true
		read[hostOf(p)+" "+old.effects[p.Name].reads] = true
	}

	reported := make(map[string]bool)
	for i := range f.Policies {
		p := &f.Policies[i]
		host := hostOf(p)

		// Name a host once, however many rows it has.
		if host != "" && !written[host] && !reaches(known, host) && !reported[host] {
			reported[host] = true
			reasons = append(reasons, fmt.Sprintf("policy %q names the host %q", p.Name, host))
		}

		if reads := f.effects[p.Name].reads; reads != "" && !read[host+" "+reads] {
			reasons = append(reasons, fmt.Sprintf("policy %q makes keys of requests, by %s", p.Name, clip(reads)))
		}
	}

	return reasons
}

// mostLabels is more labels than a host has.
const mostLabels = 128

// reaches reports whether a table has all hosts of a pattern. A host that begins with "*." stands for hosts of any number of
// labels, of which a pattern with wildcards for single labels has only some.
func reaches(table *proxy.Table, host string) bool {
	below, deep := strings.CutPrefix(host, "*.")
	return table.Has(host) && (!deep || table.Has(strings.Repeat("x.", mostLabels)+below))
}

// hostOf returns the host of a policy's pattern in lower case, without the default port 443.
func hostOf(p *throttle.Policy) string {
	pattern := p.Match[strings.LastIndexAny(p.Match, " \t")+1:]
	host, _, _ := strings.Cut(pattern, "/")
	return strings.ToLower(strings.TrimSuffix(host, ":443"))
}

// tunnelled returns a reason for each of the hosts that is not in old.
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
		before := was.fields[f.name]

		// A change from the lowest value can only tighten, and so can retry-after in place of no penalty: by default the first
		// 503 in a row closes nothing, and a 429 closes one row of several.
		bottom, known := least[f.name]
		tightens := known && before == bottom || f.name == "penalty" && before == "" && is.fields[f.name] == "retry-after"
		if before != is.fields[f.name] && !tightens {
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

// within reports whether limit surely allows at most as much as an other limit: the limits are equal, or of the same form
// and window.
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

	// Windows of a calendar have no fixed length, so none is known to be within one of another unit or zone.
	if limit.Per() == 0 {
		return windowOf(limit) == windowOf(other) && limit.N() <= other.N()
	}

	return limit.Per() == other.Per() && limit.N() <= other.N() && limit.Capacity() <= other.Capacity()
}
