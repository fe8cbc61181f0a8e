package policyfile

import (
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// A schema is a node of a JSON Schema.
type schema = map[string]any

// A shape is what may stand at one place of a file: it reads a value, and describes
// itself in JSON Schema. The loader and the schema are made of the same shapes, so they
// cannot drift apart.
type shape[T any] struct {
	// read returns the value of a node. ok is false after a mistake, which read has noted.
	read   func(r *reader, n *yaml.Node) (v T, ok bool)
	schema func() schema
	form   string // a valid value, for readers, as in "a duration such as 250ms"
}

// scalar returns the shape of a single value. expected describes a valid value, as in "a duration
// such as 250ms". An error of parse describes the mistake; a placed error has its position.
func scalar[T any](expected string, s schema, parse func(text string) (T, error)) shape[T] {
	return shape[T]{
		form:   expected,
		schema: func() schema { return s },
		read: func(r *reader, n *yaml.Node) (v T, ok bool) {
			n = follow(n)
			if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
				r.fail(n, "%s is expected here, not %s", expected, kindOf(n))
				return v, false
			}
			return parsed(r, n, n.Value, parse)
		},
	}
}

// parsed returns the value of a node's text.
func parsed[T any](r *reader, n *yaml.Node, text string, parse func(text string) (T, error)) (v T, ok bool) {
	if len(text) > mostText {
		r.fail(n, "this value has %d bytes; %d are the most", len(text), mostText)
		return v, false
	}
	v, err := parse(text)
	if err != nil {
		offset, what := placeOf(err)
		r.failIn(n, offset, "%s%s", what, plainSpelling(text))
	}
	return v, err == nil
}

// atOffset finds where in a text an error of throttle has its place.
var atOffset = regexp.MustCompile(`^at offset (\d+): | at offset (\d+)`)

// placeOf takes the place out of an error's text, because the caret shows it.
func placeOf(err error) (offset int, text string) {
	text = strings.TrimPrefix(err.Error(), "throttle: ")
	if m := atOffset.FindStringSubmatchIndex(text); m != nil {
		digits := text[max(m[2], m[4]):max(m[3], m[5])]
		offset, _ = strconv.Atoi(digits)
		text = text[:m[0]] + text[m[1]:]
	}
	return offset, text
}

// list returns the shape of a list. One value without a list is a list of one.
func list[T any](of shape[T]) shape[[]T] {
	return shape[[]T]{
		form: of.form + ", or a list",
		schema: func() schema {
			one := of.schema()
			return schema{"anyOf": []any{one, schema{"type": "array", "items": one}}}
		},
		read: func(r *reader, n *yaml.Node) (all []T, ok bool) {
			n = follow(n)
			if n.Kind != yaml.SequenceNode {
				v, ok := of.read(r, n)
				return []T{v}, ok
			}

			ok = true
			for _, item := range n.Content {
				v, good := of.read(r, item)
				all, ok = append(all, v), ok && good
			}

			return all, ok
		},
	}
}

// filled returns the shape of a list or a mapping that is not empty.
func filled[T any](of shape[T]) shape[T] {
	return shape[T]{form: of.form, schema: of.schema, read: func(r *reader, n *yaml.Node) (T, bool) {
		v, ok := of.read(r, n)
		n = follow(n)
		if ok && n.Kind != yaml.ScalarNode && len(n.Content) == 0 {
			r.fail(n, "this is empty: write what is meant, or leave the field out")
			ok = false
		}
		return v, ok
	}}
}

// some returns the shape of a list that is not empty.
func some[T any](of shape[T]) shape[[]T] { return filled(list(of)) }

// table returns the shape of a mapping from texts to values, whose keys are the file's own.
// Checks see each key.
func table[T any](of shape[T], checks ...func(name string) error) shape[map[string]T] {
	return shape[map[string]T]{
		form:   "a mapping whose values are each " + of.form,
		schema: func() schema { return schema{"type": "object", "additionalProperties": of.schema()} },
		read: func(r *reader, n *yaml.Node) (map[string]T, bool) {
			members, read, ok := r.members(n, "a mapping")
			if !read {
				return nil, false
			}

			all := make(map[string]T)
			for _, m := range members {
				v, good := of.read(r, m.value)
				all[m.name], ok = v, ok && good
				for _, check := range checks {
					if err := check(m.name); err != nil {
						r.fail(m.key, "%v", err)
						ok = false
					}
				}
			}

			return all, ok
		},
	}
}

// as returns a shape with f applied to the values of of.
func as[A, B any](of shape[A], f func(A) B) shape[B] {
	return shape[B]{
		form:   of.form,
		schema: of.schema,
		read: func(r *reader, n *yaml.Node) (b B, ok bool) {
			a, ok := of.read(r, n)
			if ok {
				b = f(a)
			}
			return b, ok
		},
	}
}

// either returns the shape of two kinds of nodes: mapping for a mapping, other for all others.
func either[T any](other, mapping shape[T]) shape[T] {
	return shape[T]{
		form:   other.form + ", or " + mapping.form,
		schema: func() schema { return schema{"anyOf": []any{other.schema(), mapping.schema()}} },
		read: func(r *reader, n *yaml.Node) (T, bool) {
			if follow(n).Kind == yaml.MappingNode {
				return mapping.read(r, n)
			}
			return other.read(r, n)
		},
	}
}

// definitions are the schemas that others refer to, by name.
var definitions = make(map[string]func() schema)

// defined returns a shape whose schema is written once, under a name, and referred to.
func defined[T any](name string, of shape[T]) shape[T] {
	definitions[name] = of.schema
	return shape[T]{form: of.form, read: of.read, schema: func() schema { return schema{"$ref": "#/$defs/" + name} }}
}

// refer returns the shape of that name, which is made when it is used, because it refers
// to itself.
func refer[T any](name string, of *func() shape[T]) shape[T] {
	return defined(name, shape[T]{
		form:   "a " + name,
		schema: func() schema { return (*of)().schema() },
		read:   func(r *reader, n *yaml.Node) (T, bool) { return (*of)().read(r, n) },
	})
}
