package policyfile

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/fleetthrottle/throttle"
)

// A shape is what may stand at one place of a file: it reads a value, and describes
// itself in JSON Schema. The loader and the schema are made of the same shapes, so they
// cannot drift apart.
type shape[T any] struct {
	// read returns what a node says; ok is false after a mistake, which it has noted.
	read   func(r *reader, n *yaml.Node) (v T, ok bool)
	schema func() schema
}

// scalar returns the shape of a single value. Expected says what would be right, as in
// "a duration such as 250ms". An error of parse says what is wrong; it may say where, as a
// placed.
func scalar[T any](expected string, s schema, parse func(text string) (T, error)) shape[T] {
	return shape[T]{
		schema: func() schema { return s },
		read: func(r *reader, n *yaml.Node) (v T, ok bool) {
			n, ok = r.enter(n)
			if !ok {
				return v, false
			}
			defer r.leave()
			if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
				r.fail(n, "%s is expected here, not %s", expected, kindOf(n))
				return v, false
			}
			v, err := parse(n.Value)
			if err != nil {
				offset, text := placeOf(err)
				r.failIn(n, offset, "%s", text)
			}
			return v, err == nil
		},
	}
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

// text is any text. A number or a yes is one, too, as people write them without quotes.
var text = scalar("a text", schema{"type": []any{"string", "number", "boolean"}}, func(s string) (string, error) { return s, nil })

// limit is a limit as [throttle.ParseLimit] reads it.
var limit = scalar(`a limit such as "40/s"`, schema{"type": "string"}, throttle.ParseLimit)

// yes is true or false.
var yes = scalar("yes or no", schema{"enum": []any{true, false, "yes", "no", "on", "off", "true", "false"}},
	func(s string) (bool, error) {
		switch strings.ToLower(s) {
		case "yes", "true", "on":
			return true, nil
		case "no", "false", "off":
			return false, nil
		}
		return false, fmt.Errorf("%q is neither yes nor no", clip(s))
	})

// number returns the shape of a whole number that is not below least.
func number(least int) shape[int] {
	expected := fmt.Sprintf("a whole number from %d on", least)
	return scalar(expected, schema{"type": "integer", "minimum": least}, func(s string) (int, error) {
		n, err := strconv.Atoi(strings.ReplaceAll(s, "_", ""))
		if err != nil || n < least {
			return 0, fmt.Errorf("%q is not %s", clip(s), expected)
		}
		return n, nil
	})
}

// days and lengthText are how durations are written: as Go does, and in days.
var days = regexp.MustCompile(`^(\d+)d$`)

var lengthText = schema{"type": "string", "pattern": `^([0-9]+d|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))*)$`}

// length is a duration above 0.
var length = scalar(`a duration such as "250ms", "20s" or "2d"`, lengthText, parseLength)

func parseLength(s string) (time.Duration, error) {
	if m := days.FindStringSubmatch(s); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil && n > 0 && n < math.MaxInt32/24 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is not a duration above 0, such as 250ms, 20s, 5m or 2d", clip(s))
	}
	return d, nil
}

// share is a part of a whole.
var share = scalar("a share from 0 to below 1, such as 0.25", schema{"type": "number", "minimum": 0, "exclusiveMaximum": 1}, func(s string) (float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v >= 0 && v < 1) {
		return 0, fmt.Errorf("%q is not a share from 0 to below 1, such as 0.25", clip(s))
	}
	return v, nil
})

// pattern is a regular expression.
var pattern = scalar("a regular expression", schema{"type": "string", "format": "regex"}, func(s string) (*regexp.Regexp, error) {
	p, err := regexp.Compile(s)
	if err != nil {
		return nil, fmt.Errorf("%q is not a regular expression: %s", clip(s), strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	return p, nil
})

// zone is a time zone.
var zone = scalar("a time zone such as Asia/Shanghai or UTC", schema{"type": "string"}, func(s string) (*time.Location, error) {
	l, err := throttle.ParseLimit("1/day " + s)
	if err != nil {
		return nil, fmt.Errorf("%q is not a known time zone: write it like Asia/Shanghai or +08:00", clip(s))
	}
	start, _ := l.Window(time.Now())
	return start.Location(), nil
})

// oneOf returns the shape of one of some words.
func oneOf[T any](words ...word[T]) shape[T] {
	var names []string
	var values []any
	for _, w := range words {
		names, values = append(names, w.name), append(values, w.name)
		if n, err := strconv.Atoi(w.name); err == nil {
			values = append(values, n) // as it is without quotes
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

// A word is one that oneOf knows.
type word[T any] struct {
	name  string
	value T
}

// list returns the shape of a list. One value without a list is a list of one.
func list[T any](of shape[T]) shape[[]T] {
	return shape[[]T]{
		schema: func() schema {
			one := of.schema()
			return schema{"anyOf": []any{one, schema{"type": "array", "items": one}}}
		},
		read: func(r *reader, n *yaml.Node) (all []T, ok bool) {
			at, ok := r.enter(n)
			if !ok {
				return nil, false
			}
			defer r.leave()
			if at.Kind != yaml.SequenceNode {
				v, ok := of.read(r, at)
				return []T{v}, ok
			}
			for _, item := range at.Content {
				v, good := of.read(r, item)
				all, ok = append(all, v), ok && good
			}
			return all, ok
		},
	}
}

// table returns the shape of a mapping from texts to values, whose keys are the file's own.
func table[T any](of shape[T]) shape[map[string]T] {
	return shape[map[string]T]{
		schema: func() schema { return schema{"type": "object", "additionalProperties": of.schema()} },
		read: func(r *reader, n *yaml.Node) (map[string]T, bool) {
			members, read, ok := r.members(n, "a mapping")
			if !read {
				return nil, false
			}
			defer r.leave()
			all := make(map[string]T)
			for _, m := range members {
				v, good := of.read(r, m.value)
				all[m.name], ok = v, ok && good
			}
			return all, ok
		},
	}
}

// as returns a shape whose values are made of those of another.
func as[A, B any](of shape[A], f func(A) B) shape[B] {
	return shape[B]{
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

// either returns the shape of two kinds of nodes: one for a mapping, another for all else.
func either[T any](other, mapping shape[T]) shape[T] {
	return shape[T]{
		schema: func() schema { return schema{"anyOf": []any{other.schema(), mapping.schema()}} },
		read: func(r *reader, n *yaml.Node) (T, bool) {
			at := n
			for at.Kind == yaml.AliasNode {
				at = at.Alias
			}
			if at.Kind == yaml.MappingNode {
				return mapping.read(r, n)
			}
			return other.read(r, n)
		},
	}
}

// refer returns the shape of that name in the schema's definitions, which is made when
// it is used.
func refer[T any](name string, of *func() shape[T]) shape[T] {
	return shape[T]{
		schema: func() schema { return schema{"$ref": "#/$defs/" + name} },
		read:   func(r *reader, n *yaml.Node) (T, bool) { return (*of)().read(r, n) },
	}
}
