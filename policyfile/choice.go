package policyfile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// choice returns the shape of a mapping with one key: the name of an option, which reads the key's
// value. For an option that needs no value the name by itself is enough. name is what errors call the
// mapping.
func choice[T any](name string, options ...option[T]) shape[T] {
	var names []string
	for _, o := range options {
		names = append(names, o.name)
	}

	// pick returns the option with the written name, or notes that there is none.
	pick := func(r *reader, n *yaml.Node, written string) (option[T], bool) {
		for _, o := range options {
			if o.name == written {
				return o, true
			}
		}

		r.fail(n, "%s is unknown: %q%s; there are %s", name, clip(written), cmp.Or(missingSpace(written), didYouMean(written, names)), strings.Join(names, ", "))
		return option[T]{}, false
	}

	return shape[T]{
		form:   name,
		schema: func() schema { return choiceSchema(options) },
		read: func(r *reader, n *yaml.Node) (v T, ok bool) {
			n = follow(n)

			// A name without a value is a choice, too, if the option allows it.
			if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
				o, ok := pick(r, n, n.Value)
				if !ok {
					return v, false
				}

				if o.alone == nil {
					r.fail(n, "%s %q needs a value: write \"%s: …\"", name, o.name, o.name)
					return v, false
				}

				return o.alone(), o.checkSifted(r, n, o.everyAlone)
			}

			members, isMapping, ok := r.members(n, name)
			if !isMapping {
				return v, false
			}

			if len(members) != 1 {
				r.fail(n, "%s has one key, and not %d: its kind", name, len(members))
				return v, false
			}

			o, known := pick(r, members[0].key, members[0].name)
			if !known {
				return v, false
			}

			// Read the value even if the option stands in the wrong place, so that both mistakes are found.
			placeOK := o.checkSifted(r, members[0].key, o.every)
			v, valueOK := o.read(r, members[0].value)
			return v, ok && placeOK && valueOK
		},
	}
}

// An option is one kind of a choice.
type option[T any] struct {
	name, doc string
	form      string      // a valid value, for readers
	keys      []fieldHead // of a preset: its options, for readers
	alone     func() T    // the value if the file has the name alone, or nil if the option needs a value
	read      func(r *reader, n *yaml.Node) (T, bool)
	schema    func() schema

	every, everyAlone bool // the option closes the budget at every answer: with a value, or alone
}

// checkSifted returns false, and notes a mistake, if an option that closes the budget at every answer
// stands outside of a condition on the answer. every says whether o, as the file writes it, is such an
// option.
func (o option[T]) checkSifted(r *reader, n *yaml.Node, every bool) bool {
	if every && r.sifted == 0 {
		r.fail(n, "%q closes the budget at every answer, successes too: put it into a \"when\" with status, media or header, "+
			"as in {when: {status: 429, penalty: …}}", o.name)
		return false
	}
	return true
}

// kind returns the option with a name whose value has a shape, converted by f.
func kind[A, T any](name, doc string, of shape[A], f func(A) T) option[T] {
	s := as(of, f)
	return option[T]{name: name, doc: doc, form: s.form, read: s.read, schema: s.schema}
}

// or returns the option with the value that it has if the file has its name alone.
func (o option[T]) or(alone func() T) option[T] {
	o.alone = alone
	return o
}

// always returns the option with the mark that its present forms close the budget at every answer. A
// form that or adds after always has no mark.
func (o option[T]) always() option[T] {
	o.every, o.everyAlone = true, o.alone != nil
	return o
}

// choiceSchema returns the schema of a choice between options.
func choiceSchema[T any](options []option[T]) schema {
	var all []any   // schemas: one for each option with a value, and one for all names alone
	var alone []any // names of the options that need no value
	for _, o := range options {
		// The schema belongs to the shape, which several options share, so a copy gets the description.
		value := maps.Clone(o.schema())
		value["description"] = o.doc
		all = append(all, schema{
			"type": "object", "properties": schema{o.name: value}, "required": []any{o.name}, "additionalProperties": false,
		})
		if o.alone != nil {
			alone = append(alone, o.name)
		}
	}

	if alone != nil {
		all = append(all, schema{"enum": alone})
	}

	return schema{"anyOf": all}
}

