package policyfile

import "go.yaml.in/yaml/v4"

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
