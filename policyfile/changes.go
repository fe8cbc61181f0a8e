package policyfile

import (
	"fmt"

	"go.yaml.in/yaml/v4"

	"github.com/fleetthrottle/throttle"
)

// A hold is what decides how much a policy holds: its limit, whether it only counts, and
// as a text of the file all else.
type hold struct {
	limit  throttle.Limit
	shadow bool
	rest   string
}

// holding are the fields of a policy that decide which requests it holds.
var holding = []string{"match", "key", "cost", "jitter", "headroom", "scope"}

// holds returns what each policy holds, by name.
func (d *document) holds() map[string]hold {
	all := make(map[string]hold)
	for _, t := range d.tables {
		options := canonical(t.at)
		for _, p := range t.rows {
			all[p.Name] = hold{p.Limit, p.Shadow, options}
		}
	}
	for _, p := range d.rows {
		var rest string
		for _, name := range holding {
			rest += name + ": " + canonical(p.fields[name]) + "\n"
		}
		all[p.Name] = hold{p.Limit, p.Shadow, rest}
	}
	return all
}

// canonical returns what a node says, however it is written; "" for nil.
func canonical(n *yaml.Node) string {
	var v any
	if n == nil || n.Decode(&v) != nil {
		return ""
	}
	return fmt.Sprint(v) // maps are printed in the order of their keys
}

// Loosens says what of a file another one would no longer hold, as far as can be told: a
// policy that is gone, a limit that is not lower, a change of which requests a policy
// holds. It is empty if all that is held stays held.
func (f *File) Loosens(old *File) (reasons []string) {
	for _, p := range old.Policies {
		was := old.holds[p.Name]
		switch is, there := f.holds[p.Name]; {
		case was.shadow:
		case !there:
			reasons = append(reasons, fmt.Sprintf("policy %q is gone", p.Name))
		case is.shadow:
			reasons = append(reasons, fmt.Sprintf("policy %q only counts", p.Name))
		case !within(is.limit, was.limit):
			reasons = append(reasons, fmt.Sprintf("policy %q: its limit goes from %v to %v", p.Name, was.limit, is.limit))
		case is.rest != was.rest:
			reasons = append(reasons, fmt.Sprintf("policy %q: which requests it holds has changed", p.Name))
		}
	}
	return reasons
}

// within reports whether a limit allows no more than another of the same form.
func within(limit, other throttle.Limit) bool {
	if limit == other {
		return true
	}
	return limit.Kind() == other.Kind() && limit.Per() == other.Per() && limit.Per() > 0 &&
		limit.N() <= other.N() && limit.Capacity() <= other.Capacity() ||
		limit.Kind() == throttle.KindConcurrency && other.Kind() == throttle.KindConcurrency && limit.N() <= other.N()
}
