package policyfile

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"

	"go.yaml.in/yaml/v4"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// Format writes policies as a file, as a first version to edit. Of functions it can write only those
// that a file can name, such as [throttle.Host] and [feedback.LeaveOpen]. Each other function is a
// *[throttle.ConfigError], because a row without its key or its answer would mean something different.
// For policies that [Parse] does not accept the error is [Errors].
func Format(policies []throttle.Policy) ([]byte, error) {
	var errs []error
	rows := &yaml.Node{Kind: yaml.SequenceNode}
	for _, p := range policies {
		n, err := formatRow(p)
		rows.Content, errs = append(rows.Content, n), append(errs, err)
	}

	if err := errors.Join(errs...); err != nil {
		return nil, err
	}

	file := mapping("version", plain(fmt.Sprint(Version)), "policies", rows)
	text, err := yaml.Dump(file, yaml.WithIndent(2))
	if err != nil {
		return nil, fmt.Errorf("policyfile: %w", err)
	}

	// Read the result back: a file that cannot be read must not be written.
	if _, err := Parse("", text); err != nil {
		return nil, err
	}

	return text, nil
}

// keyNames are the keys that have a name.
var keyNames = map[uintptr]string{
	pointer(throttle.Host): "{host}", pointer(throttle.RawPath): "{path}", pointer(throttle.Method): "{method}",
}

// penaltyNames are the penalties that have a name.
var penaltyNames = map[uintptr]string{pointer(feedback.LeaveOpen): "none", pointer(throttle.RetryAfter): "retry-after"}

// pointer returns the address of a function, which identifies a function that is no closure. It
// returns 0 for nil.
func pointer(f any) uintptr {
	if v := reflect.ValueOf(f); !v.IsNil() {
		return v.Pointer()
	}
	return 0
}

// formatRow returns a policy as a mapping, and an error for each function without a name.
func formatRow(p throttle.Policy) (*yaml.Node, error) {
	var errs []error
	n := mapping("name", quoted(p.Name))
	put := func(name, value string) { n.Content = append(n.Content, mapping(name, plain(value)).Content...) }

	// putFunction adds the name of a function, which names has by the function's address. A function without a name is
	// an error. For nil it does nothing. inGo and inFile are the names of the policy's field.
	putFunction := func(inGo, inFile string, f any, names map[uintptr]string) {
		address := pointer(f)
		switch name, known := names[address]; {
		case address == 0:
		case known:
			n.Content = append(n.Content, mapping(inFile, quoted(name)).Content...)
		default:
			errs = append(errs, &throttle.ConfigError{Policy: p.Name, Field: inGo, Err: errors.New("a function cannot be written into a file: write the field by hand")})
		}
	}

	// In a file an empty match is written as none.
	n.Content = append(n.Content, mapping("match", quoted(cmp.Or(p.Match, matchNone))).Content...)
	putFunction("Key", "key", p.Key, keyNames)
	if p.Keyed {
		put("keyed", "true")
	}

	putFunction("Share", "share", p.Share, keyNames)
	putFunction("Weight", "weight", p.Weight, nil)
	put("limit", p.Limit.String())
	putFunction("Cost", "cost", p.Cost, nil)
	putFunction("Answer", "penalty", p.Answer, penaltyNames)
	putFunction("Meter", "meter", p.Meter, nil)

	switch {
	case p.Jitter < 0:
		put("jitter", "none")
	case p.Jitter > 0:
		put("jitter", p.Jitter.String())
	}

	if len(p.Headroom) > 0 {
		parts := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}

		// The names stand in the order of the priorities, whose numbers follow each other.
		for i, name := range []string{"low", "normal", "high"} {
			if v, ok := p.Headroom[throttle.PriorityLow+throttle.Priority(i)]; ok {
				parts.Content = append(parts.Content, mapping(name, plain(fmt.Sprint(v))).Content...)
			}
		}

		n.Content = append(n.Content, plain("headroom"), parts)
	}

	if p.Adaptive {
		put("adaptive", "true")
	}
	if p.Shadow {
		put("shadow", "true")
	}
	if p.Scope == throttle.ScopeNode {
		put("scope", "node")
	}

	return n, errors.Join(errs...)
}

// quoted returns a text, in quotes where YAML needs them.
func quoted(value string) *yaml.Node {
	n := new(yaml.Node)
	n.SetString(value)
	return n
}

// plain returns a value that needs no quotes.
func plain(value string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: value} }

// mapping returns a mapping of names and nodes.
func mapping(pairs ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i < len(pairs); i += 2 {
		n.Content = append(n.Content, plain(pairs[i].(string)), pairs[i+1].(*yaml.Node))
	}
	return n
}
