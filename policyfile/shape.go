package policyfile

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/fleetthrottle/throttle"
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

// scalar returns the shape of a single value, which parse reads. expected describes a valid value, as in
// "a duration such as 250ms". The text of parse's error becomes the mistake: see placeOf.
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

// parsed returns parse's value for a text that stands at node n. ok is false after a mistake: the text is
// too long, or parse returns an error.
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

// placeOf returns the offset that an error's text names, or 0, and the text without the offset and without
// throttle's prefix. The caret below the mistake shows the offset.
func placeOf(err error) (offset int, text string) {
	text = strings.TrimPrefix(err.Error(), "throttle: ")
	if m := atOffset.FindStringSubmatchIndex(text); m != nil {
		// One of the two groups has matched. The other has -1 for both places.
		digits := text[max(m[2], m[4]):max(m[3], m[5])]
		offset, _ = strconv.Atoi(digits)
		text = text[:m[0]] + text[m[1]:]
	}
	return offset, text
}

// list returns the shape of a list. One value without a list is a list of one. An item with a mistake is in
// the list all the same.
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

// filled returns a shape that refuses an empty list and an empty mapping.
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

// table returns the shape of a mapping from texts to values, whose keys the file chooses. Each of the
// checks can refuse a key.
func table[T any](of shape[T], checks ...func(name string) error) shape[map[string]T] {
	return shape[map[string]T]{
		form:   "a mapping whose values are each " + of.form,
		schema: func() schema { return schema{"type": "object", "additionalProperties": of.schema()} },
		read: func(r *reader, n *yaml.Node) (map[string]T, bool) {
			members, isMapping, ok := r.members(n, "a mapping")
			if !isMapping {
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

// as returns a shape that reads a value as the shape "of" does, and converts it by f.
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

// either returns a shape that reads a mapping as the shape mapping, and every other node as the shape other.
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

// defined returns a shape whose schema stands once in the file's schema, under a name in definitions, and
// is referred to by that name.
func defined[T any](name string, of shape[T]) shape[T] {
	definitions[name] = of.schema
	return shape[T]{form: of.form, read: of.read, schema: func() schema { return schema{"$ref": "#/$defs/" + name} }}
}

// refer returns a defined shape that calls *of whenever it is used. So the shape can contain itself: init
// sets *of later.
func refer[T any](name string, of *func() shape[T]) shape[T] {
	return defined(name, shape[T]{
		form:   "a " + name,
		schema: func() schema { return (*of)().schema() },
		read:   func(r *reader, n *yaml.Node) (T, bool) { return (*of)().read(r, n) },
	})
}

// anyText is the schema of text: what YAML takes for a number or a boolean is a text, too.
var anyText = schema{"$ref": "#/$defs/text"}

// limit is a limit as [throttle.ParseLimit] reads it.
var limit = defined("limit", scalar(`a limit such as "40/s"`, schema{"type": "string"}, throttle.ParseLimit))

// yes is true or false.
var yes = defined("yes", scalar("yes or no", schema{"anyOf": []any{
	schema{"type": "boolean"}, schema{"type": "string", "pattern": "^([Yy][Ee][Ss]|[Nn][Oo]|[Oo][Nn]|[Oo][Ff][Ff]|[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])$"},
}}, func(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "yes", "true", "on":
		return true, nil
	case "no", "false", "off":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither yes nor no", clip(s))
}))

// number returns the shape of a whole number that is not below least.
func number(least int) shape[int] { return between(least, math.MaxInt) }

// between returns the shape of a whole number from least to most. math.MaxInt stands for no upper bound.
func between(least, most int) shape[int] {
	name, expected := fmt.Sprintf("number-from-%d", least), fmt.Sprintf("a whole number from %d on", least)
	s := schema{"type": "integer", "minimum": least}
	if most < math.MaxInt {
		name, expected = fmt.Sprintf("%s-to-%d", name, most), fmt.Sprintf("a whole number from %d to %d", least, most)
		s["maximum"] = most
	}

	return defined(name, scalar(expected, schema{"anyOf": []any{s, schema{"type": "string", "pattern": digits.String()}}}, func(s string) (int, error) {
		n, err := parseNumber(s)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("%q is not %s", clip(s), expected)
		}
		return n, nil
	}))
}

// digits are how a whole number is written: 1000, or 1_000.
var digits = regexp.MustCompile(`^\+?[0-9][0-9_]*$`)

// parseNumber reads a whole number from 0 on.
func parseNumber(s string) (int, error) {
	if !digits.MatchString(s) {
		return 0, errors.New("not a whole number")
	}
	return strconv.Atoi(strings.ReplaceAll(s, "_", ""))
}

// days and lengthText are how durations are written: as Go does, and in days.
var days = regexp.MustCompile(`^(\d+)d$`)

var lengthText = schema{"type": "string", "pattern": `^([0-9]+d|\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*)$`}

// length is a duration above 0.
var length = defined("length", scalar(`a duration such as "250ms", "20s" or "2d"`, lengthText, parseLength))

// parseLength reads a duration above 0 as time.ParseDuration does, and whole days, such as "2d".
func parseLength(s string) (time.Duration, error) {
	// time.ParseDuration knows no days. So it refuses 0 days, and days that are too many for a Duration.
	if m := days.FindStringSubmatch(s); m != nil {
		const most = math.MaxInt64 / int64(24*time.Hour)
		if n, err := strconv.ParseInt(m[1], 10, 64); err == nil && n > 0 && n <= most {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}

	d, err := time.ParseDuration(s)
	_, floatErr := strconv.ParseFloat(s, 64)
	isNumber := floatErr == nil && digits.MatchString(s)
	switch {
	case err != nil && isNumber:
		return 0, fmt.Errorf("%q has no unit: write %q, %q or the like", clip(s), clip(s)+"s", clip(s)+"ms")
	case err != nil || d <= 0:
		return 0, fmt.Errorf("%q is not a duration above 0, such as 250ms, 20s, 5m or 2d", clip(s))
	}

	return d, nil
}

// share is a part of a whole.
var share = defined("share", scalar("a share from 0 to below 1, such as 0.25", schema{"anyOf": []any{
	schema{"type": "number", "minimum": 0, "exclusiveMaximum": 1}, schema{"type": "string", "pattern": fraction.String()},
}}, func(s string) (float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !fraction.MatchString(s) || v >= 1 {
		return 0, fmt.Errorf("%q is not a share from 0 to below 1, such as 0.25", clip(s))
	}
	return v, nil
}))

// fraction is how a share is written.
var fraction = regexp.MustCompile(`^\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE]-?[0-9]+)?$`)

// pattern is a regular expression that does not match the empty text, and so not every answer.
var pattern = defined("pattern", scalar("a regular expression", anyText, func(s string) (*regexp.Regexp, error) {
	p, err := regexp.Compile(s)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%q is not a regular expression: %s", clip(s), strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	case p.MatchString(""):
		return nil, fmt.Errorf("%q matches every text, the empty one too: write what must be there", clip(s))
	}
	return p, nil
}))

// zone is a time zone.
var zone = defined("zone", scalar("a time zone such as Asia/Shanghai or UTC", anyText, func(s string) (*time.Location, error) {
	// Read the zone as a part of a limit, so that zones are written alike everywhere.
	l, err := throttle.ParseLimit("1/day " + s)
	if err != nil {
		return nil, fmt.Errorf("%q is not a known time zone: write it like Asia/Shanghai or +08:00", clip(s))
	}
	start, _ := l.Window(time.Now())
	return start.Location(), nil
}))

// oneOf returns the shape of one of some words, which are written as their names are.
func oneOf[T any](words ...word[T]) shape[T] {
	var names []string
	var values []any // that the schema accepts
	for _, w := range words {
		names, values = append(names, w.name), append(values, w.name)
		if n, err := strconv.Atoi(w.name); err == nil {
			values = append(values, n) // without quotes the name is a number in YAML
		}
	}

	expected := "one of " + strings.Join(names, ", ")
	return scalar(expected, schema{"enum": values}, func(s string) (v T, err error) {
		for _, w := range words {
			if w.name == s {
				return w.value, nil
			}
		}
		return v, fmt.Errorf("%q is unknown here%s; %s is expected", clip(s), didYouMean(s, names), expected)
	})
}

// A word is a word of oneOf, with its value.
type word[T any] struct {
	name  string
	value T
}
