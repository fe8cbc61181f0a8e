package policyfile

import (
	"cmp"
	"maps"
	"strings"

	"go.yaml.in/yaml/v4"
)

// choice returns the shape of a mapping with one key, the name of an option, whose value the option
// reads. For an option that needs no value the name by itself is enough. name is what errors call the
// mapping.
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

		r.fail(n, "%s is unknown: %q%s; there are %s", name, clip(what), cmp.Or(missingSpace(what), didYouMean(what, names)), strings.Join(names, ", "))
		return option[T]{}, false
	}

	return shape[T]{
		form:   name,
		schema: func() schema { return choiceSchema(options) },
		read: func(r *reader, n *yaml.Node) (v T, ok bool) {
			n = follow(n)

			// A name without a value is a choice, too, if the option allows it.
			if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
				o, ok := pick(r, n, name, n.Value)
				if !ok {
					return v, false
				}

				if o.alone == nil {
					r.fail(n, "%s %q needs a value: write \"%s: …\"", name, o.name, o.name)
					return v, false
				}

				return o.alone(), o.sifted(r, n, o.everyAlone)
			}

			members, read, ok := r.members(n, name)
			if !read {
				return v, false
			}

			if len(members) != 1 {
				r.fail(n, "%s has one key, and not %d: its kind", name, len(members))
				return v, false
			}

			o, known := pick(r, members[0].key, name, members[0].name)
			if !known {
				return v, false
			}

			// Read the value even if the option stands in the wrong place, so that both mistakes are found.
			sifted := o.sifted(r, members[0].key, o.every)
			v, good := o.read(r, members[0].value)
			return v, ok && good && sifted
		},
	}
}

// An option is one kind of a choice.
type option[T any] struct {
	name, doc string
	form      string      // its value, for readers
	keys      []fieldHead // of a preset: its options, for readers
	alone     func() T    // its value without a value in the file, or nil if it needs one
	read      func(r *reader, n *yaml.Node) (T, bool)
	schema    func() schema

	every, everyAlone bool // it says something of every answer, with a value or alone
}

// sifted notes a mistake if an option that says something of every answer stands where
// every answer is looked at.
func (o option[T]) sifted(r *reader, n *yaml.Node, every bool) bool {
	if every && r.sifted == 0 {
		r.fail(n, "%q closes the budget at every answer, successes too: put it into a \"when\" with status, media or header, "+
			"as in {when: {status: 429, penalty: …}}", o.name)
		return false
	}
	return true
}

// kind returns the option of that name whose value has a shape.
func kind[A, T any](name, doc string, of shape[A], f func(A) T) option[T] {
	s := as(of, f)
	return option[T]{name: name, doc: doc, form: s.form, read: s.read, schema: s.schema}
}

// or returns the option with a value for use without a value in the file.
func (o option[T]) or(alone func() T) option[T] {
	o.alone = alone
	return o
}

// always returns the option as an option whose forms, so far, say something about every answer.
func (o option[T]) always() option[T] {
	o.every, o.everyAlone = true, o.alone != nil
	return o
}

// choiceSchema returns the schema of a choice between options.
func choiceSchema[T any](options []option[T]) schema {
	var all, alone []any
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