// A keyed is one key of a mapping with its value.
type keyed struct {
	name       string
	key, value *yaml.Node
}

// members returns the members of a mapping. name is what errors call the mapping. Members of merge keys
// ("<<") come last, and leave out keys that the mapping itself has. Of a key that several merged
// mappings have, the first counts. ok is false after a mistake: a key is there twice or is invalid,
// here or in a merged mapping. isMapping is false, after a mistake, if the node is no mapping.
func (r *reader) members(n *yaml.Node, name string) (all []keyed, isMapping, ok bool) {
	n = follow(n)
	if n.Kind != yaml.MappingNode {
		r.fail(n, "%s is expected here, not %s%s", name, kindOf(n), missingSpace(n.Value))
		return nil, false, false
	}

	ok = true
	first := make(map[string]*yaml.Node) // the key of each member, for the mistake of a second such key
	var merged []*yaml.Node              // the values of merge keys
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := follow(n.Content[i]), n.Content[i+1]
		switch {
		case key.ShortTag() == "!!merge":
			merged = append(merged, value)
		case key.Kind != yaml.ScalarNode || key.ShortTag() == "!!null":
			r.fail(key, "a key is a text, and not %s", kindOf(key))
			ok = false
		case first[key.Value] != nil:
			r.fail(key, "%q stands here twice, first in line %d", clip(key.Value), first[key.Value].Line)
			ok = false
		default:
			first[key.Value] = key
			all = append(all, keyed{key.Value, key, value})
		}
	}

	for _, value := range merged {
		more, good := r.merge(value, name)
		ok = ok && good

		// The mapping's own members count first, then those of earlier merged mappings.
		for _, m := range more {
			if first[m.name] == nil {
				first[m.name] = m.key
				all = append(all, m)
			}
		}
	}

	return all, true, ok
}

// merge returns the members that a merge key adds, from a mapping or a list of mappings. name is what
// errors call a mapping. Several members may have the same name: the caller takes the first. A list
// within the list is invalid, as for every reader of YAML. ok is false after a mistake.
func (r *reader) merge(n *yaml.Node, name string) (all []keyed, ok bool) {
	n = follow(n)
	if n.Kind != yaml.SequenceNode {
		all, _, ok = r.members(n, name)
		return all, ok
	}
	ok = true
	for _, item := range n.Content {
		more, _, good := r.members(item, name)
		all, ok = append(all, more...), ok && good
	}
	return all, ok
}

// The checks below need a whole row, or all rows.

// checkPolicies notes the mistakes that throttle finds in the policies, fields without an effect, and
// names that two policies have.
func (r *reader) checkPolicies(d *document) {
	first := make(map[string]*yaml.Node) // by name, where the first policy with the name stands
	for _, t := range d.tables {
		r.checkTable(first, t)
	}
	found := configErrors(d.rows)
	for i := range d.rows {
		// A row that is no mapping has no place: its mistake is noted already.
		if p := &d.rows[i]; p.at != nil {
			r.checkRow(p, found[rowName(i)])
			r.checkName(first, p.Name, p.fields["name"])
		}
	}
}

// checkTable checks the rows of a preset, and adds their names to first, unless first has one of the
// names already. It notes only the first mistake, because all rows are made of the same options.
func (r *reader) checkTable(first map[string]*yaml.Node, t presetTable) {
	for _, p := range t.rows {
		if was := first[p.Name]; was != nil {
			r.fail(t.at, "its policy %q stands in line %d already: name a preset once, or tell several accounts apart with \"caller\"", clip(p.Name), was.Line)
			return
		}
	}

	for _, p := range t.rows {
		first[p.Name] = t.at
	}

	_, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: t.rows})
	var e *throttle.ConfigError
	if errors.As(err, &e) {
		r.fail(t.at, "policy %q: %s: %v", e.Policy, strings.ToLower(e.Field), e.Err)
		return
	}

	r.checkWildcards(t.wildcards, "any match of this preset", t.rows...)
}

// readers are the fields that read requests and answers, in a file and in Go, except the key.
var readers = []string{"share", "weight", "cost", "penalty", "acted", "quota", "settle", "answer", "meter"}

