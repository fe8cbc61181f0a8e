package policyfile

import "go.yaml.in/yaml/v4"

// A keyed is one key of a mapping with its value.
type keyed struct {
	name       string
	key, value *yaml.Node
}

// members returns the members of a mapping. Members of merge keys ("<<") come last, and only if the
// mapping itself has no such key. ok is false if a key is there twice or is invalid. read is false
// if the node is no mapping.
func (r *reader) members(n *yaml.Node, name string) (all []keyed, read, ok bool) {
	n = follow(n)
	if n.Kind != yaml.MappingNode {
		r.fail(n, "%s is expected here, not %s%s", name, kindOf(n), missingSpace(n.Value))
		return nil, false, false
	}

	// first has the key of each member, for the error of a second one.
	ok = true
	first := make(map[string]*yaml.Node)

	var merged []*yaml.Node
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

// merge returns the members that a merge key adds, from a mapping or a list of mappings. A list
// within that list is invalid, as for every reader of YAML.
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
