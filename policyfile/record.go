package policyfile

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/agnivade/levenshtein"
	"go.yaml.in/yaml/v4"
)

// A record is a mapping whose keys are known.
type record[S any] struct {
	name    string // "a policy", for errors
	fields  []field[S]
	ignored string                                                    // keys that begin so are for anchors; "": none are
	check   func(r *reader, n *yaml.Node, members []keyed, v *S) bool // after all fields, also if some have mistakes; nil: nothing is to be checked
}

// A field is one key of a record.
type field[S any] struct {
	name, doc string
	required  bool
	read      func(r *reader, n *yaml.Node, to *S) bool
	schema    func() schema
}

// member returns the field whose value set puts into the record.
func member[S, T any](name, doc string, of shape[T], set func(*S, T)) field[S] {
	return field[S]{
		name: name, doc: doc, schema: of.schema,
		read: func(r *reader, n *yaml.Node, to *S) bool {
			v, ok := of.read(r, n)
			if ok {
				set(to, v)
			}
			return ok
		},
	}
}

// partly returns a member that is put into the record after mistakes too, so that more can
// be found in what could be read.
func partly[S, T any](name, doc string, of shape[T], set func(*S, T)) field[S] {
	return field[S]{
		name: name, doc: doc, schema: of.schema,
		read: func(r *reader, n *yaml.Node, to *S) bool {
			v, ok := of.read(r, n)
			set(to, v)
			return ok
		},
	}
}

// must returns the field as one that may not be left out.
func must[S any](f field[S]) field[S] {
	f.required = true
	return f
}

// shape returns the record as a shape.
func (d record[S]) shape() shape[S] { return shape[S]{read: d.read, schema: d.schema} }

func (d record[S]) read(r *reader, n *yaml.Node) (v S, ok bool) {
	members, read, ok := r.members(n, d.name)
	if !read {
		return v, false
	}
	defer r.leave()
	seen := make(map[string]bool)
	for _, m := range members {
		if d.ignored != "" && strings.HasPrefix(m.name, d.ignored) {
			continue
		}
		i := slices.IndexFunc(d.fields, func(f field[S]) bool { return f.name == m.name })
		if i < 0 {
			r.fail(m.key, "%s has no field %q%s; it has %s", d.name, clip(m.name), didYouMean(m.name, d.names()), strings.Join(d.names(), ", "))
			ok = false
			continue
		}
		seen[m.name] = true
		ok = d.fields[i].read(r, m.value, &v) && ok
	}
	for _, f := range d.fields {
		if f.required && !seen[f.name] {
			r.fail(n, "%s needs a field %q", d.name, f.name)
			ok = false
		}
	}
	if d.check != nil {
		ok = d.check(r, n, members, &v) && ok
	}
	return v, ok
}

func (d record[S]) names() (names []string) {
	for _, f := range d.fields {
		names = append(names, f.name)
	}
	return names
}

func (d record[S]) schema() schema {
	properties, required := schema{}, []any{}
	for _, f := range d.fields {
		one := maps.Clone(f.schema())
		one["description"] = f.doc
		properties[f.name] = one
		if f.required {
			required = append(required, f.name)
		}
	}
	s := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// choice returns the shape of a mapping with one key, which says what its value is. A name
// by itself is one whose value is empty, if that is good enough.
func choice[T any](name string, options ...option[T]) shape[T] {
	var names []string
	for _, o := range options {
		names = append(names, o.name)
	}
	pick := func(r *reader, n *yaml.Node, name, what string) (option[T], bool) {
		for _, o := range options {
			if o.name == what {
				return o, true
			}
		}
		r.fail(n, "%s is unknown: %q%s; there are %s", name, clip(what), didYouMean(what, names), strings.Join(names, ", "))
		return option[T]{}, false
	}
	return shape[T]{
		schema: func() schema { return choiceSchema(options) },
		read: func(r *reader, n *yaml.Node) (v T, ok bool) {
			at, ok := r.enter(n)
			if !ok {
				return v, false
			}
			defer r.leave()
			if at.Kind == yaml.ScalarNode && at.ShortTag() != "!!null" {
				o, ok := pick(r, at, name, at.Value)
				if !ok {
					return v, false
				}
				if o.alone == nil {
					r.fail(at, "%s %q needs a value: write \"%s: …\"", name, o.name, o.name)
					return v, false
				}
				return o.alone(), true
			}
			members, read, ok := r.members(at, name)
			if !read {
				return v, false
			}
			defer r.leave()
			if len(members) != 1 {
				r.fail(at, "%s has one key, and not %d: its kind", name, len(members))
				return v, false
			}
			o, known := pick(r, members[0].key, name, members[0].name)
			if !known {
				return v, false
			}
			v, good := o.read(r, members[0].value)
			return v, ok && good
		},
	}
}

// An option is one kind of a choice.
type option[T any] struct {
	name, doc string
	alone     func() T // its value without one; nil: it needs one
	read      func(r *reader, n *yaml.Node) (T, bool)
	schema    func() schema
}

// kind returns the option of that name whose value has a shape.
func kind[A, T any](name, doc string, of shape[A], f func(A) T) option[T] {
	s := as(of, f)
	return option[T]{name: name, doc: doc, read: s.read, schema: s.schema}
}

// or returns the option as one that may stand alone, as that value.
func (o option[T]) or(alone func() T) option[T] {
	o.alone = alone
	return o
}

func choiceSchema[T any](options []option[T]) schema {
	var all, alone []any
	for _, o := range options {
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

// members returns what a mapping holds, that of merge keys ("<<") last and only where
// the mapping itself says nothing. It is ok unless a key stands there twice, or is none. If
// the node is no mapping read is false; otherwise the call needs a leave.
func (r *reader) members(n *yaml.Node, name string) (all []keyed, read, ok bool) {
	at, ok := r.enter(n)
	if !ok {
		return nil, false, false
	}
	if at.Kind != yaml.MappingNode {
		r.fail(at, "%s is expected here, not %s", name, kindOf(at))
		r.leave()
		return nil, false, false
	}
	first := make(map[string]*yaml.Node)
	var merged []*yaml.Node
	for i := 0; i+1 < len(at.Content); i += 2 {
		key, value := at.Content[i], at.Content[i+1]
		switch {
		case key.ShortTag() == "!!merge":
			merged = append(merged, value)
		case key.Kind != yaml.ScalarNode:
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
		for _, m := range more {
			if first[m.name] == nil {
				first[m.name] = m.key
				all = append(all, m)
			}
		}
	}
	return all, true, ok
}

// merge returns what a merge key adds: a mapping, or several in a list.
func (r *reader) merge(n *yaml.Node, name string) (all []keyed, ok bool) {
	at, ok := r.enter(n)
	if !ok {
		return nil, false
	}
	defer r.leave()
	if at.Kind != yaml.SequenceNode {
		all, read, ok := r.members(at, name)
		if read {
			r.leave()
		}
		return all, ok
	}
	for _, item := range at.Content {
		more, good := r.merge(item, name)
		all, ok = append(all, more...), ok && good
	}
	return all, ok
}

// didYouMean returns a hint if one of the names is near to what was written.
func didYouMean(written string, names []string) string {
	near := slices.Clone(names)
	distance := func(name string) int {
		return levenshtein.ComputeDistance(strings.ToLower(written), strings.ToLower(name))
	}
	sort.SliceStable(near, func(i, j int) bool { return distance(near[i]) < distance(near[j]) })
	if len(near) == 0 || distance(near[0]) > max(1, (len(near[0])+1)/3) {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", near[0])
}
