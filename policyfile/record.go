package policyfile

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// A record is a mapping whose keys are known.
type record[S any] struct {
	name    string // "a policy", for errors
	fields  []field[S]
	ignored string                                                    // keys with this prefix are for anchors; "" for no such keys
	check   func(r *reader, n *yaml.Node, members []keyed, v *S) bool // after all fields, also if some have mistakes; optional
}

// A fieldHead is the part of a field that readers see.
type fieldHead struct {
	name, doc string
	form      string // a valid value
	usual     string // what counts if the field is missing; "" if the field is required or the doc says so
	required  bool
}

// A field is one key of a record.
type field[S any] struct {
	fieldHead
	advice string // the text behind the name of a missing required field
	read   func(r *reader, n *yaml.Node, to *S) bool
	schema func() schema
}

// member returns the field whose value set puts into the record.
func member[S, T any](name, doc string, of shape[T], set func(*S, T)) field[S] {
	return field[S]{
		fieldHead: fieldHead{name: name, doc: doc, form: of.form}, schema: of.schema,
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
		fieldHead: fieldHead{name: name, doc: doc, form: of.form}, schema: of.schema,
		read: func(r *reader, n *yaml.Node, to *S) bool {
			v, ok := of.read(r, n)
			set(to, v)
			return ok
		},
	}
}

// usually returns the field with the words for what counts if the field is missing.
func (f field[S]) usually(usual string) field[S] {
	f.usual = usual
	return f
}

// must returns the field as a required field.
func must[S any](f field[S]) field[S] {
	f.required = true
	return f
}

// mustSay is must for a field of which the mistake says what to write.
func mustSay[S any](f field[S], advice string) field[S] {
	f.required, f.advice = true, ": "+advice
	return f
}

// shape returns the record as a shape.
func (d record[S]) shape() shape[S] { return shape[S]{form: d.name, read: d.read, schema: d.schema} }

// read reads a mapping with the record's fields. ok is false after a mistake: then v has the fields without mistakes.
func (d record[S]) read(r *reader, n *yaml.Node) (v S, ok bool) {
	n = follow(n)
	members, read, ok := r.members(n, d.name)
	if !read {
		return v, false
	}

	seen, meant := make(map[string]bool), "" // meant are the hints to fields that were misspelt
	for _, m := range members {
		// Ignored fields are for anchors.
		if d.ignored != "" && strings.HasPrefix(m.name, d.ignored) {
			continue
		}

		i := slices.IndexFunc(d.fields, func(f field[S]) bool { return f.name == m.name })
		if i < 0 {
			hint := d.hint(m.name)
			r.fail(m.key, "%s has no field %q%s; it has %s", d.name, clip(m.name), hint, strings.Join(d.names(), ", "))
			meant += hint
			ok = false
			continue
		}

		seen[m.name] = true
		ok = d.fields[i].read(r, m.value, &v) && ok
	}

	for _, f := range d.fields {
		// A misspelt field is not missing: one mistake is enough.
		if f.required && !seen[f.name] && !strings.Contains(meant, strconv.Quote(f.name)) {
			r.fail(n, "%s needs a field %q%s", d.name, f.name, f.advice)
			ok = false
		}
	}

	if d.check != nil {
		ok = d.check(r, n, members, &v) && ok
	}

	return v, ok
}

// heads returns the part of the fields that readers see.
func (d record[S]) heads() (all []fieldHead) {
	for _, f := range d.fields {
		all = append(all, f.fieldHead)
	}
	return all
}

// hint suggests the field that an unknown name may have meant.
func (d record[S]) hint(name string) string {
	return cmp.Or(oddSpace(name), missingSpace(name), didYouMean(name, d.names()))
}

func (d record[S]) names() (names []string) {
	for _, f := range d.fields {
		names = append(names, f.name)
	}
	return names
}

// schema returns the JSON schema of a mapping with the record's fields.
func (d record[S]) schema() schema {
	properties, required := schema{}, []any{}
	for _, f := range d.fields {
		one := maps.Clone(f.schema())
		one["description"] = f.doc
		if f.usual != "" {
			one["description"] = f.doc + "; default: " + f.usual
		}
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