// checkRow checks one row of the file, and notes in the words of the file the mistakes that throttle has
// found in the row.
func (r *reader) checkRow(p *row, found []*throttle.ConfigError) {
	for _, e := range found {
		f := p.fields[strings.ToLower(e.Field)] // nil if the row has no such field

		// Each case without a body is a mistake that a different place notes.
		switch {
		// A missing or wrong limit or match was noted when the row was read.
		case p.Limit == (throttle.Limit{}) && e.Field == "Limit", p.Match == "" && e.Field == "Match":

		// checkUse notes this mistake at the field settle.
		case e.Field == "Meter" && p.Limit.Kind() == store.KindConcurrency:

		case e.Field == "Match" && slices.Contains(methods, p.Match):
			r.fail(follow(f), "a path is missing: write \"%s /\" for every request with this method", p.Match)

		// checkWildcards notes a wrong wildcard at its own place.
		case !p.named && len(p.wildcards) > 0 && (e.Field == "Key" || e.Field == "Share"):

		// The loop below notes each of these fields.
		case p.named && slices.Contains(readers, strings.ToLower(e.Field)):
		case p.named && f != nil && e.Field == "Key":
			r.fail(follow(f), "key has no effect beside match: none, because no request comes to the policy: write keyed: yes, and callers name the key")
		case e.Field == "Keyed" && f != nil:
			r.fail(follow(f), "keyed has no effect beside a match: write key, which reads the key from the request, or match: none")
		case f != nil:
			offset, text := placeOf(e.Err)
			r.failIn(follow(f), offset, "%s", text)
		default:
			r.fail(p.at, "policy %q: %s: %v", p.Name, strings.ToLower(e.Field), e.Err)
		}
	}

	for _, name := range readers {
		if f := p.fields[name]; p.named && f != nil {
			r.fail(follow(f), "%s has no effect beside match: none, because no request and no answer comes to the policy: leave it out", name)
		}
	}

	if method, _, ok := strings.Cut(p.Match, " "); ok {
		if err := checkMethod(method); err != nil {
			r.fail(follow(p.fields["match"]), "%v", err)
		}
	}

	// In a named row the key, the share and the cost are mistakes themselves, whatever their wildcards.
	if !p.named {
		r.checkWildcards(p.wildcards, fmt.Sprintf("the match of policy %q", clip(p.Name)), p.Policy)
	}

	r.checkUse(p)
}

// checkUse notes the fields of a row that have no effect beside its other fields, and a cost that never
// fits. It does not look at a field with a mistake of its own: the field's value in p is nil. Without a
// valid limit it checks nothing.
func (r *reader) checkUse(p *row) {
	if p.Limit == (throttle.Limit{}) {
		return
	}

	fixedCost := -1 // the number that the row gives, or -1 if it gives none
	if n := p.fields["cost"]; n != nil && p.Cost != nil {
		if v, err := parseNumber(follow(n).Value); err == nil {
			fixedCost = v
		}
	}

	if most := p.Limit.Capacity(); fixedCost > most {
		r.fail(follow(p.fields["cost"]), "a cost of %d never fits: %v has room for %d", fixedCost, p.Limit, most)
	}

	if settle := p.fields["settle"]; settle != nil && p.settle != nil {
		switch {
		case fixedCost == 0:
			r.fail(follow(settle), "settle has no effect: a request that costs 0 stays free")
		case p.Limit.Kind() == store.KindConcurrency:
			r.fail(follow(settle), "settle has no effect: what is in flight keeps its cost")
		}
	}

	if quota := p.fields["quota"]; quota != nil && p.quota != nil && p.Limit.Kind() == store.KindUnlimited {
		r.fail(follow(quota), "an unlimited policy has no number that an answer could lower: set a limit with a number")
	}

	switch share, weight := p.fields["share"], p.fields["weight"]; {
	case share == nil && p.Weight != nil:
		r.fail(follow(weight), "weight has no effect without share: it is the weight of a share")
	case p.Share != nil && (!p.Limit.Counts() || p.Limit.Kind() == store.KindTold):
		r.fail(follow(share), "share has no effect: only a limit that counts starts has a line in which shares take turns")
	}

	if penalty := p.fields["penalty"]; p.acted != nil && penalty != nil && follow(penalty).Value == "none" {
		r.fail(follow(p.fields["acted"]), "acted has no effect: it looks at answers that close the budget, and the penalty is none")
	}
}

