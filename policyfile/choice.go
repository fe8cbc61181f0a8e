package policyfile

import (
	"maps"
	"strings"

	"go.yaml.in/yaml/v4"
)

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