// checkWildcards notes each of the named wildcards that no match of the policies has: its value would be
// empty for all requests. If a match has a mistake, checkWildcards notes nothing. where is what an error
// calls the matches.
func (r *reader) checkWildcards(named []wildcard, where string, policies ...throttle.Policy) {
	if len(named) == 0 {
		return
	}

	// These names have a meaning in a template, so they are candidates for a hint.
	names := []string{"host", "path", "route", "method"}
	there := make(map[string]bool)
	for _, p := range policies {
		wildcards, err := p.Wildcards()
		if err != nil {
			return // the mistake in the match is noted already
		}

		for _, name := range wildcards {
			names, there[name] = append(names, name), true
		}
	}

	for _, w := range named {
		if there[w.name] {
			continue
		}

		if hint := r.hint(w.name, names); hint != "" {
			r.failIn(w.at, w.offset, "{%s} is no wildcard of %s%s", clip(w.name), where, hint)
			continue
		}

		r.failIn(w.at, w.offset, "{%s} is no wildcard of %s, so it would be empty for every request: write {%[1]s} there, or name a value such as {header.X-App}", clip(w.name), where)
	}
}

// checkName notes a name that an earlier policy has, or that throttle refuses. first has the places of
// the earlier names, and checkName adds a new name to it.
func (r *reader) checkName(first map[string]*yaml.Node, name string, at *yaml.Node) {
	switch {
	case name == "": // a missing or wrong name is noted already
	case first[name] != nil:
		r.fail(follow(at), "two policies have the name %q, the first in line %d; it must be unique", clip(name), first[name].Line)
	default:
		first[name] = at
		_, err := throttle.NewLimiter(memstore.New(), throttle.Policy{Name: name, Limit: throttle.Unlimited()})
		if wrong, ok := errors.AsType[*throttle.ConfigError](err); ok {
			r.fail(follow(at), "the name %v", wrong.Err)
		}
	}
}

// rowName is the name of a row while throttle checks it: its own name may be missing or a
// duplicate.
func rowName(i int) string { return "row " + strconv.Itoa(i) }

// configErrors returns the mistakes that throttle finds in rows. Its keys are the rowNames of the rows,
// also where a row has a name.
func configErrors(rows []row) map[string][]*throttle.ConfigError {
	var matched, named []throttle.Policy
	for i := range rows {
		p := rows[i].Policy

		// Give each row a name of its own: a missing or duplicate name would hide further mistakes.
		p.Name = rowName(i)

		if rows[i].named {
			named = append(named, p)
		} else {
			matched = append(matched, p)
		}
	}

	all := make(map[string][]*throttle.ConfigError)

	// collect takes joined errors apart.
	var collect func(error)
	collect = func(err error) {
		switch e := err.(type) {
		case interface{ Unwrap() []error }:
			for _, one := range e.Unwrap() {
				collect(one)
			}

		case *throttle.ConfigError:
			all[e.Policy] = append(all[e.Policy], e)
		}
	}

	_, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: matched})
	collect(err)
	_, err = throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: named})
	collect(err)

	return all
}

// checkTests notes tests that name a policy that requests cannot match, because it is missing or has
// "match: none". If a policy has no name, or a preset has a mistake, it notes nothing: the policy that
// seems to be missing may be one of theirs.
func (r *reader) checkTests(d *document) {
	for _, t := range d.tables {
		// A preset without rows has a mistake, and its policies are unknown.
		if t.rows == nil {
			return
		}
	}

	var names []string
	there := make(map[string]bool)
	for _, p := range d.policies() {
		if p.Name == "" {
			return
		}
		names = append(names, p.Name)
		there[p.Name] = true
	}

	for _, t := range d.tests {
		for _, e := range t.Expects {
			if !there[e.Policy] {
				r.fail(t.policies, "there is no policy %q%s", clip(e.Policy), r.hint(e.Policy, names))
			}
		}

		for _, name := range slices.Sorted(maps.Keys(t.Closes)) {
			if !there[name] {
				r.fail(t.closes, "there is no policy %q%s", clip(name), r.hint(name, names))
			}
		}
	}
}
